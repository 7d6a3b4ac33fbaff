"""Makes requests of texts given on the command line. It does not know how text becomes tokens or is shown."""

from collections.abc import Callable, Sequence

import numpy as np

from serbench.errors import ExperimentError
from serbench.workload.base import WorkRequest
from serbench.workload.spec import Prompts
from serbench_engine.request import SamplingParams


class PromptsWorkload:
    """The same texts in every group: what is generated is to be read, and ends where the model ends it.

    Raises:
        ExperimentError: a prompt that leaves no room for one token.
    """

    def __init__(self, spec: Prompts, *, encode: Callable[[str], Sequence[int]], max_model_len: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=spec.output_len)
        self._requests = []
        for i, text in enumerate(spec.texts):
            ids = np.asarray(encode(text), dtype=np.int32)
            if not 0 < len(ids) < max_model_len:
                raise ExperimentError(
                    f"--prompt {text[:40]!r} has {len(ids)} tokens; it may have 1 to {max_model_len - 1}"
                )
            self._requests.append(WorkRequest(f"request-{i}", ids, params, text))

    def requests(self, group: int) -> list[WorkRequest]:
        """One request a text, whatever the group."""
        return list(self._requests)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []
