"""A child that completes prompts with the transformers library: one static batch, bfloat16, sdpa.

It does not know the other contenders.

    python -m benchmarks.peers.transformers_llm FOLDER
"""

import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from benchmarks.peers.child_loop import serve


class Completer:
    """Answers ``{"prompts": [[id, …], …], "output_len": n}`` with the wall time and the ids; prompts of one length."""

    def __init__(self, folder: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa")
        self._model.eval()
        # Its own configuration would end sequences at an end-of-text id.
        self._model.generation_config = GenerationConfig(do_sample=False, pad_token_id=1)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Complete all prompts greedily, as one batch, each to its full length."""
        output_len = question["output_len"]
        begun = time.perf_counter()
        ids = torch.tensor(question["prompts"])  # [prompts, prompt tokens]
        with torch.inference_mode():
            whole = self._model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=output_len)
        outputs = whole[:, ids.shape[1] :].tolist()
        return {"wall_s": time.perf_counter() - begun, "outputs": outputs}


if __name__ == "__main__":
    serve(lambda: Completer(sys.argv[1]).answer)
