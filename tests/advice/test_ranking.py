"""The order of advice: what its owner can gain most from first, and each cause once."""

from __future__ import annotations

from pathlib import Path

import pytest

import bridge
from advice.rules import FIRES, gap, warming, with_graphs
from advice.story import US, Story
from bridge.analyze.checks.advice import RULES
from bridge.analyze.checks.check import SYMPTOM

SYMPTOMS = {rule.name for rule in RULES if rule.certainty == SYMPTOM}


def small_wait_and_long_rest(rest: int) -> Story:
    """A wait of 100 µs, whose cost is estimated, and a rest of the host, which has a ceiling alone."""
    story = Story()
    story.kernel("gemm", us=100)
    story.wait()
    story.rest(40)
    story.kernel("norm", us=100)
    story.now = story.done
    story.rest(rest)
    story.kernel("relu", us=100)
    return story


@pytest.mark.parametrize(("rest", "first"), [(2_000, "host-bound"), (150, "synchronization")])
def test_a_small_estimate_does_not_hide_a_large_ceiling(rest: int, first: str, tmp_path: Path):
    advised = small_wait_and_long_rest(rest).load(tmp_path).advise(worth=0)
    assert advised.advice[0].rule.name == first
    expected = [one.expected_ns for one in advised.advice if one.rule.name not in SYMPTOMS]
    assert expected == sorted(expected, reverse=True)


def test_symptoms_are_named_with_their_cause(tmp_path: Path):
    report = gap(5_000).load(tmp_path)
    one, *others = report.advise(worth=0.02).advice
    assert not SYMPTOMS & {other.rule.name for other in others}
    assert one.rule.name == "host-bound"
    assert set(one.same_time) <= SYMPTOMS
    assert "long-gaps" in one.same_time


def test_rules_that_are_chosen_are_all_listed(tmp_path: Path):
    advised = gap(5_000).load(tmp_path).advise(["long-gaps", "host-bound"])
    assert {one.rule.name for one in advised.advice} == {"host-bound", "long-gaps"}
    assert not any(one.same_time for one in advised.advice)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRES)
def test_no_time_is_explained_twice(name: str, tmp_path_factory: pytest.TempPathFactory):
    """Of what all findings explain, at least half of each is explained by it alone."""
    report = FIRES[name]().load(tmp_path_factory.mktemp("fires"))
    advised = report.advise(worth=0)
    idle, work = dict[int, int](), dict[int, int]()
    for one in advised.advice:
        lost = one.finding.lost
        if lost is None:
            continue
        taken = 0
        for owned, rows, times in (
            (idle, lost.gaps, lost.idle_ns),
            (work, lost.activities, lost.work_ns),
        ):
            for row, ns in zip(rows.tolist(), times.tolist(), strict=True):
                taken += min(ns, owned.get(row, 0))
                owned[row] = max(ns, owned.get(row, 0))
        assert taken <= (lost.idle_ns.sum() + lost.work_ns.sum()) / 2 + US, one.rule.name
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


def test_what_is_called_again_and_again_is_no_start_up(tmp_path: Path):
    """Twenty rests in a range called initialize: the program waits in each of its steps."""
    story = Story()
    for _ in range(20):
        with story.op("initialize hidden state"):
            story.kernel(us=100)
            story.rest(1_000)
    assert not story.load(tmp_path).advise(["start-up"]).advice


def test_a_warm_up_is_that_of_its_own_report(tmp_path: Path):
    """The other program, at the same time, rests in no range of that name."""
    reports = []
    for name in ("model_warmup", "forward"):
        (tmp_path / name).mkdir()
        reports.append(warming(name).written(tmp_path / name / f"{name}.sqlite"))
    [one] = bridge.load(*reports).advise(["start-up"]).advice
    assert one.finding.lost is not None
    assert len(one.finding.lost.gaps) == 1
    assert set(one.finding.evidence["op"]) == {"model_warmup"}
