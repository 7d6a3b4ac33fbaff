"""A child that completes prompts with vLLM's LLM in bfloat16, in vLLM's own environment.

It does not know serbench. Its process decides how vLLM is set up: VLLM_* variables and what is preloaded.

    python -m benchmarks.peers.vllm_llm FOLDER MAX_MODEL_LEN NUM_PROMPTS [--eager]
"""

import sys
import time
from typing import Any

from vllm import LLM, SamplingParams

from benchmarks.peers.child_loop import option, serve

DEFAULT_MAX_NUM_SEQS = 256
"""The most requests that its LLM class runs at once on a CPU, if nothing is said."""


class Completer:
    """Answers ``{"prompts": [[id, …], …], "output_len": n}`` with the wall time and the ids; all run at once."""

    def __init__(self, folder: str, max_model_len: int, num_prompts: int) -> None:
        self._llm = LLM(
            folder,
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=max_model_len,
            max_num_seqs=num_prompts if num_prompts > DEFAULT_MAX_NUM_SEQS else None,
            enforce_eager=option("eager"),
            enable_prefix_caching=False,
        )

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Complete all prompts greedily, each to its full length."""
        params = SamplingParams(temperature=0.0, max_tokens=question["output_len"], ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": ids} for ids in question["prompts"]]
        begun = time.perf_counter()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        wall_s = time.perf_counter() - begun
        return {"wall_s": wall_s, "outputs": [list(one.outputs[0].token_ids) for one in outputs]}


if __name__ == "__main__":
    serve(lambda: Completer(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).answer)
