"""Tests the file of recorded plans: what is written is read, and nothing else is. They replay nothing."""

import io
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from serbench.errors import SerbenchError
from serbench.plans.checking import load_steps
from serbench.plans.layout import FIRST_BLOB, HEAD, HEAD_CHECK, About, RecordingError
from serbench.plans.reading import Recording, Step
from serbench.plans.writing import PlansWriter
from serbench.recorder import RecordedLink, recordable
from serbench_codecs.conformance.reference_worker import fingerprint
from serbench_codecs.plan import NO_ADMISSIONS, NO_ROWS, NO_WRITES, Logprobs, StepPlan, StepResult, Writes
from serbench_codecs.table import TableLimits
from tests.serbench.plans.recorded import EXPERIMENT, record

LIMITS = TableLimits(4, 32, 4, 64, 100)
ABOUT = About(
    serbench="1",
    created="2026-01-01T00:00:00+00:00",
    model="sim",
    fingerprint="sim",
    requests=1,
    input_tokens=1,
    output_tokens=1,
    outputs_digest="00",
    spec=recordable(EXPERIMENT),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "a.plans"
    record(path)
    return path


def written(*steps: tuple[StepPlan, StepResult], to: Path, limits: TableLimits = LIMITS) -> Path:
    buffer = io.BytesIO()
    writer = PlansWriter(buffer, limits)
    for plan, result in steps:
        writer.add(plan, result)
    assert writer.finish(ABOUT) == len(buffer.getvalue())
    to.write_bytes(buffer.getvalue())
    return to


def int32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def empty_plan(step: int, rows: list[int], blocks: Writes = NO_WRITES) -> StepPlan:
    ones = np.ones(len(rows), dtype=np.int32)
    return StepPlan(step, 0, NO_ROWS, NO_ADMISSIONS, blocks, NO_WRITES, int32(*rows), ones)


def test_every_plan_and_result_is_read_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []
    take = RecordedLink._take

    def watch(link: RecordedLink, payload: object) -> None:
        assert link._plan is not None
        seen.append((fingerprint(link._plan), payload.body.token_ids.tobytes()))  # type: ignore[attr-defined]
        take(link, payload)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordedLink, "_take", watch)
    recorded = record(tmp_path / "a.plans")
    recording = Recording(tmp_path / "a.plans")
    steps = load_steps(recording)
    assert recorded.num_steps == len(recording) == len(seen)
    assert recorded.num_bytes == recording.num_bytes == (tmp_path / "a.plans").stat().st_size
    assert [(fingerprint(one.plan), one.result.token_ids.tobytes()) for one in steps] == seen


def test_the_run_had_all_that_makes_plans_hard(file: Path) -> None:
    plans = [step.plan for step in load_steps(Recording(file))]
    admissions = sum(len(plan.admitted) for plan in plans)
    assert admissions > 12, "nobody was preempted"
    assert any(len(np.intersect1d(plan.freed, plan.admitted.rows)) for plan in plans), "no row was used again at once"
    assert any((plan.batch_counts > 1).any() and len(plan.tokens) for plan in plans), "no prefill beside a decode"


def test_about_says_what_ran(file: Path) -> None:
    about = Recording(file).about
    assert (about.model, about.requests) == ("sim", 12)
    assert about.input_tokens > 12 * 5
    assert about.output_tokens > 12 * 2
    assert about.spec.codec == "none"


def test_a_batch_that_stays_is_the_same_object_and_stored_once(tmp_path: Path) -> None:
    results = [(empty_plan(i, [0, 1, 2]), StepResult(i, 0, int32(i, i, i))) for i in range(50)]
    recording = Recording(written(*results, to=tmp_path / "a.plans"))
    first, second = recording.step(0).plan, recording.step(1).plan
    assert second.batch_rows is first.batch_rows
    assert second.batch_counts is first.batch_counts
    assert recording.num_bytes < 50 * 200 + 1500


