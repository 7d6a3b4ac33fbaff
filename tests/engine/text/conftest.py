"""A small byte-level tokenizer in a folder, and texts of many scripts."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WRITTEN = (
    "Hello world 12345",
    "naïve café — “quotes” 你好，世界！ 🎉🏳️‍🌈 ١٢٣ ½ Ⅷ",
    "def f(x):\n\treturn x  # 12  34\n\n\n  1",
    "  leading  and   trailing  ",
    "<|im_start|>user\nhi<|im_end|>\n",
    "\u200b\ufeffzero\x00width\r\n",
    "don't we'll I'M they've",
    "ไทย हिन्दी العربية 日本語テキスト",
    "",
)


def _random_texts() -> list[str]:
    rng = random.Random(0)
    ranges = ((32, 127), (0x80, 0x800), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF))

    def character() -> str:
        return rng.choice([*(chr(rng.randrange(*one)) for one in ranges), " ", "\n", "7"])

    return ["".join(character() for _ in range(rng.randrange(1, 40))) for _ in range(200)]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return [*WRITTEN, *_random_texts()]


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with a small byte-level tokenizer.json and the given settings."""

    def make(**settings: Any) -> Path:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(WRITTEN, trainer)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return tmp_path

    return make
