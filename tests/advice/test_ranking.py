"""The order of advice: what its owner can gain most from first, and each cause once."""

from __future__ import annotations

from pathlib import Path

import pytest

import bridge
from advice.rules import FIRES, launching, resting, with_graphs
from advice.story import US, Story
from bridge.analyze.checks.advice import RULES
from bridge.analyze.checks.check import SYMPTOM
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import Run

SYMPTOMS = {rule.name for rule in RULES if rule.certainty == SYMPTOM}


def a_wait_beside_one_kernel(kernel: int) -> Story:
    """Three waits that cost 43 each, on a GPU that is busy with one kernel, of which only the limit is known."""
    story = Story()
    for _ in range(3):
        story.kernel("gemm", us=kernel)
        story.wait()
        story.rest(40)
    story.kernel("gemm", us=kernel)
    return story


@pytest.mark.parametrize(("kernel", "first"), [(250, "synchronization"), (2_000, "kernel-hotspot")])
def test_a_limit_stands_first_only_beside_small_estimates(kernel: int, first: str, tmp_path: Path):
    """The wait saves 129 of 1131, and of 8131, where the kernel could save more than ten times as much."""
    advised = a_wait_beside_one_kernel(kernel).load(tmp_path).advise(worth=0)
    by_name = {one.rule.name: one for one in advised.advice}
    assert advised.advice[0].rule.name == first
    assert advised.wall_ns == (4 * kernel + 2 + 129) * US
    assert by_name["synchronization"].finding.saving_ns == 129 * US
    assert by_name["kernel-hotspot"].finding.saving_ns == -1
    limit = by_name["kernel-hotspot"].finding.ceiling_ns
    assert (limit > 10 * 129 * US) == (first == "kernel-hotspot")


def test_symptoms_are_named_with_their_cause(tmp_path: Path):
    """The GPU is busy 40 % of the run, as the host rests."""
    report = resting(40_000).load(tmp_path)
    one, *others = report.advise(worth=0.02).advice
    assert one.rule.name == "host-bound"
    assert one.same_time == ("low-gpu-use",)
    assert not SYMPTOMS & {other.rule.name for other in others}


def test_rules_that_are_chosen_are_all_listed(tmp_path: Path):
    advised = resting(40_000).load(tmp_path).advise(["low-gpu-use", "host-bound"])
    assert {one.rule.name for one in advised.advice} == {"host-bound", "low-gpu-use"}
    assert not any(one.same_time for one in advised.advice)


def building_and_logging(built: int, logged: int) -> Story:
    """What is paid once, before all work, and what each of ten steps pays for, when the GPU has nothing to do."""
    story = Story()
    with story.op("build"):
        story.rest(built)
    for number in range(10):
        with story.op(f"step {number}"):
            story.kernel(us=100)
            story.wait()
            with story.op("log"):
                story.rest(logged)
    return story


@pytest.mark.parametrize(("logged", "first"), [(1_000, "paid-once"), (10_000, "host-bound")])
def test_the_list_that_saves_more_comes_first(logged: int, first: str, tmp_path: Path):
    """30 ms are paid once, 1 or 10 in each of ten steps; of both a tenth stays."""
    advised = building_and_logging(30_000, logged).load(tmp_path).advise()
    assert [one.rule.name for one in advised.advice[:2]] in (
        ["paid-once", "host-bound"],
        ["host-bound", "paid-once"],
    )
    assert advised.advice[0].rule.name == first
    assert advised.savings.once_ns == round(30_002 * 0.9 * US)
    # All listed changes go together: nothing waits in an iteration, and both parts are saved.
    assert advised.savings.joint_ns == advised.savings.once_ns + advised.savings.each_ns


def test_of_two_rules_about_one_cause_the_better_one_is_listed(tmp_path: Path):
    """All that a graph would save is saved by one kernel in place of the small ones."""
    advised = launching(5, 4).load(tmp_path).advise(worth=0)
    assert [one.rule.name for one in advised.advice] == ["short-kernels"]
    assert advised.advice[0].same_time == ("launch-bound", "low-gpu-use")


def effect(run: Run, change: Change) -> tuple[dict[int, int], set[int]]:
    """What a change takes from each point, in ns, and at which points it cuts waits."""
    draft = Draft.of(run.graph)
    change(draft)
    delays = zip(run.graph.delay.tolist(), draft.delay.tolist(), strict=True)
    gone = {point: was - now for point, (was, now) in enumerate(delays) if was > now}
    waits = zip(run.graph.cross.tolist(), draft.cross.tolist(), strict=True)
    return gone, {point for point, (was, now) in enumerate(waits) if was not in (-1, now)}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRES)
def test_no_cause_is_listed_twice(name: str, tmp_path_factory: pytest.TempPathFactory):
    """Of what each finding changes, no other one changes half: of delays, or of waits if there is little else."""
    report = FIRES[name]().load(tmp_path_factory.mktemp("fires"))
    advised = report.advise(worth=0)
    changes = [one.finding.change for one in advised.advice if one.finding.saving_ns > 0]
    effects = [effect(Run.of(report.attributed), change) for change in changes if change]
    for number, (gone, cut) in enumerate(effects):
        for others, waits in effects[:number]:  # those that save more
            if sum(gone.values()) <= 10 * US * len(cut):
                assert 2 * len(cut & waits) < max(1, len(cut))
            else:
                common = sum(min(ns, others.get(point, 0)) for point, ns in gone.items())
                assert 2 * common < sum(gone.values())
    assert max(0, advised.savings.joint_ns) <= advised.wall_ns
    names = [one.rule.name for one in advised.advice]
    assert len(SYMPTOMS & set(names)) <= 1


@pytest.mark.slow
def test_a_capture_that_hides_the_work_comes_first(tmp_path: Path):
    advised = with_graphs(1_000).load(tmp_path).advise(worth=0)
    assert advised.advice[0].rule.name == "opaque-graphs"


@pytest.mark.slow
def test_savings_that_share_their_time_do_not_add_up_to_more(corpus: Path):
    """Launches and copies of flags both keep this GPU idle; each saving is what the other leaves."""
    report = bridge.load(corpus / "nsys" / "simplex-streams.sqlite")
    advised = report.advise()
    savings = [one.finding.saving_ns for one in advised.advice if one.finding.saving_ns > 0]
    assert len(savings) > 1
    assert sum(savings) <= report.use.idle_ns


def test_what_is_called_again_and_again_is_not_paid_once(tmp_path: Path):
    """Twenty rests in a range called initialize: the program waits in each of its steps."""
    story = Story()
    for _ in range(20):
        with story.op("initialize hidden state"):
            story.kernel(us=100)
            story.rest(1_000)
    assert not story.load(tmp_path).advise(["paid-once"], 0).advice