def test_nothing_that_is_read_can_be_written_to(file: Path) -> None:
    plan = Recording(file).step(0).plan
    with pytest.raises(ValueError, match="read-only"):
        plan.batch_rows[0] = 1


def test_log_probabilities_are_kept(tmp_path: Path) -> None:
    logprobs = Logprobs(int32(2, 0), int32(7, 8), np.array([-0.5, -1.5], dtype=np.float32), int32(1, 2))
    path = written((empty_plan(0, [0, 1]), StepResult(0, 0, int32(7, 9), logprobs)), to=tmp_path / "a.plans")
    read = Recording(path).step(0).result.logprobs
    assert read is not None
    assert read.counts.tolist() == [2, 0]
    assert read.values.tolist() == [-0.5, -1.5]


# --- files that are none --------------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    """The one line with which a file is refused, when it is opened or when its steps are loaded."""
    with pytest.raises(RecordingError) as raised:
        load_steps(Recording(path))
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"{}", "does not begin with serplans"),
        (b"\x80\x04cos\nsystem\n", "does not begin with serplans"),
        (b"serplans", "version 0"),
        (b"serplans" + (2).to_bytes(4, "little") + bytes(200), "version 2; this serbench reads version 1"),
        (b"serplans" + (1).to_bytes(4, "little"), "is truncated: 12 bytes"),
        (b"serplans" + (1).to_bytes(4, "little") + bytes(200), "garbled: its head"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.plans"
    path.write_bytes(content)
    assert words in refusal(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.plans")
    assert "can't be read" in refusal(tmp_path)


def test_a_truncated_file_is_refused_wherever_it_ends(file: Path, tmp_path: Path) -> None:
    data, path = file.read_bytes(), tmp_path / "a.plans"
    for end in [*range(0, FIRST_BLOB + 40, 7), *range(FIRST_BLOB + 40, len(data), len(data) // 30), len(data) - 1]:
        path.write_bytes(data[:end])
        refusal(path)


def test_a_garbled_file_is_refused_wherever_it_is_garbled(file: Path, tmp_path: Path) -> None:
    data, path = file.read_bytes(), tmp_path / "a.plans"
    rng = random.Random(0)
    unread = refused = 0
    for _ in range(150):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            load_steps(Recording(path))
            unread += 1  # between two columns, or after the head
            assert data[at] == 0
        except RecordingError:
            refused += 1
    assert refused > 10 * unread


def with_head(data: bytes, **changes: int) -> bytes:
    """The file with other numbers in a head that fits its checksum."""
    names = ("magic", "version", "columns", "steps", "blobs", "blobs_at", "steps_at", "about_at")
    limits = ("rows", "length", "block", "blocks", "vocab", "check")
    parts = dict(zip((*names, *limits), HEAD.unpack(data[: HEAD.size]), strict=True)) | changes
    head = HEAD.pack(*parts.values())
    return head + HEAD_CHECK.pack(zlib.crc32(head)) + data[HEAD.size + HEAD_CHECK.size :]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 1 << 60}, "do not hold"),
        ({"blobs": 1 << 61}, "do not hold"),
        ({"about_at": (1 << 64) - 1}, "do not hold"),
        ({"blobs_at": 0}, "do not hold"),
        ({"rows": 0}, "no limits of a run"),
        ({"rows": (1 << 32) - 1, "length": (1 << 32) - 1}, "no limits of a run"),
        ({"columns": 3}, "3 columns"),
        ({"rows": 1}, "step"),
        ({"vocab": 2}, "step"),
    ],
)
def test_a_head_that_lies_is_refused(file: Path, tmp_path: Path, changes: dict[str, int], words: str) -> None:
    path = tmp_path / "a.plans"
    path.write_bytes(with_head(file.read_bytes(), **changes))
    assert words in refusal(path)


