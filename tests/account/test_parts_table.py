"""`--by part`: what the host did in each part of the run adds up to the part, and the parts to the run."""

from __future__ import annotations

import pytest
from real_parts import corpus_reports

import bridge
from bridge.analyze.run.account import runs
from bridge.analyze.run.parts import Parts

pytestmark = pytest.mark.slow
REFUSED = {"failed-export", "no-kernels-osrt"}


@pytest.mark.parametrize("path", [one for one in corpus_reports() if one.id not in REFUSED])
def test_the_time_of_the_host_adds_up_to_the_parts(path):
    report = bridge.load(path)
    [run], table = runs(report.attributed), report.by("part")
    parts = Parts.of_run(report.attributed)
    assert parts is not None
    assert sum(parts.lengths.values()) == run.length_ns == table["time_ns"].sum()
    by_part = table.groupby("part")["time_ns"].sum().to_dict()
    assert by_part == {name: ns for name, ns in parts.lengths.items() if ns}
    assert table["run_share"].sum() == pytest.approx(1)


def test_a_selected_part_is_one(demo):
    report = bridge.load(demo).within(steps=(1, 1))
    [run], table = runs(report.attributed), report.by("part")
    assert set(table["part"]) == {"selected"}
    assert table["time_ns"].sum() == run.part.length


def test_several_reports_have_no_parts(demo, two_steps):
    assert bridge.load(demo, two_steps).by("part").empty
