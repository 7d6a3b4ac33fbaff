"""Measures output tokens/s of serbench, vLLM at its best and the transformers library, interleaved in one run.

It does not know how each completes prompts (…_llm.py). All get the same weights and the same prompts; everything is
loaded once, and stopped while another's turn lasts. docs/peers.md tells what is compared with what.

    SERBENCH_PEERS=… python -m benchmarks.peers.throughput [--quick]
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import msgspec
import numpy as np

from benchmarks.peers.children import Child, ChildError, Children, Command
from benchmarks.peers.contenders import (
    OURS,
    TRANSFORMERS,
    VLLM,
    Serving,
    Start,
    chosen,
    kernels_warning,
    serving_of,
    without_kernels,
)
from benchmarks.peers.models import MODELS, vocabulary
from benchmarks.peers.peer_environment import vllm_versions
from benchmarks.peers.script import Script, json_option, measure_and_tell, quick_option
from benchmarks.peers.tables import markdown, ratio
from serbench.cli import ranges
from serbench.cli.comma_separated import Names
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


class Shapes(click.ParamType["tuple[Shape, ...]"]):
    """Shapes with commas in between, none twice."""

    name = "IN/OUT,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Shape, ...]:
        """The shapes in the order given, or a usage error."""
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self._one(text, param, ctx) for text in Names().convert(value, param, ctx)))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Shape:
        lengths = text.split("/")
        if len(lengths) != 2:
            self.fail(f"{text!r} is no shape; write prompt length / output length, as in {SHAPES[0]}", param, ctx)
        return Shape(*(ranges.TOKENS.convert(one, param, ctx) for one in lengths))


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
    """Everything that was measured, ``serbench/peers-throughput/2``: vLLM's trials, and complete rounds.

    ``environment`` has the versions of serbench, torch and transformers, ``vllm_environment`` those of vLLM's own.
    ``without_kernels``: why serbench ran without its C++ kernels, empty if it had them. ``settings``: by model and
    contender, how its process was started.
    """

    schema: str = "serbench/peers-throughput/2"
    environment: Environment
    vllm_environment: dict[str, str | None]
    without_kernels: str
    num_prompts: int
    rounds: int
    settings: dict[str, dict[str, Command]]
    turns: list[Turn]


@click.command(cls=Script)
@click.option("--models", type=Names(), default=",".join(MODELS), show_default=True)
@click.option("--shapes", type=Shapes(), default=",".join(SHAPES), show_default=True, help="Prompt / output length.")
@click.option("--num-prompts", type=ranges.REQUESTS, default=64, show_default=True)
@click.option("--rounds", type=ranges.PASSES, default=4, show_default=True, help="Timed passes; intervals need 4.")
@click.option("--vllm", "settings", default=",".join(VLLM), show_default=True, help="Tried; the best takes part.")
@click.option("--no-transformers", is_flag=True)
@quick_option("OPT-125m and 128/64 only.", models=MODELS[0], shapes=SHAPES[0])
@json_option
def main(
    models: tuple[str, ...],
    shapes: tuple[Shape, ...],
    num_prompts: int,
    rounds: int,
    settings: str,
    no_transformers: bool,
    path: Path | None,
) -> None:
    """Compare throughput with vLLM's and the transformers library's."""
    named = chosen("model", dict.fromkeys(MODELS), models)
    tried = chosen("engine", VLLM, filter(None, map(str.strip, settings.split(","))))
    fixed = {**OURS, **({} if no_transformers else TRANSFORMERS)}
    longest = max(shape.input_len + max(shape.output_len, WARM_UP_LEN) for shape in shapes)
    servings = {model: serving_of(model, longest, num_prompts) for model in named}
    measured = Measured(
        environment=describe_environment(),
        vllm_environment=vllm_versions() if tried else {},
        without_kernels=without_kernels(named),
        num_prompts=num_prompts,
        rounds=rounds,
        settings={},
        turns=[],
    )

    def measure_all() -> None:
        for model, serving in servings.items():
            measure(measured, model, serving, shapes, tried, fixed)

    measure_and_tell(
        measure_all,
        lambda: report(measured),
        lambda: msgspec.json.format(msgspec.json.encode(measured)) + b"\n",
        path,
        kernels_warning(measured.without_kernels),
    )


def measure(
    measured: Measured,
    model: str,
    serving: Serving,
    shapes: Sequence[Shape],
    tried: Mapping[str, Start],
    fixed: Mapping[str, Start],
) -> None:
    """All shapes of a model: vLLM's settings are tried once each, then the best takes turns with the others.

    Raises:
        ChildError: one failed; ``measured`` has the rounds that were complete by then.
    """
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
        command = start(self._serving)
        self._measured.settings.setdefault(self._model, {})[name] = command
        child = self._children.start(name, command)
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
                trial = self.turn(child, shape, TRIAL)
                self._measured.turns.append(trial)
                best[shape] = max(best.get(shape, (0.0, child)), (trial.tokens_per_s, child), key=lambda one: one[0])
            for one in (*before, child):
                if one not in [leader for _, leader in best.values()]:
                    one.close()
        return {shape: child for shape, (_, child) in best.items()}

    def rounds(self, children: Sequence[Child], shape: Shape) -> None:
        """Everybody's turns at a shape, in balanced order."""
        for number, turns in enumerate(balanced_order(len(children), self._measured.rounds, seed=0)):
            tell(f"{self._model} {shape}: round {number + 1} of {self._measured.rounds}")
            # Only whole rounds are kept: in them everybody met the same machine.
            self._measured.turns.extend([self.turn(children[turn], shape, number) for turn in turns])

    def turn(self, child: Child, shape: Shape, number: int) -> Turn:
        """One timed pass.

        Raises:
            ChildError: it failed, or did not make all of its tokens.
        """
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
        due = self._measured.num_prompts * shape.output_len
        if done.output_tokens != due:
            raise ChildError(f"{child.name} made {done.output_tokens} tokens; {due} were asked for")
        return done

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
    tried = [turn for turn in measured.turns if turn.round == TRIAL]
    parts = []
    if timed:
        foreign = median(turn.foreign_cores for turn in timed)
        parts += [
            f"Output tokens/s, bfloat16, {measured.num_prompts} prompts, medians over the rounds. "
            f"Other programs kept {foreign:.2f} cores busy.",
            _rates(timed),
        ]
        if ratios := _ratios(timed):
            parts += ["Ratios of rates, paired by round:", markdown(("model", "in/out", "engines", "ratio"), ratios)]
    else:
        parts.append("no round was completed")
    if tried:
        parts += ["vLLM's settings, tried once each:", _rates(tried)]
    return "\n\n".join(parts)


