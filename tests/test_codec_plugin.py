"""The example of a codec from outside, installed as a package: listed, checked, compared; a codec that breaks rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "examples" / "codec_plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed into it by pip."""
    folder = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*install, "--target", str(folder), str(PLUGIN)], check=True, timeout=100)
    return folder


def serbench(*args: str, site: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "serbench", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_the_plugin_is_about_thirty_lines() -> None:
    lines = (PLUGIN / "serbench_deflate.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 36


@pytest.mark.parametrize("page", ["README.md", "docs/codecs.md"])
def test_pages_that_tell_of_the_check_tell_what_it_needs(page: str) -> None:
    text = (PLUGIN.parents[1] / page).read_text()
    assert "codecs --check" in text
    assert "pip install -e '.[conformance]'" in text


def test_the_plugin_is_listed(site: Path) -> None:
    listed = serbench("codecs", site=site)
    assert listed.returncode == 0, listed.stderr
    assert " deflate " in listed.stdout


def test_the_plugin_keeps_the_contract(site: Path) -> None:
    checked = serbench("codecs", "--check", "deflate", "--examples", "20", site=site)
    assert checked.returncode == 0, checked.stderr
    assert "codec deflate keeps the contract: 20 conversations" in checked.stdout


def test_the_plugin_can_be_compared(site: Path, tmp_path: Path) -> None:
    small = ["--num-prompts", "4", "--input-len", "8", "--output-len", "4", "--repeats", "1", "--warmup", "0"]
    for codec in ("deflate", "serbench_deflate:DEFLATE"):
        options = ["--model", "sim", *small, "--output", str(tmp_path / "runs"), "--codec", f"delta,{codec}"]
        compared = serbench("compare", *options, site=site)
        assert compared.returncode == 0, compared.stderr
        assert "outputs equal" in compared.stdout


def test_a_codec_that_breaks_the_contract_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(
        "import msgspec\n"
        "from serbench_codecs.plan import NO_WRITES\n"
        "from serbench_codecs.registry import get_codec\n"
        "class Encoder:\n"
        "    def __init__(self, inner): self._inner, self.encode = inner, inner.encode\n"
        "    def adapt(self, plan, table):\n"
        "        return self._inner.adapt(msgspec.structs.replace(plan, blocks=NO_WRITES), table)\n"
        "class Forgetful:\n"
        "    name, traits = 'forgetful', get_codec('delta').traits\n"
        "    def ends(self, limits):\n"
        "        encoder, decoder = get_codec('delta').ends(limits)\n"
        "        return Encoder(encoder), decoder\n"
    )
    checked = serbench("codecs", "--check", "forgetful:Forgetful", site=tmp_path)
    assert checked.returncode == 1
    assert "Traceback" not in checked.stderr
    rule, *below = checked.stderr.splitlines()
    assert rule.startswith("serbench: codec forgetful breaks the contract: ")
    (tmp_path / "pasted.py").write_text("\n".join(below))
    pasted = subprocess.run([sys.executable, "pasted.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert rule.removeprefix("serbench: ") in pasted.stderr


def test_a_codec_that_raises_fails_the_run_with_one_line_and_its_own_traceback(tmp_path: Path) -> None:
    (tmp_path / "raising.py").write_text(
        "from types import SimpleNamespace\n"
        "from serbench_codecs.registry import get_codec\n"
        "class Raising:\n"
        "    name, traits = 'raising', get_codec('delta').traits\n"
        "    def ends(self, limits):\n"
        "        encoder, decoder = get_codec('delta').ends(limits)\n"
        "        return SimpleNamespace(adapt=encoder.adapt, encode=self.encode), decoder\n"
        "    def encode(self, objects):\n"
        "        raise ValueError('on purpose')\n"
    )
    options = ["--model", "sim", "--executor", "inproc", "--warmup", "0", "--output", str(tmp_path / "runs"), "--quiet"]
    done = serbench("run", *options, "--codec", "raising:Raising", site=tmp_path)
    assert done.returncode == 1
    first, *below = done.stderr.splitlines()
    assert first == "serbench: codec raising: no payload of step 0: ValueError: on purpose"
    assert all(line.startswith("    ") for line in below)
    assert "in encode" in done.stderr
    assert "serbench_engine" not in done.stderr


@pytest.mark.parametrize(("name", "says"), [("delat", "Did you mean delta"), ("no_such_module:NAME", "no_such_module")])
def test_checking_what_is_no_codec_is_bad_input(name: str, says: str, tmp_path: Path) -> None:
    checked = serbench("codecs", "--check", name, site=tmp_path)
    assert checked.returncode == 2
    assert says in checked.stderr
    assert len(checked.stderr.splitlines()) == 1
