"""Every rule fires where it must, is silent where it must be, and says what it lacks."""

from __future__ import annotations

from functools import cache
from string import Formatter

import pytest
from made_reports import Made

import bridge
from advice.rules import BATCHES, FIRES, QUIET, WORKERS, building, loading
from advice.story import US, Story
from bridge.analyze.checks.advice import RULES, Advice
from bridge.render.advice import sentence
from bridge.report import Report

NAMES = [rule.name for rule in RULES]


def of_rule(joined: Report, name: str) -> Advice | None:
    """Give what one rule says of a report that has all that it needs."""
    advised = joined.advise([name], 0)
    assert not advised.not_judged, advised.not_judged
    return next(iter(advised.advice), None)


@pytest.fixture(scope="module")
def fired(tmp_path_factory):
    """Give what a rule says of the program that it fires on, each loaded and judged once."""

    @cache
    def advice(name: str) -> Advice | None:
        return of_rule(FIRES[name]().load(tmp_path_factory.mktemp("fires")), name)

    return advice


def test_every_rule_is_told_of():
    assert set(FIRES) == set(QUIET) == set(BY_HAND) == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fires(name, fired):
    one = fired(name)
    assert one is not None
    finding = one.finding
    assert len(finding.evidence)
    assert finding.saving_ns <= finding.ceiling_ns or finding.ceiling_ns == -1 == finding.saving_ns
    assert one.share <= 1
    placeholders = {field for _, field, _, _ in Formatter().parse(one.rule.text) if field}
    assert placeholders
    assert placeholders <= set(finding.figures)
    assert not set(sentence(one)) & set("{}")


