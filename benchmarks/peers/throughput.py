"""Measures output tokens/s of serbench, vLLM at its best and the transformers library, interleaved in one run.

It does not know how each completes prompts (…_llm.py). All get the same weights and the same prompts; everything is
loaded once, and stopped while another's turn lasts. docs/peers.md tells what is compared with what.

    SERBENCH_PEERS=… python -m benchmarks.peers.throughput [--quick]
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import msgspec
import numpy as np

from benchmarks.peers.children import Child, ChildError, Children
from benchmarks.peers.contenders import OURS, TRANSFORMERS, VLLM, Serving, Start, chosen
from benchmarks.peers.models import MODELS, folder_of, vocabulary
from benchmarks.peers.tables import markdown, ratio
from serbench.environment import Environment, describe_environment
from serbench.interleave import balanced_order
from serbench.stats import Finding, judge

SHAPES: Final = ("128/64", "512/128")
TIMEOUT_S: Final = 600.0
WARM_UP_LEN: Final = 8
TRIAL: Final = -1


class Shape(msgspec.Struct, frozen=True):
    """Prompt tokens in, tokens out."""

    input_len: int
    output_len: int

    def __str__(self) -> str:
        return f"{self.input_len}/{self.output_len}"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One timed pass. ``round`` TRIAL: it decided which of vLLM's settings takes part. ``foreign_cores``: cores that
    other programs kept busy; ``own_cores``: those that it kept busy itself.
    """

    model: str
    shape: Shape
    contender: str
    round: int
    wall_s: float
    output_tokens: int
    own_cores: float
    foreign_cores: float

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / self.wall_s


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured, ``serbench/peers-throughput/1``."""

    schema: str = "serbench/peers-throughput/1"
    environment: Environment
    num_prompts: int
    rounds: int
    turns: list[Turn]


@click.command()
@click.option("--models", default=",".join(MODELS), show_default=True)
@click.option("--shapes", default=",".join(SHAPES), show_default=True, help="Prompt length / output length.")
@click.option("--num-prompts", default=64, show_default=True)
@click.option("--rounds", default=4, show_default=True, help="Timed passes of each; intervals need 4.")
@click.option("--vllm", "settings", default=",".join(VLLM), show_default=True, help="Tried; the best takes part.")
@click.option("--no-transformers", is_flag=True)
@click.option("--quick", is_flag=True, help="OPT-125m and 128/64 only.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write every figure to this file.")
def main(
    models: str,
    shapes: str,
    num_prompts: int,
    rounds: int,
    settings: str,
    no_transformers: bool,
    quick: bool,
    path: Path | None,
) -> None:
    """Compare throughput with vLLM's and the transformers library's."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was measured by then is still told
    models, shapes = (MODELS[0], SHAPES[0]) if quick else (models, shapes)
    measured = Measured(environment=describe_environment(), num_prompts=num_prompts, rounds=rounds, turns=[])
    cells = [Shape(*map(int, one.split("/"))) for one in shapes.split(",")]
    named = chosen("model", dict.fromkeys(MODELS), models)
    tried = chosen("engine", VLLM, settings)
    fixed = {**OURS, **({} if no_transformers else TRANSFORMERS)}
    try:
        for model in named:
            measure(measured, model, cells, fixed, tried)
    except ChildError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if path is not None:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
        print(report(measured))


def measure(
    measured: Measured, model: str, shapes: Sequence[Shape], fixed: Mapping[str, Start], tried: Mapping[str, Start]
) -> None:
    """All shapes of a model: vLLM's settings are tried once each, then the best takes turns with the others."""
    longest = max(shape.input_len + shape.output_len for shape in shapes)
    serving = Serving(folder_of(model), longest, measured.num_prompts)
    with Children() as children:
        stage = Stage(measured, model, serving, children)
        best = stage.best_of(tried, shapes)
        others = [stage.started(name, start, shapes) for name, start in fixed.items()]
        for shape in shapes:
            stage.rounds([*others, *([best[shape]] if best else [])], shape)


