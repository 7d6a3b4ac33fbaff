"""A child that completes prompts with vLLM's LLM in bfloat16, in vLLM's own environment.

It does not know serbench. Its process decides how vLLM is set up: VLLM_* variables and what is preloaded.

    python -m benchmarks.peers.vllm_llm FOLDER MAX_MODEL_LEN [--eager]
"""

import sys
import time
from typing import Any

from vllm import LLM, SamplingParams

from benchmarks.peers.child_loop import option, serve


class Completer:
    """Answers ``{"prompts": [[id, …], …], "output_len": n}`` with the wall time and the ids."""

    def __init__(self, folder: str, max_model_len: int) -> None:
        self._llm = LLM(
            folder,
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=max_model_len,
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
    serve(lambda: Completer(sys.argv[1], int(sys.argv[2])).answer)