# What the remedy saves at most, and what it may be expected to save, of each program of `FIRES` in µs: its run, less the run
# that it would have been, both worked out from its story; None where the rule gives no figure.
# A call takes 2 µs, an op 1 µs on entry and 1 µs on exit; work begins when its call has returned and the GPU is free.
BY_HAND: dict[str, tuple[float | None, float | None]] = {
    "failed-calls": (None, None),
    "not-recorded": (None, None),
    "no-device-work": (None, None),
    # Ten times 2000 of waiting and 2 of the op's own code, of which a tenth stays; so does the first of the waits.
    "data-loading": (10 * 2_002, 9 * 2_000 + 10 * 2 * 0.9),
    "single-process-loader": (10 * 2_002, 10 * 2_002 * 0.9),
    # Steps 3, 4 and 5 compile for 500, and 2 of the op; a tenth of it stays.
    "recompilation": (3 * 502, 3 * 502 * 0.9),
    "allocation": (6 * 200, 6 * 200),
    "memory-ran-out": (6 * (50 + 300 + 100), 6 * (50 + 300 + 100)),
    # Six times 5000 and 1000.
    "python-lock": (6 * 6_000, 6 * 6_000),
    # Ten kernels begin 200 late; the others follow one another at once.
    "late-work": (10 * 200, 10 * 200),
    # Each step 1 + 2 until the first kernel, 1000 of it, 400 of copy, 10 until the call returns, 50 of rest, 600 of
    # writing, 1 to leave the op, 2 of launch, and 10 of the second kernel. A copy of 8 MB within the GPU takes 16. The
    # host is far ahead then: the GPU works from 3 on. The last file is written before the run ends.
    "checkpoint": (
        6 * 2_076 - (3 + 5 * 1_026 + 1_016 + 10 + 650),
        6 * 2_076 - (3 + 5 * 1_026 + 1_016 + 10 + 650),
    ),
    # Of each step 3 pass until the first kernel, 800 until the last one ends, 1 until the wait ends and 1 to leave the op.
    # One handover in a step, of two GPUs, where eight leave each an eighth of its wait: 388, from its launch, six calls
    # of 2 after that of the first GPU, up to 400.
    "pipeline-bubble": (4 * (400 - 12), 4 * (400 - 12) * 7 / 8),
    # The GPU works for 200 * 50 from 3 on; the host comes to the next launch after 402 of launches and 15 000 of rest.
    "host-bound": (402 + 15_000 + 2 - 10_003, 402 + 15_000 + 2 - 10_003),
    "paid-once": (30_002, 30_002 * 0.9),
    # Each round 1000 of copy, 2 of launch and 200 of kernel, and 10 more before the first copy. Pinned memory moves
    # 4 MB in 333.333 at 12 GB/s, and 1.2 more to begin; the host is far ahead then.
    "pageable-memcpys": (
        (10 * 1_202 + 2) - (2 + 10 * 200),
        (10 * 1_202 + 2) - (2 + 10 * (200 + 333.333 + 1.2)),
    ),
    # Each round 2 of launch, 100 of kernel, 50 of copy, 10 until the call returns, and 40 of rest. Without waits the GPU
    # has one kernel after the other, and the copies beside them.
    "synchronous-memcpys": ((20 * 202 + 2) - (3 + 20 * 100), (20 * 202 + 2) - (3 + 20 * 100)),
    # Each round 2 of launch, 110 of the memset's call and 20 of rest. Without the wait the GPU has 105 of work each.
    "synchronous-memsets": ((20 * 132 + 2) - (3 + 20 * 105), (20 * 132 + 2) - (3 + 20 * 105)),
    # Ten copies of 2 each and a kernel of 100: the first kernel ends at 124, the others 120 after the one before.
    # One copy of all: the first piece takes 2 still, nine more take their 4096 bytes at 12 GB/s. At most: no time, and
    # the first kernel begins after two calls and what the op takes.
    "small-memcpys": (
        (124 + 4 * 120) - (6 + 100 + 4 * 102),
        (124 + 4 * 120) - (5 + 9 * 0.341 + 100 + 4 * (102 + 9 * 0.341)),
    ),
    # Ten pages of 60 KB move for 500 of each kernel; all of them at 12 GB/s take 50. At most: three launches.
    "page-faults": ((2 + 3 * 1_000) - 3 * 2, 3 * (500 - 50)),
    # The wait ends 1 after the kernel; then 40 of rest and a call. Without it the GPU is never idle.
    "synchronization": ((50 * 143 + 2) - (3 + 50 * 100), (50 * 143 + 2) - (3 + 50 * 100)),
    # Each round 2 of launch, 100 of kernel, 2 of copy, 1 until the wait ends, 1 to leave the op and 40 of rest. One of 20
    # values is read still: after the 20th and 40th kernel.
    "numbers-read-back": (
        (50 * 146 + 2) - (3 + 50 * 100),
        (50 * 146 + 2) - (3 + 50 * 100 + 2 * (2 + 1 + 1 + 40 + 2)),
    ),
    # 200 kernels of 5: a launch, the kernel, and 20 until the next one. A graph: a launch of 0.05, and the kernels.
    "launch-bound": ((200 * 27 + 2) - (200 * 5 + 0.05), (200 * 27 + 2) - (200 * 5 + 0.05)),
    # 200 kernels of 4: a launch, the kernel, and 5 until the next one. One launch and three tenths of the kernels; at
    # most none: the host prepares one kernel, and of 9 µs before each other one a 200th, and ends as before.
    "short-kernels": (
        (200 * 11 + 2) - (1 + 2 + 199 * 0.045 + 9 + 1),
        (200 * 11 + 2) - (1 + 2 + 200 * 4 * 0.3),
    ),
    # Ten kernels of 100 in each stream, one after the other; all but the first wait for the other stream. Without that each
    # stream is done after ten.
    "default-stream": ((2 + 20 * 100) - (4 + 10 * 100), (2 + 20 * 100) - (4 + 10 * 100)),
    "annotations": (80, 80),  # 10 on the inner side of both ends of four ranges
    "profiler-overhead": (5_000, 5_000),  # of a rest that keeps the GPU waiting for longer
    "low-gpu-use": (None, None),
    "shared-gpu": (
        19 * 100,
        19 * 100,
    ),  # nothing waits for the last one, which ends no run of the first process
    # 20 kernels of 150 on one GPU, of 100 on the other: 125 on both.
    "uneven-gpus": (20 * 25, 20 * 25),
    "data-parallel": (None, None),
    # Each round 102 in the collective and 2 of launch. Without it the GPU has one kernel after the other.
    "slow-backend": ((20 * 104 + 100) - (2 + 20 * 100), None),
    # 40 collectives of 30: the first of each two could run beside kernels, of which there are 20 * 100.
    "exposed-communication": (40 * 30, 20 * 30),
    # Both GPUs meet after 150, and after 100 if the second one is as fast as the first.
    "stragglers": (20 * 50, 20 * 50),
    # Both meet after 150, and after 100 if the host of the second one does not wait for 50.
    "late-rank": (20 * 50, 20 * 50),
    # 20 blocks on 108 multiprocessors: 88 of 108 are empty for 100 000 ns, 81 481 whole ones.
    "small-grids": (20 * 81.481, None),
    # Ten kernels of 100, the first after 3; without them the host takes 4 for each.
    "no-tensor-cores": ((3 + 10 * 100) - 10 * 4, 10 * 100 / 2),
    # Ten of twenty kernels; without these the first of the others begins after the launch of one, and its own: 7.
    "tensor-cores-left": ((3 + 20 * 100) - (7 + 10 * 100), 10 * 100 / 2),
    "single-precision": ((3 + 10 * 100) - 10 * 4, 10 * 100 / 2),
    "casts": (20 * 20, 20 * 20 / 2),
    # 20 times 100 and 20; without the long ones the first begins after two launches.
    "kernel-hotspot": ((2 + 20 * 120) - (4 + 20 * 20), None),
    # 20 copies of 100, and kernels of 10 beside which a tenth of them fits.
    "memcpy-bound": ((2 + 20 * 110) - (4 + 20 * 10), 20 * 10),
    # The copies are gone, and what the host does for them: 3 to begin the ops, and a call. 2 of the op before stay.
    "made-on-host": ((7 + 20 * 150) - (4 + 20 * 100), (7 + 20 * 150) - (4 + 20 * 100)),
    "gradients-set-to-zero": (10 * 10 * 20, 10 * 10 * 20),
    # 10 steps of 40 kernels of 3, each 7 with its op and its launch. As a graph: the kernels, after the step's begin and a
    # launch. At most: what ten steps take to begin and end, and 0.05 for each launch.
    "single-tensor-optimizer": (
        10 * (2 + 40 * 7) - 10 * (2 + 40 * 0.05),
        10 * (2 + 40 * 7) - (1 + 0.05 + 10 * 40 * 3),
    ),
    "bias-before-norm": (10 * 100, None),  # the convolutions' work
    "misaligned-products": (3 + 10 * 100, None),  # there is nothing else
    # Ten times an op of 1 + 2 + 20 + 1; what is around them takes 2.
    "indexing-in-a-loop": (10 * 24, 10 * 24),
    "memory-nearly-full": (None, None),
    "opaque-graphs": (None, None),
    "nsight-compute": (20 * 50 * 0.4, 20 * 50 * 0.4),  # 40 % of each kernel
    "outside-ops": (None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_it_costs_by_hand(name, fired):
    finding = fired(name).finding
    expected = tuple(-1 if us is None else round(us * US) for us in BY_HAND[name])
    assert (finding.ceiling_ns, finding.saving_ns) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_is_silent(name, tmp_path):
    assert of_rule(QUIET[name]().load(tmp_path), name) is None


@pytest.mark.slow
def test_what_iterations_repeat_is_not_paid_once(tmp_path):
    """The first batch is loaded before all work, as that of each iteration; a single one is loaded once."""
    repeated, once = tmp_path / "repeated", tmp_path / "once"
    for folder in (repeated, once):
        folder.mkdir()
    assert of_rule(loading(2_000, BATCHES, waits=False).load(repeated), "paid-once") is None
    assert of_rule(building(30_000, BATCHES).load(once), "paid-once") is not None


@pytest.mark.slow
@pytest.mark.parametrize(("us", "saving"), [(19_999, -1), (20_000, 18_000 * US)])
def test_a_file_that_is_read_once_is_worth_a_change_from_20_ms_on(us, saving, tmp_path):
    """Each program reads some; what an op does once has a name of its own."""
    story = Story()
    story.system("read", us)
    with story.op("work"):
        for _ in range(20):
            story.kernel(us=50)
    one = of_rule(story.load(tmp_path), "paid-once")
    assert one is not None
    assert (one.finding.ceiling_ns, one.finding.saving_ns) == (us * US, saving)
    assert one.finding.once
    folder = tmp_path / "named"
    folder.mkdir()
    named = of_rule(building(998).load(folder), "paid-once")
    assert named is not None
    assert named.finding.saving_ns == 900 * US


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loader", "rule"), [(WORKERS, "data-loading"), (BATCHES, "single-process-loader")]
)
def test_a_loader_whose_waits_are_not_recorded_is_known_by_its_name(loader, rule, tmp_path):
    """Traces of PyTorch hold no calls of the operating system."""
    joined = loading(2_000, loader, waits=False).load(tmp_path)
    advised = joined.advise(["data-loading", "single-process-loader"], 0)
    assert [one.rule.name for one in advised.advice] == [rule]


@pytest.mark.slow
def test_an_optimizer_of_foreach_ops_takes_many_tensors_at_once(tmp_path):
    story = Story()
    for _ in range(3):
        with story.op("Optimizer.step#Shampoo.step"):
            for _ in range(40):
                with story.op("aten::_foreach_add_"):
                    story.kernel(us=3)
    assert of_rule(story.load(tmp_path), "single-tensor-optimizer") is None


def test_kernels_of_no_time_on_two_gpus_are_alike(tmp_path):
    """A clock that is too coarse: no rule divides by a mean of 0 ns."""
    made = Made()
    for n in range(8):
        for device in (0, 1):
            start = 100 * n + 50 * device
            made.launched(
                "kernels", start, 100, start + 10, start + 10, name=made.string("k"), device=device
            )
    path = made.written(tmp_path / "r.sqlite")
    advice = bridge.load(path).advise().advice
    assert "uneven-gpus" not in {one.rule.name for one in advice}
