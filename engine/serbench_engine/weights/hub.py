"""The Hugging Face hub: what is in its local cache, and what can be fetched, asked once and never for long.

It does not know what a model folder means. ``huggingface_hub`` is imported when it is first needed.
"""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from serbench_engine.errors import ModelError

_PROBE_TIMEOUT_S: Final = 3.0
_SMALL: Final = re.compile(r"[^/]+\.json|[^/]+\.jinja|merges\.txt|tokenizer\.model")
_WEIGHTS: Final = (r"model[^/]*\.safetensors", r"[^/]+\.safetensors", r"pytorch_model[^/]*\.bin")
"""The first kind of which there is one is fetched: repositories often hold the same weights several times."""


class HubUnreachable(Exception):
    """The hub did not answer, or may not be asked (HF_HUB_OFFLINE)."""


def cached_snapshot(repo: str) -> Path | None:
    """The folder of ``repo`` in the local cache, whole or not; None if there is none. Asks nobody."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def fetch_snapshot(repo: str, tell: Callable[[str], None], *, with_weights: bool = True) -> Path:
    """Download ``repo``, with a progress bar on a terminal, and give its folder in the local cache.

    ``tell`` hears of it when it begins. Without weights only what is small is fetched.

    Raises:
        HubUnreachable: no answer within seconds.
        ModelError: the hub has no such model, or does not give it to this user; or the download broke off.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    names = wanted_files(_files(repo), with_weights)
    tell(f"downloading {repo}")
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return Path(snapshot_download(repo, allow_patterns=names))
    except Exception as error:  # any of the HTTP library's
        raise ModelError(f"downloading {repo} broke off ({_line(error)}); what arrived is kept, try again") from None


def wanted_files(names: list[str], with_weights: bool) -> list[str]:
    """Of a repository's files those that are fetched: settings and tokenizer, and the weights in one format."""
    kinds = _WEIGHTS if with_weights else ()
    found = next((some for kind in kinds if (some := [name for name in names if re.fullmatch(kind, name)])), [])
    return [name for name in names if _SMALL.fullmatch(name)] + found


def _files(repo: str) -> list[str]:
    """Names of the files of ``repo``. The one probe: in a thread, since looking up a host name has no timeout."""
    from huggingface_hub import constants, model_info

    if constants.HF_HUB_OFFLINE:
        raise HubUnreachable("HF_HUB_OFFLINE is set")
    answer: list[list[str] | Exception] = []

    def ask() -> None:
        try:
            siblings = model_info(repo, timeout=_PROBE_TIMEOUT_S).siblings or []
            answer.append([sibling.rfilename for sibling in siblings])
        except Exception as error:  # any of the HTTP library's: sorted out below
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="hub-probe")
    thread.start()
    thread.join(_PROBE_TIMEOUT_S)
    if not answer:
        raise HubUnreachable(f"no answer within {_PROBE_TIMEOUT_S:.0f} s")
    if isinstance(answer[0], Exception):
        raise _refusal(repo, answer[0])
    return answer[0]


def _refusal(repo: str, error: Exception) -> Exception:
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return ModelError(f"{repo} is gated: accept its licence on the hub, then log in with `hf auth login`")
    if isinstance(error, RepositoryNotFoundError):
        return ModelError(f"the hub has no model {repo}, or it is private")
    if isinstance(error, HFValidationError):
        return ModelError(f"{repo!r} is no model name: {_line(error)}")
    return HubUnreachable(_line(error))


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
