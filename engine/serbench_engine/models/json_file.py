"""Reads a JSON object from a file, with an error that says where it is broken. It does not know what the keys mean."""

import json
from pathlib import Path
from typing import Any

from serbench_engine.errors import ModelError


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``.

    Raises:
        ModelError: it can't be read, or is no JSON object; with the line.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is no text: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise ModelError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply to be read") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}; it must be a JSON object")
    return value