class Stage:
    """A model's contenders and their turns."""

    def __init__(self, measured: Measured, model: str, serving: Serving, children: Children) -> None:
        self._measured = measured
        self._model = model
        self._serving = serving
        self._children = children
        self._vocabulary = vocabulary(model)

    def started(self, name: str, start: Start, shapes: Sequence[Shape]) -> Child:
        """It has loaded its weights, and has met every shape."""
        tell(f"{self._model}: {name} starts")
        child = self._children.start(name, start(self._serving))
        for shape in shapes:
            child.ask(self._question(Shape(shape.input_len, WARM_UP_LEN), TRIAL), TIMEOUT_S)
        return child

    def best_of(self, tried: Mapping[str, Start], shapes: Sequence[Shape]) -> dict[Shape, Child]:
        """For each shape the fastest in one pass; those that are the fastest nowhere are ended."""
        best: dict[Shape, tuple[float, Child]] = {}
        for name, start in tried.items():
            child = self.started(name, start, shapes)
            before = [one for _, one in best.values()]
            for shape in shapes:
                speed = self.turn(child, shape, TRIAL)
                best[shape] = max(best.get(shape, (0.0, child)), (speed, child), key=lambda one: one[0])
            for one in (*before, child):
                if one not in [leader for _, leader in best.values()]:
                    one.close()
        return {shape: child for shape, (_, child) in best.items()}

    def rounds(self, children: Sequence[Child], shape: Shape) -> None:
        """Everybody's turns at a shape, in balanced order."""
        for number, turns in enumerate(balanced_order(len(children), self._measured.rounds, seed=0)):
            tell(f"{self._model} {shape}: round {number + 1} of {self._measured.rounds}")
            for turn in turns:
                self.turn(children[turn], shape, number)

    def turn(self, child: Child, shape: Shape, number: int) -> float:
        """One timed pass; its output tokens/s."""
        child.ask(self._question(Shape(shape.input_len, 2), number, few=2), TIMEOUT_S)  # it was stopped: caches refill
        answer = child.ask(self._question(shape, number), TIMEOUT_S)
        done = Turn(
            model=self._model,
            shape=shape,
            contender=child.name,
            round=number,
            wall_s=answer.said["wall_s"],
            output_tokens=sum(map(len, answer.said["outputs"])),
            own_cores=answer.own_cpu_s / answer.wall_s,
            foreign_cores=answer.foreign_cpu_s / answer.wall_s,
        )
        self._measured.turns.append(done)
        due = self._measured.num_prompts * shape.output_len
        if done.output_tokens != due:
            raise ChildError(f"{child.name} made {done.output_tokens} tokens; {due} were asked for")
        return done.tokens_per_s

    def _question(self, shape: Shape, number: int, few: int | None = None) -> dict[str, Any]:
        """The same prompts for everybody, others in every round."""
        rng = np.random.default_rng((number + 1, shape.input_len))
        size = (few or self._measured.num_prompts, shape.input_len)
        prompts = rng.integers(3, self._vocabulary, size=size)  # below 3 are special
        return {"prompts": prompts.tolist(), "output_len": shape.output_len}


def tell(line: str) -> None:
    """What goes on."""
    print(line, file=sys.stderr)


def report(measured: Measured) -> str:
    """A table of rates, one of ratios, and what vLLM's settings did when they were tried."""
    timed = [turn for turn in measured.turns if turn.round != TRIAL]
    if not timed:
        return "nothing was measured"
    foreign = median(turn.foreign_cores for turn in timed)
    return "\n\n".join(
        [
            f"Output tokens/s, bfloat16, {measured.num_prompts} prompts, medians of {measured.rounds} rounds. "
            f"Other programs kept {foreign:.2f} cores busy.",
            _rates(timed),
            "Ratios of rates, paired by round:",
            _ratios(timed),
            "vLLM's settings, tried once each:",
            _rates([turn for turn in measured.turns if turn.round == TRIAL]),
        ]
    )


def _rates(turns: Sequence[Turn]) -> str:
    rows = []
    for (model, shape), contenders in _cells(turns).items():
        for contender, those in contenders.items():
            rate = median(one.tokens_per_s for one in those)
            own, foreign = median(one.own_cores for one in those), median(one.foreign_cores for one in those)
            rows.append([model, str(shape), contender, f"{rate:,.0f}", f"{own:.2f}", f"{foreign:.2f}"])
    return markdown(("model", "in/out", "engine", "tokens/s", "cores used", "by others"), rows)


def _ratios(turns: Sequence[Turn]) -> str:
    rows = [
        [model, str(shape), f"{ours} / {peer}", ratio(_compared(contenders[peer], contenders[ours]))]
        for (model, shape), contenders in _cells(turns).items()
        for ours in contenders
        for peer in contenders
        if ours in OURS and peer not in OURS
    ]
    return markdown(("model", "in/out", "engines", "ratio"), rows)


def _cells(turns: Sequence[Turn]) -> dict[tuple[str, Shape], dict[str, list[Turn]]]:
    """By model and shape, and there by contender, in order of round."""
    cells: dict[tuple[str, Shape], dict[str, list[Turn]]] = {}
    for turn in sorted(turns, key=lambda turn: turn.round):
        cells.setdefault((turn.model, turn.shape), {}).setdefault(turn.contender, []).append(turn)
    return cells


def _compared(peer: Sequence[Turn], ours: Sequence[Turn]) -> Finding:
    pairs = min(len(peer), len(ours))  # an interrupted round may lack one
    rates = ([turn.tokens_per_s for turn in those[:pairs]] for those in (peer, ours))
    return judge(*rates, higher_is_better=True)


if __name__ == "__main__":
    main()
