"""The table of a prediction, with what it assumes, for a terminal of 80 columns. It does not know how it came about."""

from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from serbench.predict import Allowed, ModelTime, Prediction
from serbench.report.comparison_table import RATIO_NOTE, STYLES, interval
from serbench.report.figures import figure, seconds, share, times
from serbench.report.folding_table import FoldingTable


def prediction_report(prediction: Prediction) -> RenderableType:
    """The table, below it what it rests on."""
    lines = [Text.assemble(("assuming: ", "dim"), line) for line in prediction.assumptions]
    if any(row.against_first for row in prediction.rows):
        lines = [Text(RATIO_NOTE, "dim"), Text(), *lines]
    lines += [Text(f"warning: {line}", "yellow") for line in prediction.warnings]
    return Group(
        Padding(Text.assemble(("throughput that host times allow\n", "bold"), prediction.source), (1, 0, 1, 1)),
        prediction_table(prediction),
        *(Padding(line, (0, 0, 0, 1)) for line in (Text(), *lines, Text())),
    )


def prediction_table(prediction: Prediction) -> Table:
    """A block for each model, a line for each codec."""
    table = FoldingTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    table.add_column("model", no_wrap=True)
    table.add_column("codec", overflow="fold")
    for name in ("host µs\na step", "host's\nshare", "output\ntokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("against the first", justify="left")
    last: ModelTime | None = None
    for row in prediction.rows:
        if row.model != last and last is not None:
            table.add_section()
        table.add_row(
            "" if row.model == last else _model(row.model),
            row.label,
            figure(row.host_us),
            share(row.host_share, 1.0),
            figure(median(row.output_tokens_per_s)),
            _against(row),
        )
        last = row.model
    return table


def _model(model: ModelTime) -> str:
    text = seconds(model.step_us / 1e6)
    return f"{text}\n+ {seconds(model.token_us / 1e6)}/token" if model.token_us else text


def _against(row: Allowed) -> Text:
    finding = row.against_first
    if finding is None:
        return Text()
    text = Text(f"×{times(finding.ratio)} {interval(finding)} ")
    return text.append(finding.verdict, STYLES.get(finding.verdict, ""))
