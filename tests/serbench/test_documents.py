"""JSON and TOML that a user hands in, nested more deeply than Python can follow: told as any that is malformed."""

from pathlib import Path

import msgspec
import pytest

import serbench
from serbench.documents import decode_json
from tests.serbench.cli.calling import HERE, refused

DEEP = "[" * 100_000
OBJECT = f'{{"schema": "serbench/run/1", "unknown": {DEEP}'


def test_deep_nesting_is_malformed() -> None:
    assert decode_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(msgspec.DecodeError, match="JSON is nested too deeply"):
        decode_json(DEEP.encode())
    with pytest.raises(msgspec.DecodeError, match="JSON is nested too deeply"):
        decode_json(OBJECT.encode(), msgspec.defstruct("Empty", []))


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder with such a file where each command looks for one."""
    (tmp_path / "a.json").write_text(OBJECT)
    (tmp_path / "b.json").write_text(OBJECT.replace("unknown", "id"))
    (tmp_path / "a.toml").write_text(f"codec = {DEEP}")
    (tmp_path / "sweep-a").mkdir()
    (tmp_path / "sweep-a" / "sweep.json").write_text(OBJECT)
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        ("report", "{}"),
        ("report", "{}/a.json"),
        ("compare", "{}/a.json", "{}/b.json"),
        ("check", "{}/a.json"),
        ("trace", "{}/b.json"),
        ("sweep", "--grid", "{}/a.toml"),
        ("sweep", *HERE, "--name", "a", "--output", "{}"),
        ("workload", "{}/a.json"),
    ],
)
def test_commands_tell_it_in_one_line(args: tuple[str, ...], deep: Path) -> None:
    assert "nested too deeply" in refused(*(arg.format(deep) for arg in args))


def test_no_other_module_decodes_json_of_users() -> None:
    root = Path(serbench.__file__).parent
    found = [path.name for path in root.rglob("*.py") if "msgspec.json.decode" in path.read_text()]
    assert found == ["documents.py"]
