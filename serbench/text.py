"""A model's way with text: its tokenizer and chat template, as workloads ask for them. It does not know workloads."""

from collections.abc import Sequence

from serbench.errors import ExperimentError
from serbench_engine.models.config import ResolvedModel
from serbench_engine.text.chat import load_chat_template
from serbench_engine.text.tokenizer import load_tokenizer


class ModelText:
    """Text of one model.

    Raises:
        ModelError: its tokenizer can't be read.
    """

    def __init__(self, model: ResolvedModel) -> None:
        self._model = model
        self._tokenizer = load_tokenizer(model.tokenizer, vocab_size=model.config.vocab_size)

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with what the model expects around it."""
        return self._tokenizer.encode(text)

    def answer_length(self, text: str) -> int:
        """How many tokens an answer has, nothing around it counted."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special ones left out."""
        return self._tokenizer.decode(token_ids)

    def chat(self, text: str) -> list[int]:
        """The ids of ``text`` as a user's turn in the model's chat template.

        Raises:
            ExperimentError: the model has none. EngineError: it is broken.
        """
        template = load_chat_template(self._model.tokenizer)
        if template is None:
            raise ExperimentError(f"--chat needs a chat template, and {self._model.name} has none; leave --chat out")
        prompt = template.render([{"role": "user", "content": text}])
        return self._tokenizer.encode(prompt, add_special_tokens=False)
