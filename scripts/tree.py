"""Writes the tree in README.md: every module with the first phrase of its docstring. It knows nothing of what they do.

Run it after adding, renaming or removing a module; a test compares README.md with what it would write.
"""

import ast
import re
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- tree -->\n"
END: Final = "<!-- /tree -->\n"
FOLDERS: Final = (
    "codecs/serbench_codecs",
    "engine/serbench_engine",
    "serbench",
    "tests",
    "benchmarks",
    "examples",
    "scripts",
)
WIDTH: Final = 118


def tree() -> str:
    """The tree as a code block, the folders in the order of FOLDERS."""
    lines = ["```"]
    for folder in FOLDERS:
        files = sorted(path for path in listed(folder) if path.name != "__init__.py" and folder != "tests")
        lines.append(f"{folder}/" + ("   mirrors the packages" if folder == "tests" else ""))
        lines += [entry(path.relative_to(ROOT / folder), path) for path in sorted(files, key=by_folder)]
    return "\n".join([*lines, "```\n"])


def listed(folder: str) -> list[Path]:
    """The Python files that git knows, or would take, below ``folder``."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"{folder}/*.py"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def by_folder(path: Path) -> tuple[str, str]:
    """Files of a folder before those of the folders in it."""
    return str(path.parent), path.name


def entry(name: Path, path: Path) -> str:
    """One line: the file and its job."""
    begin = f"    {name!s:<34} "
    return begin + shortened(phrase(path), WIDTH - len(begin))


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = re.split(r"(?<!et al)\.(?:\s|$)", docstring.split("\n\n")[0].replace("\n", " "))[0]
    return first.rstrip(":")


def shortened(text: str, width: int) -> str:
    """``text``, cut where a part of it ends if it is too long."""
    if len(text) <= width:
        return text
    parts = re.split(r"(?=[,:;] | \()", text)
    whole = [part for part in accumulate(parts) if len(part) <= width]
    return whole[-1] if whole else text[: width - 2].rsplit(" ", 1)[0] + " …"


def written(text: str) -> str:
    """``text`` of README.md with the tree as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + tree() + END + rest.split(END)[1]


def main() -> None:
    """Write the tree; with ``--check`` only say by the exit code whether it is another one."""
    text = README.read_text()
    if "--check" in sys.argv[1:]:
        sys.exit(text != written(text))
    README.write_text(written(text))


if __name__ == "__main__":
    main()
