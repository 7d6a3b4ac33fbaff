"""Every listed codec passes the kit; what it remembers of the batch stays the same object."""

import pytest

from serbench_codecs.conformance import LARGE, check_conversations, check_faults, run_conversation
from serbench_codecs.registry import get_codec
from tests.codecs.variants import SPECS, played, steady_decode


@pytest.mark.parametrize("spec", SPECS)
def test_tables_stay_equal(spec: str) -> None:
    check_conversations(get_codec(spec), max_examples=25)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", LARGE)
def test_tables_stay_equal_where_numbers_are_large(name: str, spec: str) -> None:
    run_conversation(get_codec(spec), LARGE[name]())


@pytest.mark.parametrize("spec", SPECS)
def test_faulty_payloads_do_no_harm(spec: str) -> None:
    check_faults(get_codec(spec))


@pytest.mark.parametrize("spec", SPECS)
def test_an_unchanged_batch_is_the_same_object(spec: str) -> None:
    # Tables and runners take identity for equality, and skip checks and copies.
    steps = played(get_codec(spec), steady_decode(16, 40))
    first = steps[2].got
    for step in steps[3:]:
        assert step.got.batch_rows is first.batch_rows
        assert step.got.batch_counts is first.batch_counts


@pytest.mark.parametrize("spec", SPECS)
def test_a_steady_step_gives_a_worker_no_more_than_the_news(spec: str) -> None:
    # Also where whole states travel: one new id a request, blocks for some, nothing admitted.
    travel = get_codec(spec).traits.sampled_ids_travel
    for step in played(get_codec(spec), steady_decode(16, 40))[1:]:
        assert len(step.got.admitted) == 0
        assert step.got.blocks.values.tolist() == step.plan.blocks.values.tolist()
        assert len(step.got.blocks) == 1
        assert len(step.got.tokens.values) == (16 if travel else 0)
