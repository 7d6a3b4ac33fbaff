"""Tokenizers: equal to the transformers library's and SentencePiece's, exact both ways, and clear about bad folders."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from serbench_engine.errors import ModelError, RequestError
from serbench_engine.text.sentencepiece import read_pieces
from serbench_engine.text.tokenizer import load_tokenizer
from serbench_engine.weights.embedded import embedded_gguf

MakeFolder = Callable[..., Path]


def test_opt_is_the_transformers_librarys(shared_data: Path, texts: list[str]) -> None:
    folder = str(shared_data / "models" / "facebook-opt-1.3b")
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for text in [*texts, "a</s> b<pad>c <unk> <s>"]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert ours.encode("hi")[0] == ours.bos_token_id == ours.eos_token_id == 2
    assert ours.encode("hi", add_special_tokens=False)[0] != 2
    assert ours.vocab_size == 50265


def test_smollm2_is_the_transformers_librarys_but_for_its_digits(smollm2_folder: Path, texts: list[str]) -> None:
    source = embedded_gguf()
    assert source is not None
    ours = load_tokenizer(str(smollm2_folder))
    theirs = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    plain = [
        "The capital of France is",
        "naïve café — “quotes” 你好，世界！ 🎉",
        "def f(x):\n    return x\n",
        "in 1999 or 20",
    ]
    assert [ours.encode(text) for text in plain] == [theirs.encode(text) for text in plain]
    # From GGUF the transformers library leaves out that SmolLM splits digits off first; its own tokenizer has it.
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in texts:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (1, 2, 49152)
    assert ours.encode("hi")[0] != 1


def test_any_ids_decode_as_in_the_transformers_library(smollm2_folder: Path) -> None:
    ours = load_tokenizer(str(smollm2_folder))
    theirs = LibraryTokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    rng = random.Random(1)
    for _ in range(200):
        ids = [rng.randrange(ours.vocab_size) for _ in range(40)]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("legacy", [True, False])
def test_a_sentencepiece_model_splits_as_sentencepiece_does(
    shared_data: Path, texts: list[str], tmp_path: Path, legacy: bool
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="the reference, sentencepiece, isn't installed")
    source = shared_data / "models" / "tinyllama-1.1b-chat"
    shutil.copy(source / "tokenizer.model", tmp_path)
    settings = json.loads((source / "tokenizer_config.json").read_text()) | {"legacy": legacy}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    ours = load_tokenizer(str(tmp_path))
    # The transformers library's newer way puts no space before a text that starts with one; SentencePiece does.
    comparable = [text for text in texts if legacy or not text.startswith(" ")]
    for text in comparable:
        assert ours.encode(text) == [1, *theirs.encode(text)], text
        assert ours.decode(ours.encode(text)) == text
    assert (ours.bos_token_id, ours.eos_token_id, ours.vocab_size) == (1, 2, 32000)
    assert ours.encode("</s>")[-1] == 2


def test_text_comes_back_from_its_ids(make_folder: MakeFolder, texts: list[str]) -> None:
    tokenizer = load_tokenizer(str(make_folder()))
    for text in [one for one in texts if "<s>" not in one]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("settings", "post_processed", "begins"),
    [
        ({"bos_token": "<s>"}, False, False),
        ({"bos_token": "<s>"}, True, True),
        ({"bos_token": "<s>", "add_bos_token": True}, False, True),
        ({"bos_token": "<s>", "add_bos_token": True}, True, True),
        ({"bos_token": {"content": "<s>"}, "add_bos_token": False}, True, False),
        ({"add_bos_token": True}, False, False),
    ],
)
def test_bos_is_added_once_as_the_settings_have_it(
    make_folder: MakeFolder, settings: dict[str, object], post_processed: bool, begins: bool
) -> None:
    folder = make_folder(**settings)
    if post_processed:
        raw = LibraryTokenizer.from_file(str(folder / "tokenizer.json"))
        raw.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        raw.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(str(folder))
    bare = tokenizer.encode("hello", add_special_tokens=False)
    assert 0 not in bare
    assert tokenizer.encode("hello") == ([0, *bare] if begins else bare)


def test_ids_are_shown_by_name_and_add_nothing_to_the_text_if_special(make_folder: MakeFolder) -> None:
    tokenizer = load_tokenizer(str(make_folder(bos_token="<s>", eos_token="</s>")))
    assert (tokenizer.id_to_text(1), tokenizer.id_to_bytes(1), tokenizer.eos_token_id) == ("</s>", b"", 1)
    [word] = tokenizer.encode("é")[:1]
    assert tokenizer.id_to_bytes(word) in ("é".encode(), "é".encode()[:1])
    assert tokenizer.id_to_bytes(10**6) == tokenizer.id_to_bytes(-1) == b""
    assert tokenizer.decode([1, 10**6, *tokenizer.encode("ok"), 1]) == "ok"


def test_bytes_stand_for_tokens_where_there_is_no_tokenizer() -> None:
    tokenizer = load_tokenizer(None)
    assert tokenizer.encode("né") == [110, 195, 169]
    assert tokenizer.decode([110, 195, 169, 300, 195]) == "né<300>�"
    assert (tokenizer.vocab_size, tokenizer.eos_token_id) == (256, None)
    small = load_tokenizer(None, vocab_size=100)
    assert small.vocab_size == 100
    assert max(small.encode("žluťoučký kůň")) < 100


def test_half_a_surrogate_pair_is_refused(make_folder: MakeFolder) -> None:
    for tokenizer in (load_tokenizer(None), load_tokenizer(str(make_folder()))):
        with pytest.raises(RequestError, match=r"character 2 of the prompt is half a surrogate pair \(U\+D83C\)"):
            tokenizer.encode("ab\ud83c")


def test_folders_without_a_tokenizer_are_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no tokenizer folder"):
        load_tokenizer(str(tmp_path / "none"))
    with pytest.raises(ModelError, match=r"holds no tokenizer; it needs tokenizer\.json, or"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", b"{}", "can't be read as a tokenizer"),
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        ("tokenizer.json", b"", "is empty"),
        ("tokenizer.model", b"\x0a\x05abc", "is no SentencePiece model: it ends within a field"),
        ("tokenizer.model", b"hello", "is no SentencePiece model"),
    ],
)
def test_broken_files_are_one_clear_line(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        load_tokenizer(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_broken_settings_are_told_with_the_line(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "tokenizer_config.json").write_text('{\n"bos_token": <s>\n}')
    with pytest.raises(ModelError, match=r"tokenizer_config\.json, line 2: not JSON"):
        load_tokenizer(str(folder))


def test_a_unigram_model_is_refused(tmp_path: Path) -> None:
    piece = b"\x0a\x01a"
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a" + bytes([len(piece)]) + piece)
    with pytest.raises(ModelError, match="a SentencePiece model of type 1; BPE"):
        read_pieces(tmp_path / "tokenizer.model")
