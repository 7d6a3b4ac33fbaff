"""Tests that reports fit a narrow terminal, a pipe and NO_COLOR, and say what they must. They do not measure."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from serbench.comparison import compare_runs
from serbench.report.answers import answers_report
from serbench.report.comparison_table import comparison_report, table_notes
from serbench.report.console import tell
from serbench.report.figures import counted, figure, seconds, share, times
from serbench.report.heading import steps_words
from serbench.report.progress import TerminalProgress
from serbench.report.run_tables import run_report
from serbench.results import MODEL_PHASES, BatchSizes, Latencies, Run, WeightsInfo
from serbench.workload.spec import Dataset
from tests.serbench.mocks import Bench, prepared


def shown(what: RenderableType, width: int = 80, terminal: bool = False) -> str:
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=terminal, highlight=False).print(what)
    return file.getvalue()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    things = prepared(["pickle", "pickle:ids=packed", "delta"])
    return Bench(
        things, tmp_path_factory.mktemp("runs"), lambda one: 123456.0 if one.codec == "delta" else 345678.0
    ).run()


def test_a_run_says_what_ran_and_what_it_cost(runs: list[Run]) -> None:
    page = shown(run_report(runs[2]))
    for words in (
        "sim  simulated: a step takes 0 ms",
        "codec delta",
        "3 random prompts",
        "5 repeats, 1 to warm up",
        "output tokens/s",
        "first token (ttft)",
        "forward",
        "50.0%",
        "CPU seconds a repeat: 1 scheduler, 0.500 workers",
        "0 preemptions a repeat",
    ):
        assert words in page


def test_one_of_a_thing_is_no_plural(runs: list[Run]) -> None:
    repeats = [msgspec.structs.replace(one, steps=1, preemptions=1, input_tokens=1) for one in runs[2].repeats[:1]]
    page = shown(run_report(msgspec.structs.replace(runs[2], repeats=repeats)))
    for words in ("1 step of 1 request on average and 1 preemption a repeat", "1 token in,", "1 repeat,"):
        assert words in page


def test_a_run_says_what_its_columns_are_taken_of(runs: list[Run]) -> None:
    page = " ".join(shown(run_report(runs[2])).split())
    for words in (
        "mean, share: over all steps of all repeats. p50, p99: over each repeat's steps, then the median",
        "mean µs p50 µs p99 µs share",
        "The mean holds admissions with their whole prompts; the p50 is the median step, "
        "a steady decode step unless most steps carry prompts.",
        "Over each repeat's requests, then the median over the repeats.",
    ):
        assert words in page


def test_a_run_says_its_limits_and_what_the_prefix_cache_saved(runs: list[Run]) -> None:
    assert "up to 256 requests, 2,048 tokens a step; blocks of 16; no prefix cache" in shown(run_report(runs[2]))
    cached = msgspec.structs.replace(
        runs[2],
        spec=msgspec.structs.replace(runs[2].spec, enable_prefix_caching=True, num_blocks=4096),
        repeats=[msgspec.structs.replace(one, cached_tokens=1600) for one in runs[2].repeats],
    )
    again = msgspec.structs.replace(cached, id="again")
    for report in (run_report(cached), comparison_report(compare_runs([cached, again]), [cached, again])):
        page = " ".join(shown(report).split())
        assert "4,096 blocks of 16; prefix cache on, 1,600 tokens found in it a repeat" in page


def stepping(run: Run, steps: int, batch: float | None) -> Run:
    sizes = None if batch is None else BatchSizes(batch, 9, batch)
    repeats = [msgspec.structs.replace(one, steps=steps, batch_sizes=sizes) for one in run.repeats]
    return msgspec.structs.replace(run, repeats=repeats)


def test_runs_say_how_many_requests_really_ran_in_a_step(runs: list[Run]) -> None:
    two = [stepping(runs[0], 132, 62.4), stepping(runs[1], 132, 62.4)]
    assert "132 steps of 62.4 requests on average a repeat" in shown(comparison_report(compare_runs(two), two))
    assert "132 steps of 62.4 requests on average and 0 preemptions a repeat" in shown(run_report(two[0]))
    assert steps_words([two[0], stepping(runs[1], 140, 60)]) == "132 to 140 steps of 60 to 62.4 requests on average"
    assert steps_words([stepping(runs[0], 7, None)]) == "7 steps"


def test_a_heading_says_how_many_requests_of_a_file_ran_and_how_long_a_simulated_step_takes(runs: list[Run]) -> None:
    spec = msgspec.structs.replace(
        runs[0].spec, model="sim:step=2ms:token=1us", workload=Dataset(path="a.jsonl", format="jsonl", num_prompts=9)
    )
    page = shown(run_report(msgspec.structs.replace(runs[0], spec=spec)))
    assert "3 requests of a.jsonl (jsonl): " in page
    assert "simulated: a step takes 2 ms and 1 µs a token" in page


def test_weights_that_were_made_here_are_said(runs: list[Run]) -> None:
    weights = WeightsInfo("safetensors", "x", "dequantized from a Q4_1 file")
    assert "weights dequantized from a Q4_1 file" in shown(
        run_report(msgspec.structs.replace(runs[2], weights=weights))
    )


def test_every_repeat_s_figure_is_shown(runs: list[Run]) -> None:
    page = shown(run_report(runs[2]))
    for repeat in runs[2].repeats:
        assert figure(repeat.output_tokens_per_s) in page


def test_a_run_without_tokens_has_no_latency(runs: list[Run]) -> None:
    repeats = [msgspec.structs.replace(one, latency_s=Latencies(None, None, None)) for one in runs[2].repeats]
    assert "ttft" not in shown(run_report(msgspec.structs.replace(runs[2], repeats=repeats)))


def test_a_comparison_has_ratio_interval_and_verdict(runs: list[Run]) -> None:
    page = shown(comparison_report(compare_runs(runs), runs))
    for words in (
        "5 repeats, 1 to warm up, interleaved",
        "transport shm, executor mp",
        "×2.80",
        "[2.80, 2.80]",
        "faster",
        "×0.36",
        "outputs equal",
        "100 plan",
        "10 result",
    ):
        assert words in page
    assert "no difference" in page


def test_a_comparison_says_what_its_ratios_and_bytes_are(runs: list[Run]) -> None:
    page = shown(comparison_report(compare_runs(runs), runs))
    assert "×: geometric mean over pairs of repeats, so not the quotient of what is shown" in page
    assert "bytes: means over all steps, admissions included; p50: the median step's plan" in page
    assert "100 p50" in page
    assert "packed int32" not in page, "no msgspec here"
    assert "packed int32, 2, 3 or 5 in pickle" in shown(table_notes(["pickle", "msgspec"]))


def test_a_comparison_does_not_say_what_was_not_found_out(runs: list[Run]) -> None:
    model = {name: phase for name, phase in runs[2].repeats[0].phases_us.items() if name in MODEL_PHASES}
    repeats = [msgspec.structs.replace(one, output_tokens=0, phases_us=model) for one in runs[2].repeats]
    silent = [msgspec.structs.replace(run, repeats=repeats) for run in runs[:2]]
    page = shown(comparison_report(compare_runs(silent), silent))
    assert "outputs equal" not in page
    assert page.count("outputs not") == 1
    assert page.count("not measured") == 2


@pytest.mark.parametrize("width", [80, 100, 160])
def test_reports_fit(runs: list[Run], width: int) -> None:
    for page in (run_report(runs[0]), comparison_report(compare_runs(runs), runs)):
        lines = shown(page, width).splitlines()
        assert max(len(line) for line in lines) <= width
        assert not any("…" in line for line in lines)


def test_a_terminal_gets_colours_and_a_pipe_none(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    page = comparison_report(compare_runs(runs), runs)
    assert "\x1b[32m" in shown(page, terminal=True)
    assert "\x1b" not in shown(page)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in shown(page, terminal=True)


def test_text_of_users_is_no_markup() -> None:
    page = shown(answers_report([("[bold]prompt[/bold]", "[red]answer", "stop"), ("b", "c", "length")]))
    assert "> [bold]prompt[/bold]" in page
    assert "[red]answer" in page
    assert "c [length]" in page


def test_lines_beside_the_results_are_never_broken() -> None:
    file = io.StringIO()
    tell(Console(file=file, width=20), "a line of [more] than twenty characters")
    assert file.getvalue() == "a line of [more] than twenty characters\n"


def test_progress_names_the_pass_and_draws_between_passes_only(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True)
    with TerminalProgress(console) as progress:
        progress.begin(2)
        progress.turn(runs[2].spec, -1)
        drawn = file.getvalue()
        assert "delta: warming up" in drawn
        progress.done()
        progress.turn(runs[2].spec, 0)
        assert "delta: repeat 1 of 5" in file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.1234, "0.123"),
        (1.234, "1.23"),
        (2, "2"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1,234"),
        (123456, "123,456"),
    ],
)
def test_figures(value: float, text: str) -> None:
    assert figure(value) == text


def test_units() -> None:
    assert [seconds(value) for value in (0.0000123, 0.0123, 12.3)] == ["12.3 µs", "12.3 ms", "12.3 s"]
    assert [times(value) for value in (0.956, 1.5, 12.34)] == ["0.96", "1.50", "12.3"]
    assert [share(1, 8), share(0, 0)] == ["12.5%", "–"]
    assert [counted(1, "prompt"), counted(2000, "prompt")] == ["1 prompt", "2,000 prompts"]
