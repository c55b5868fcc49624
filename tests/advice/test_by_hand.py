"""Findings of a few rules on programs of a few events, their figures by hand; of data that rules need, that it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from advice.story import PAGEABLE, US, Story
from bridge.analyze.checks.advice import Advice, Finding

BATCHES = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def judged(story: Story, name: str, folder: Path) -> Advice:
    return story.load(folder).advise([name], 0)


def found(story: Story, name: str, folder: Path) -> Finding:
    [one] = judged(story, name, folder).advice
    return one.finding


def loading() -> Story:
    """Three times 500 µs of loading, with the first of which the run begins, then a kernel of 200.

    A kernel starts 3 µs after its op, which ends with the next µs: the GPU works on for 199 µs of what is loaded next.
    """
    story = Story()
    for _ in range(3):
        with story.op(BATCHES):
            story.rest(498)
        with story.op("train"):
            story.kernel(us=200)
    return story


def test_loading_without_workers_keeps_a_gpu_idle_but_while_it_still_works(tmp_path):
    """The three ranges train are the iterations: each lasts 3 µs, and 200 more with its kernel."""
    advised = loading().load(tmp_path).advise(["data-loading", "single-process-loader"], 0)
    by_name = {one.rule.name: one.finding for one in advised.advice}
    waits, alone = by_name["data-loading"], by_name["single-process-loader"]
    idle, span = 2 * (500 - 199) * US, (2 * (500 + 4) + 200) * US
    assert waits.figures == {
        "loading_ns": 3 * 500 * US,
        "idle_ns": idle,
        "idle_share": idle / span,
        "steps_share": idle / (3 * 203 * US + idle),
    }
    assert alone.figures == {"batches": 3, "loading_ns": 3 * 500 * US}
    for finding in (waits, alone):
        assert (finding.ceiling_ns, finding.saving_ns) == (3 * 500 * US, idle)


def test_a_gap_longer_than_a_twentieth_of_the_run_is_told(tmp_path):
    """1000 µs of 1200, the 2 of the call that ends it among them; 50 are a gap too, but no long one."""
    story = Story()
    story.kernel(us=50)
    story.rest(50 + 48)
    story.kernel(us=50)
    story.now = story.done
    story.rest(998)
    story.kernel(us=50)
    finding = found(story, "long-gaps", tmp_path)
    assert finding.figures["gaps"] == 1
    assert finding.figures["limit_ns"] == 60 * US
    assert finding.figures["longest_ns"] == finding.ceiling_ns == 1_000 * US


def spread(gpus: int) -> Story:
    """Four kernels of 10 µs, each 52 after the one before, in turn on some GPUs of two."""
    story = Story(gpus=2)
    with story.op("DataParallel.forward"):
        for number in range(4):
            story.device, story.done = number % gpus, 0
            story.kernel(us=10)
            story.rest(50)
    return story


def test_data_parallel_on_two_gpus_leaves_each_idle_while_the_other_is_fed(tmp_path):
    finding = found(spread(2), "data-parallel", tmp_path)
    assert finding.figures == {"calls": 1, "gpus": 2}
    run, busy = (1 + 4 * 52 + 1) * US, 2 * 10 * US
    assert finding.ceiling_ns == run - busy


def test_data_parallel_on_one_gpu_is_no_finding(tmp_path):
    assert not judged(spread(1), "data-parallel", tmp_path).advice


@pytest.mark.parametrize("known", [True, False])
def test_copies_are_judged_where_their_memory_is_known_and_only_there(known, tmp_path):
    story = Story()
    story.copy(100, host=PAGEABLE)
    if not known:
        story.tables["copies"][0] |= {"source_kind": None, "target_kind": None}
    advised = judged(story, "pageable-memcpys", tmp_path)
    missing = [one.missing for one in advised.not_judged]
    assert (len(advised.advice), missing) == (
        (1, []) if known else (0, ["kinds of the memory copied"])
    )