def test_a_blob_outside_of_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    blobs_at = HEAD.unpack(data[: HEAD.size])[5]
    for at, size in ((1 << 63, 8), (blobs_at, 8), (FIRST_BLOB, (1 << 32) - 1), (0, 4)):
        garbled = bytearray(data)
        struct.pack_into("<QI", garbled, blobs_at + 16, at, size)
        path = tmp_path / "a.plans"
        path.write_bytes(with_head(bytes(garbled), check=zlib.crc32(garbled[blobs_at:])))
        assert "lies outside the file" in refusal(path)


@pytest.mark.parametrize(
    ("plan", "ids", "words"),
    [
        (empty_plan(0, [0]), (1,), "batch row 0 is empty"),
        (empty_plan(0, [9]), (1,), "batch rows: 9 is outside 0 … 3"),
        (empty_plan(0, [1, 1]), (), "row 1 appears more than once"),
        (empty_plan(3, [0]), (1,), "it is number 3 of epoch 0, where 0 of epoch 0 is due"),
        (empty_plan(0, [], Writes(int32(0), int32(31), int32(1), int32(1))), (), "blocks"),
        (empty_plan(0, []), (1, 2), "2 ids were sampled for 0 rows"),
    ],
)
def test_plans_that_no_run_could_have_made_are_refused(
    tmp_path: Path, plan: StepPlan, ids: tuple[int, ...], words: str
) -> None:
    path = written((plan, StepResult(plan.step, 0, int32(*ids))), to=tmp_path / "a.plans")
    line = refusal(path)
    assert words in line
    assert "step 0" in line


def sampled_others(step: Step) -> Step:
    """Had every id been sampled as the next one."""
    return replace(step, result=replace(step.result, token_ids=step.result.token_ids + 1))


def told_nothing(step: Step) -> Step:
    return replace(step, plan=replace(step.plan, tokens=NO_WRITES))


def told_at_another_place(step: Step) -> Step:
    tokens = step.plan.tokens
    return replace(step, plan=replace(step.plan, tokens=replace(tokens, starts=tokens.starts + 1)))


def with_a_gap_in_blocks(step: Step) -> Step:
    blocks = step.plan.blocks
    return replace(step, plan=replace(step.plan, blocks=replace(blocks, starts=blocks.starts + 1)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (sampled_others, "the ids that it tells are not those that were sampled before it"),
        (told_nothing, "the ids that it tells are not those that were sampled before it"),
        (told_at_another_place, "the ids that it tells are not those that were sampled before it"),
        (with_a_gap_in_blocks, "its new blocks do not follow those that the rows have"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    file: Path, tmp_path: Path, change: Callable[[Step], Step], words: str
) -> None:
    recording = Recording(file)
    steps = load_steps(recording)
    at = next(i for i, step in enumerate(steps) if len(step.plan.tokens) and len(step.plan.blocks))
    steps[at] = change(steps[at])
    pairs = [(step.plan, step.result) for step in steps]
    path = written(*pairs, to=tmp_path / "a.plans", limits=recording.limits)
    assert f"the file contradicts itself: {words}" in refusal(path)


def test_a_recording_of_nothing_can_t_be_replayed(tmp_path: Path) -> None:
    assert "no steps" in refusal(written(to=tmp_path / "a.plans"))


def test_a_recording_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "a.plans"
    kept.write_bytes(b"before")
    monkeypatch.setattr(PlansWriter, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        record(kept)
    assert [path.name for path in tmp_path.iterdir()] == ["a.plans"]
    assert kept.read_bytes() == b"before"


def test_a_folder_is_refused_before_anything_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlansWriter, "add", lambda *_: pytest.fail("recorded for nothing"))
    with pytest.raises(RecordingError, match="is a folder; --output names the file"):
        record(tmp_path)


def test_a_place_that_can_t_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SerbenchError, match="can't be written"):
        record(tmp_path / "file" / "a.plans")
