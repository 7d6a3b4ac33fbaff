"""A child that completes prompts with serbench's LLM in bfloat16. It does not know the peers.

python -m benchmarks.peers.serbench_llm FOLDER EXECUTOR MAX_MODEL_LEN MAX_NUM_SEQS
"""

import sys
import time
from typing import Any

from benchmarks.peers.child_loop import serve
from serbench_engine import LLM, SamplingParams
from serbench_engine.threads import set_thread_environment


class Completer:
    """Answers ``{"prompts": [[id, …], …], "output_len": n}`` with the wall time and the ids."""

    def __init__(self, folder: str, executor: str, max_model_len: int, max_num_seqs: int) -> None:
        self._llm = LLM(
            folder,
            dtype="bfloat16",
            executor=executor,
            codec="none" if executor == "inproc" else "columnar",
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
        )

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Complete all prompts greedily, each to its full length."""
        params = SamplingParams(temperature=0.0, max_tokens=question["output_len"], ignore_eos=True)
        begun = time.perf_counter()
        outputs = self._llm.generate(question["prompts"], params)
        wall_s = time.perf_counter() - begun
        return {"wall_s": wall_s, "outputs": [one.outputs[0].token_ids for one in outputs]}


if __name__ == "__main__":
    set_thread_environment()
    serve(lambda: Completer(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).answer)
