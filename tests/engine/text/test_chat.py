"""Chat templates: as the transformers library renders them, in a sandbox, with clear refusals."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from serbench_engine.errors import ModelError, RequestError
from serbench_engine.text.chat import ChatTemplate, load_chat_template
from serbench_engine.text.tokenizer import load_tokenizer

TALK = [
    {"role": "user", "content": "What is 2 + 2?\n"},
    {"role": "assistant", "content": "4, naïvely — “four”"},
    {"role": "user", "content": "<b>Sure?</b>"},
]


def test_smollm2s_is_rendered_as_by_the_transformers_library(smollm2_folder: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(str(smollm2_folder))
    ours = load_chat_template(str(smollm2_folder))
    assert ours is not None
    for messages in (TALK, [{"role": "system", "content": "Be brief."}, *TALK]):
        for generate in (True, False):
            expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate)
            assert ours.render(messages, add_generation_prompt=generate) == expected
    prompt = load_tokenizer(str(smollm2_folder)).encode(ours.render(TALK), add_special_tokens=False)
    assert prompt[0] == 1  # <|im_start|> is read as the one token that it is


def test_a_folder_may_have_it_in_a_file_in_its_settings_by_name_or_not_at_all(tmp_path: Path) -> None:
    assert load_chat_template(None) is None
    assert load_chat_template(str(tmp_path)) is None
    settings = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}settings"}]
    settings.write_text(json.dumps({"bos_token": "<s>", "chat_template": named}))
    by_name = load_chat_template(str(tmp_path))
    assert by_name is not None
    assert by_name.render(TALK) == "<s>settings"
    (tmp_path / "chat_template.jinja").write_text("file")
    from_file = load_chat_template(str(tmp_path))
    assert from_file is not None
    assert from_file.render(TALK) == "file"


def test_whitespace_and_tojson_are_as_templates_expect() -> None:
    source = "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content | tojson }}\n{% endif %}{% endfor %}"
    template = ChatTemplate(source, {})
    assert template.render([{"role": "user", "content": 'é<"'}]) == '"é<\\""\n'


def test_what_a_template_refuses_is_the_requests_error() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(RequestError, match="refuses these messages: roles must alternate"):
        template.render(TALK)
    with pytest.raises(RequestError, match="can't render these messages"):
        ChatTemplate("{{ messages[9].content.upper() }}", {}).render(TALK)


def test_a_template_can_not_reach_out_of_its_sandbox() -> None:
    with pytest.raises(RequestError, match="can't render these messages"):
        ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}", {}).render(TALK)


def test_a_broken_template_is_told_with_its_line() -> None:
    with pytest.raises(ModelError, match="the chat template is broken, line 2"):
        ChatTemplate("hello\n{% if %}", {})


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("chat_template.jinja", b"\xff", "chat_template.jinja is no text: byte 0 is not UTF-8"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": 5}', "added_tokens_decoder is 5; it must be an object"),
    ],
)
def test_settings_of_another_kind_are_told(tmp_path: Path, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match=said):
        load_chat_template(str(tmp_path))
