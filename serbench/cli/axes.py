"""Turns run's options into axes: each takes values with commas in between, or a list in a TOML file.

It does not know what is done with the grid that they span.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from serbench.cli.options import Choices, SectionOption, experiments_of
from serbench.cli.run import command as run_command
from serbench.errors import ExperimentError

if TYPE_CHECKING:
    from serbench.experiment import Experiment
    from serbench.sweep.grid import Axis

Command = TypeVar("Command", bound=Callable[..., Any])

SINGLE: Final = frozenset(
    {"repeats", "warmup", "seed", "step_timeout", "kv_memory", "prompt", "output", "json", "quiet"}
)
"""Options of run that hold for the whole sweep: how it is measured and shown."""

LEFT_OUT: Final = frozenset({"trace", "prompt", "chat"})
"""Options of run that a sweep has not: what they are for is looked at run by run."""


class Several(click.ParamType["tuple[Any, ...]"]):
    """One or more values of another type, with commas in between."""

    def __init__(self, one: click.ParamType[Any]) -> None:
        self.one = one
        self.name = f"{one.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """The values in the order given, or a usage error."""
        if isinstance(value, tuple):
            return value
        parts = value if isinstance(value, list) else [part.strip() for part in str(value).split(",")]
        if not parts or not all(str(part) for part in parts):
            self.fail(f"{value!r} has an empty value; write one, or several with commas in between", param, ctx)
        return tuple(self.one.convert(part if isinstance(part, bool) else str(part), param, ctx) for part in parts)


def axis_options(command: Command) -> Command:
    """Add all options of `serbench run` that mean something here."""
    for param in reversed(run_command.params):
        if param.name not in LEFT_OUT and isinstance(param, SectionOption):
            command = _option(param)(command)
    return command


def _option(param: SectionOption) -> Callable[[Command], Command]:
    assert param.name is not None, "every option has one"
    same: dict[str, Any] = {
        "cls": SectionOption,
        "section": param.section,
        "help": param.help,
        "default": param.default,
    }
    if param.is_flag:
        return click.option(*param.opts, is_flag=True, **same)
    if param.name in SINGLE:
        return click.option(*param.opts, type=param.type, metavar=param.metavar, **same)
    return click.option(*param.opts, type=Several(param.type), metavar=f"{_one(param)},...", **same)


def _one(param: click.Option) -> str:
    """How the help page writes one value."""
    if isinstance(param.type, click.Choice):
        return f"[{'|'.join(map(str, param.type.choices))}]"
    return param.metavar or param.type.name


def chosen(ctx: click.Context, options: Mapping[str, Any], grid: str | None) -> dict[str, Any]:
    """The options, with those of the TOML file ``grid`` where the command line does not give them.

    Axes and flags have a tuple of values, other options their value.

    Raises:
        ExperimentError: the file can't be read, or has something that is no option. UsageError: a value that can't be.
    """
    values = {
        name: value if name in SINGLE or isinstance(value, tuple) else (value,) for name, value in options.items()
    }
    for name, value in (_read(grid) if grid is not None else {}).items():
        param = _param_named(ctx, name, str(grid))
        assert param.name is not None, "every option has one"
        if ctx.get_parameter_source(param.name) is not ParameterSource.COMMANDLINE:
            values[param.name] = _converted(ctx, param, value)
    return values


def _read(grid: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(grid).read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"--grid {grid} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"--grid {grid} is no TOML: {error}") from error
    except RecursionError:
        raise ExperimentError(f"--grid {grid} is no TOML: it is nested too deeply") from None


def _param_named(ctx: click.Context, name: str, grid: str) -> click.Option:
    params = {
        param.name: param
        for param in ctx.command.params
        if isinstance(param, SectionOption) and param.name not in ("grid", None)
    }
    if name.replace("-", "_") not in params:
        there = [str(known).replace("_", "-") for known in params]
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"
        raise ExperimentError(f"--grid {grid}: there is no option {name!r}; {hint}")
    return params[name.replace("-", "_")]


def _converted(ctx: click.Context, param: click.Option, value: Any) -> Any:
    if isinstance(value, dict):
        raise ExperimentError(f"--grid: {param.name} is a table; give it one value, or a list of them")
    if param.is_flag:
        flags = value if isinstance(value, list) else [value]
        return tuple(bool(param.type.convert(flag, param, ctx)) for flag in flags)
    if isinstance(param.type, Several):
        return param.type.convert(value if isinstance(value, list) else [value], param, ctx)
    if isinstance(value, list):
        raise ExperimentError(f"--grid: {param.name} holds for the whole sweep, so it has one value, not a list")
    return param.type.convert(str(value), param, ctx)


def axes_of(values: Mapping[str, Any]) -> "list[Axis]":
    """The options that take several values, in the order of the help page, and the codec.

    Those that ratios are about come last, so that what is compared stands together.
    """
    from serbench.sweep.grid import COMPARED, Axis

    axes = [
        Axis(name, value)
        for name, value in values.items()
        if isinstance(value, tuple) and (len(value) > 1 or name == "codec")
    ]
    return sorted(axes, key=lambda axis: -COMPARED.index(axis.name) if axis.name in COMPARED else -len(COMPARED))


def experiment_maker(values: Mapping[str, Any]) -> "Callable[[Mapping[str, Any]], Experiment]":
    """What makes an experiment of a point's values, with all other options as chosen."""
    fields = set(Choices.__struct_fields__)
    fixed = {name: value[0] if isinstance(value, tuple) else value for name, value in values.items()}

    def make(point: Mapping[str, Any]) -> "Experiment":
        one = {"prompt": (), "chat": False, **fixed, **point}
        choices = Choices(**{name: value for name, value in one.items() if name in fields})
        return experiments_of(choices, [one["codec"]])[0]

    return make
