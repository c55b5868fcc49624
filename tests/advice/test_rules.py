"""Every rule fires where it must, is silent where it must be, and says what it lacks."""

from __future__ import annotations

import pytest

from advice.rules import FIRES, QUIET
from advice.story import Story
from bridge.analyze.advice import RULES, Advice
from bridge.joined import Joined

NAMES = [rule.name for rule in RULES]


def of_rule(joined: Joined, name: str) -> Advice | None:
    """Give what one rule says of a report that has all that it needs."""
    advised = joined.advise([name], 0)
    assert not advised.not_judged, advised.not_judged
    return next(iter(advised.advice), None)


def test_every_rule_is_told_of():
    assert set(FIRES) == set(QUIET) == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_fires(name, tmp_path):
    one = of_rule(FIRES[name]().load(tmp_path), name)
    assert one is not None
    finding = one.finding
    assert len(finding.evidence)
    assert finding.saving_ns <= finding.ceiling_ns or finding.ceiling_ns == -1 == finding.saving_ns
    assert one.share <= 1
    assert set(one.rule.said.format_map(finding.figures)) - set("{}")


@pytest.mark.parametrize("name", NAMES)
def test_is_silent(name, tmp_path):
    assert of_rule(QUIET[name]().load(tmp_path), name) is None


def test_an_optimizer_of_foreach_ops_takes_many_tensors_at_once(tmp_path):
    story = Story()
    for _ in range(3):
        with story.op("Optimizer.step#Shampoo.step"):
            for _ in range(40):
                with story.op("aten::_foreach_add_"):
                    story.kernel(us=3)
    assert of_rule(story.load(tmp_path), "single-tensor-optimizer") is None
