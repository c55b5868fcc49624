"""Every rule fires where it must, is silent where it must be, and says what it lacks."""

from __future__ import annotations

from functools import cache
from string import Formatter

import pytest

from advice.rules import BATCHES, FIRES, QUIET, building
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


# What each program of `FIRES` loses, in µs, worked out from its story: (ceiling, saving), None where the rule gives no figure.
# A call takes 2 µs, an op 1 µs on entry and 1 µs on exit; work begins when its call has returned and the GPU is free.
BY_HAND: dict[str, tuple[float | None, float | None]] = {
    "failed-calls": (None, None),
    "not-recorded": (None, None),
    "no-device-work": (None, None),
    # 300 kernels of 100; the host goes on 150 after each, and its next call takes 2.
    # The first kernel ends after 1 + 2 + 100, the second begins after 1 + 2 + 5000 + 2.
    "start-up": (5_000 + 2 - 100, None),
    # An op of 300 and 2, the begin of the next one, and a call; the work that follows takes 1000.
    "paid-once": (302 + 1 + 2, None),
    "kernel-hotspot": (20 * 100, None),
    "memcpy-bound": (20 * 100, None),
    # Before the first kernel an op begins and a call is made; after the last the host goes on, and the op ends.
    "low-gpu-use": (1 + 2 + 299 * (150 + 2) + 150 + 1, None),
    # The span is 200 * 50 + (303 + 9 * 302 + 10 * 10 idle and busy) + 3 + 200 * 50 = 23 124, a thirtieth 770.8.
    # Parts 13 to 16 are low: they lie from 10 020.4 to 13 103.6, with nine kernels of 10.
    "low-use-stretches": (4 * 770.8 - 9 * 10, None),
    "long-gaps": (5_000 + 2, None),  # the gap, and the call that ends it
    # Ten steps: 2000 of loading and 2 of its op. The first is before the first work, so that no work waits longer for it.
    "data-loading": (10 * 2_002, 9 * 2_002),
    "single-process-loader": (10 * 2_002, 9 * 2_002),
    # 200 kernels: the host goes on 20 after each, and its next call takes 2. A graph leaves 1.5 each.
    "launch-bound": (199 * (20 + 2), 199 * (20 + 2 - 1.5)),
    "host-bound": (5_000, None),  # in no op; the call that ends the gap is a launch
    # 200 kernels of 4, with gaps of 5 and a call between them.
    "short-kernels": (200 * 4 + 199 * (5 + 2), 199 * (5 + 2)),
    # Steps 3, 4 and 5 compile for 500, and 2 of the op; the GPU has nothing else to do.
    "recompilation": (3 * 502, 3 * 502),
    "pageable-memcpys": (10 * 100, None),  # no copy of pinned memory says how fast it could be
    # The copy ends 152 after the kernel's call began. The host is held for 2 + 160, rests for 40, and calls for 2.
    "synchronous-memcpys": (19 * (2 + 160 + 40 + 2 - 152), 19 * (2 + 160 + 40 + 2 - 152)),
    # The kernel ends after 2 + 100; the fill begins when its call has returned, after 2 + 110.
    # After the fill of 5 the host rests for 20 and calls for 2: without the wait it would be 110 ahead.
    "synchronous-memsets": (
        20 * (112 - 102) + 19 * (20 + 2 - 5),
        20 * (112 - 102) + 19 * (20 + 2 - 5),
    ),
    # The wait ends 1 after the kernel; then 40 of rest and a call.
    "synchronization": (49 * (1 + 40 + 2), 49 * (1 + 40 + 2)),
    # The wait ends 1 after the copy; then 1 to leave the op, 40 of rest and a call.
    "numbers-read-back": (49 * (1 + 1 + 40 + 2), 49 * (1 + 1 + 40 + 2)),
    # 20 blocks on 108 multiprocessors: 88 of 108 are empty for 100 000 ns, 81 481 whole ones.
    "small-grids": (20 * 81.481, None),
    "no-tensor-cores": (10 * 100, 10 * 100 / 2),
    "tensor-cores-left": (10 * 100, 10 * 100 / 2),  # ten of the twenty kernels
    "single-precision": (10 * 100, 10 * 100 / 2),
    "casts": (20 * 20, 20 * 20 / 2),
    # Kernels of 100 by turns, ten on each GPU; the first begins when an op has begun and a call returned.
    "data-parallel": (1 + 2 + 20 * 100 - 10 * 100, None),
    "slow-backend": (20 * (100 + 2), None),
    "exposed-communication": (
        20 * 30,
        20 * 30,
    ),  # there are 20 * 100 of computation to hide it behind
    "stragglers": (20 * 100, None),
    # The GPU is busy from the first copy on: no idle time before the others.
    "made-on-host": (20 * 50, 20 * 50),
    "gradients-set-to-zero": (10 * 10 * 20, 10 * 10 * 20),
    # 10 steps of 40 kernels of 3. Between two: the op ends (1), the next begins (1) and calls (2).
    # Between two steps the optimizer's op ends and begins as well.
    "single-tensor-optimizer": (
        10 * 40 * 3 + 10 * 39 * (1 + 1 + 2) + 9 * (1 + 1 + 1 + 1 + 2),
        10 * 39 * (1 + 1 + 2) + 9 * (1 + 1 + 1 + 1 + 2),
    ),
    "bias-before-norm": (10 * 100, None),  # the convolutions' work
    "misaligned-products": (10 * 100, None),
    # Ten kernels of 5. A rest of 20 begins when the kernel does; then an op ends, one begins, and calls.
    "indexing-in-a-loop": (
        10 * 5 + 9 * (20 - 5 + 1 + 1 + 2),
        10 * 5 + 9 * (20 - 5 + 1 + 1 + 2),
    ),
    "memory-nearly-full": (None, None),
    "opaque-graphs": (None, None),
    "nsight-compute": (20 * 50 * 0.4, None),  # 40 % of each kernel
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
@pytest.mark.parametrize(("op", "is_loading"), [("build", False), (BATCHES, True)])
def test_data_that_is_loaded_before_all_work_is_not_paid_once(op, is_loading, tmp_path):
    assert (of_rule(building(300, op).load(tmp_path), "paid-once") is None) == is_loading


@pytest.mark.slow
def test_an_optimizer_of_foreach_ops_takes_many_tensors_at_once(tmp_path):
    story = Story()
    for _ in range(3):
        with story.op("Optimizer.step#Shampoo.step"):
            for _ in range(40):
                with story.op("aten::_foreach_add_"):
                    story.kernel(us=3)
    assert of_rule(story.load(tmp_path), "single-tensor-optimizer") is None
