"""The layout of the repository, the direction of imports and the size of files, read from the source with ast.

It knows nothing of what the code does. Each rule is a function of source text, so that it is seen to fail as well.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "serbench": ROOT / "serbench",
    "serbench_engine": ROOT / "engine" / "serbench_engine",
    "serbench_codecs": ROOT / "codecs" / "serbench_codecs",
}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40

CODECS_MAY_IMPORT = {"numpy", "msgspec", "cloudpickle", "ormsgpack", "serbench_codecs"}
KIT_MAY_IMPORT = CODECS_MAY_IMPORT | {"hypothesis"}  # conformance/ is run by tests only
ENGINE_MUST_NOT_IMPORT = {"serbench", "click", "rich", "pandas", "matplotlib"}
NAMES_OF_NO_JOB = {"utils", "util", "helpers", "helper", "common", "misc"}
HEAVY = ("torch", "transformers", "pandas", "matplotlib")


# --- the rules ----------------------------------------------------------------------------------------------


def imported_modules(source: str) -> set[str]:
    """Every module that the source imports, at any depth; relative ones with their leading dots."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add("." * node.level + (node.module or ""))
    return modules


def imported_packages(source: str) -> set[str]:
    """The first part of every imported module's name."""
    return {module.split(".")[0] for module in imported_modules(source) if not module.startswith(".")}


def function_lengths(source: str) -> dict[str, int]:
    """Lines of every function from its def to its end, without its docstring."""
    lengths: dict[str, int] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
        lengths[f"{node.name}:{node.lineno}"] = length
    return lengths


def has_module_docstring(source: str) -> bool:
    return bool((ast.get_docstring(ast.parse(source)) or "").strip())


# --- what they are applied to -------------------------------------------------------------------------------


def python_files(*folders: Path) -> Iterator[tuple[str, str]]:
    """Path below the repository, and source, of every Python file in the folders."""
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def everywhere() -> Iterator[tuple[str, str]]:
    own = [folder for folder in sorted(ROOT.iterdir()) if folder.is_dir() and not folder.name.startswith(".")]
    return python_files(*[folder for folder in own if not (folder / "pyvenv.cfg").exists()])


def test_the_rules_see_what_they_forbid() -> None:
    source = (
        'def f():\n    """Doc."""\n    from engine.serbench_engine import x\n    import torch.nn\n    from . import y\n'
    )
    assert imported_packages(source) == {"engine", "torch"}
    assert "." in imported_modules(source)
    assert function_lengths(source) == {"f:1": 4}
    assert not has_module_docstring(source)


def test_every_package_is_there_and_typed() -> None:
    for name, folder in PACKAGES.items():
        assert (folder / "__init__.py").is_file(), f"{name} is not a package"
        assert (folder / "py.typed").is_file(), f"{name} has no py.typed"
        bare = [f.parent for f in folder.rglob("*.py") if not (f.parent / "__init__.py").is_file()]
        assert not bare, f"folders of modules without an __init__.py: {bare}"


@pytest.mark.parametrize("root", ["codecs", "engine"])
def test_import_roots_are_no_packages(root: str) -> None:
    # codecs/__init__.py would shadow the standard library's module, engine/__init__.py would allow every class twice.
    assert not (ROOT / root / "__init__.py").exists()
    assert {file.parent.name for file in (ROOT / root).glob("*/__init__.py")} == {f"serbench_{root}"}
    assert not list((ROOT / root).glob("*.py")), "a root holds one package and no modules"


def test_nothing_imports_the_roots() -> None:
    found = {path for path, source in everywhere() if {"engine", "codecs"} & imported_packages(source)}
    assert not found, f"import serbench_engine or serbench_codecs instead: {found}"


def test_imports_are_absolute() -> None:
    found = {path for path, source in everywhere() if any(m.startswith(".") for m in imported_modules(source))}
    assert not found


def test_codecs_import_only_what_any_engine_has() -> None:
    for path, source in python_files(PACKAGES["serbench_codecs"]):
        allowed = KIT_MAY_IMPORT if "/conformance/" in path else CODECS_MAY_IMPORT
        foreign = imported_packages(source) - allowed - sys.stdlib_module_names
        assert not foreign, f"{path} imports {foreign}; serbench_codecs has only {sorted(allowed)}"


def test_the_engine_does_not_know_its_users() -> None:
    for path, source in python_files(PACKAGES["serbench_engine"]):
        foreign = imported_packages(source) & ENGINE_MUST_NOT_IMPORT
        assert not foreign, f"{path} imports {foreign}"


def test_names_of_modules() -> None:
    for path, _ in python_files(*PACKAGES.values()):
        stem = Path(path).stem
        assert stem not in NAMES_OF_NO_JOB, f"{path}: a file has one job, named by the file"
        assert stem not in sys.stdlib_module_names, f"{path} is named like a module of the standard library"


def test_every_module_says_its_job() -> None:
    mute = [path for path, source in everywhere() if not has_module_docstring(source)]
    assert not mute, f"no module docstring: {mute}"


def test_files_are_short() -> None:
    lengths = {path: source.count("\n") for path, source in python_files(*PACKAGES.values())}
    long = {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES}
    assert not long, f"over {MAX_FILE_LINES} lines: {long}"


def test_functions_are_short() -> None:
    long = {
        f"{path}:{name}": lines
        for path, source in python_files(*PACKAGES.values())
        for name, lines in function_lengths(source).items()
        if lines > MAX_FUNCTION_LINES
    }
    assert not long, f"over {MAX_FUNCTION_LINES} lines: {long}"


# --- what importing costs -----------------------------------------------------------------------------------


def heavy_modules_after(statements: str) -> list[str]:
    """Which of HEAVY a new interpreter has loaded after the statements, which may end it with SystemExit(0)."""
    program = (
        f"import atexit, sys\n"
        f"atexit.register(lambda: print('\\nloaded:', *[m for m in {HEAVY!r} if m in sys.modules]))\n{statements}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].removeprefix("loaded:").split()


def test_the_measure_of_imports_sees_a_heavy_one() -> None:
    assert heavy_modules_after("import sys, types; sys.modules['pandas'] = types.ModuleType('pandas')") == ["pandas"]


def test_help_is_light() -> None:
    help_of_serbench = "import sys; from serbench.cli.main import main; sys.argv = ['serbench', '--help']; main()"
    assert heavy_modules_after(help_of_serbench) == []


def test_importing_the_packages_is_light() -> None:
    assert heavy_modules_after("import serbench, serbench_codecs, serbench_engine") == []


def test_no_codec_brings_torch_in() -> None:
    folder = PACKAGES["serbench_codecs"]
    modules = [f"serbench_codecs.{file.stem}" for file in folder.glob("*.py") if file.stem != "conformance"]
    assert "torch" not in heavy_modules_after("import " + ", ".join(modules))


# --- the README's tree ------------------------------------------------------------------------------------------


def test_the_tree_in_the_readme_is_the_tree() -> None:
    wrong = subprocess.run([sys.executable, "scripts/tree.py", "--check"], cwd=ROOT, timeout=60, check=False).returncode
    assert wrong == 0, "run scripts/tree.py (make fix does) and commit README.md"