def _rates(turns: Sequence[Turn]) -> str:
    rows = []
    for (model, shape), contenders in _cells(turns).items():
        for contender, those in contenders.items():
            rate = median(one.tokens_per_s for one in those)
            own, foreign = median(one.own_cores for one in those), median(one.foreign_cores for one in those)
            figures = (f"{rate:,.0f}", str(len(those)), f"{own:.2f}", f"{foreign:.2f}")
            rows.append([model, str(shape), contender, *figures])
    return markdown(("model", "in/out", "engine", "tokens/s", "rounds", "cores used", "by others"), rows)


def _ratios(turns: Sequence[Turn]) -> list[list[str]]:
    return [
        [model, str(shape), f"{ours} / {peer}", ratio(_compared(contenders[peer], contenders[ours]))]
        for (model, shape), contenders in _cells(turns).items()
        for ours in contenders
        for peer in contenders
        if ours in OURS and peer not in OURS
    ]


def _cells(turns: Sequence[Turn]) -> dict[tuple[str, Shape], dict[str, list[Turn]]]:
    """By model and shape, and there by contender, in order of round."""
    cells: dict[tuple[str, Shape], dict[str, list[Turn]]] = {}
    for turn in sorted(turns, key=lambda turn: turn.round):
        cells.setdefault((turn.model, turn.shape), {}).setdefault(turn.contender, []).append(turn)
    return cells


def _compared(peer: Sequence[Turn], ours: Sequence[Turn]) -> Finding:
    rates = ([turn.tokens_per_s for turn in those] for those in (peer, ours))
    return judge(*rates, higher_is_better=True)


if __name__ == "__main__":
    main()
