"""Findings of a few rules on programs of a few events, their figures by hand; of data that rules need, that it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from advice.story import PAGEABLE, US, Story
from bridge.analyze.checks.advice import Advice, Finding


def judged(story: Story, name: str, folder: Path) -> Advice:
    return story.load(folder).advise([name], 0)


def found(story: Story, name: str, folder: Path) -> Finding:
    [one] = judged(story, name, folder).advice
    return one.finding


@pytest.mark.parametrize("waits", [True, False])
def test_what_the_run_waits_for_is_on_its_critical_path(waits, tmp_path):
    """Three times a rest of 300 µs, which the GPU waits for, or which it works through: then nothing is saved."""
    story = Story()
    for _ in range(3):
        story.kernel(us=100 if waits else 400)
        with story.op("log"):
            story.rest(298)
        story.rest(1)  # what is between an op and a launch belongs to the launch
    story.kernel(us=100)
    advised = judged(story, "host-bound", tmp_path)
    if not waits:
        assert not advised.advice
        return
    [one] = advised.advice
    # The first kernel begins after 2; each time 300 of the op, 1 and 2 of launch, of which 100 beside a kernel.
    assert one.finding.figures == {
        "what": "log",
        "host_ns": 3 * 300 * US,
        "path_ns": 3 * 300 * US,
        "path_share": 900 / (2 + 3 * 303 + 100),
    }
    assert one.finding.ceiling_ns == 3 * (303 - 100) * US
    assert (
        one.finding.saving_ns == 3 * (303 - 100) * US
    )  # a tenth of the rest is done beside kernels


def spread(gpus: int) -> Story:
    """Four kernels of 10 µs, each 52 after the one before, in turn on some GPUs of two."""
    story = Story(gpus=2)
    with story.op("DataParallel.forward"):
        for number in range(4):
            story.device, story.done = number % gpus, 0
            story.kernel(us=10)
            story.rest(50)
    return story


def test_data_parallel_on_two_gpus_is_told_without_an_estimate(tmp_path):
    finding = found(spread(2), "data-parallel", tmp_path)
    assert finding.figures == {"calls": 1, "gpus": 2}
    assert finding.evidence["total_ns"].tolist() == [(1 + 4 * 52 + 1) * US]
    assert (finding.ceiling_ns, finding.saving_ns) == (-1, -1)


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
