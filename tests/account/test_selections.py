"""What commands print of selections of the lagging report is what `tests/analyze/lagging_steps.toml` counts by hand."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command import done

import bridge

pytestmark = pytest.mark.slow
FILE = Path(__file__).parents[1] / "analyze" / "lagging_steps.toml"
EXPECTED = tomllib.loads(FILE.read_text("utf-8"))
STEPS = ("--step", "1..2")
FIGURES = {name: figure["value"] for name, figure in EXPECTED["figures"].items()}
OWN = ("compute", "communication", "copy", "other", "graph")
selections = pytest.mark.parametrize(
    "selection", EXPECTED["selections"], ids=lambda one: " ".join(one["options"]) or "run"
)


def asked(*words: str | Path) -> dict[str, Any]:
    return json.loads(done(*words, "--format", "json"))


def length(selection: dict[str, Any]) -> int:
    return selection["end_ns"] - selection["start_ns"]


@selections
def test_the_summary_has_the_states_of_the_span(lagging, selection):
    told = asked("summary", lagging, *selection["options"])
    part = told["run"].get("selected", told["run"])
    assert (part["start_ns"], part["end_ns"]) == (selection["start_ns"], selection["end_ns"])
    assert told["run"]["length_ns"] == length(EXPECTED["selections"][0])
    states = {**told["gpus"][0]["states"]}
    states["others"] = states.pop("elsewhere", 0)
    assert states == selection["states"]


@selections
def test_the_table_of_gpus_has_the_same(lagging, selection):
    [row] = asked("report", lagging, "--by", "device", *selection["options"])["rows"]
    states = selection["states"]
    found = (row["run_ns"], row["busy_ns"], row["elsewhere_ns"], row["idle_ns"])
    assert found == (length(selection), sum(states[s] for s in OWN), states["others"], states["idle"])  # fmt: skip


@selections
def test_idle_gaps_and_causes_add_up_to_the_idle_state(lagging, selection):
    idle = selection["states"]["idle"]
    causes = asked("report", lagging, "--by", "idle", *selection["options"])["rows"]
    assert sum(row["total_ns"] for row in causes) == idle
    report = bridge.load(lagging).within(**of_library(selection["options"]))
    assert report.by("gap", idle_over_ns=0)["gap_ns"].sum() == idle
    told = asked("summary", lagging, *selection["options"])
    assert sum(cause["idle_ns"] for cause in told["causes"]) == told["idle_ns"] == idle


@selections
def test_the_critical_path_and_advice_are_of_the_same_length(lagging, selection):
    path = asked("report", lagging, "--by", "critical", *selection["options"])
    assert sum(row["time_ns"] for row in path["rows"]) == path["run_ns"] == length(selection)
    assert asked("advise", lagging, *selection["options"])["wall_ns"] == length(selection)


def of_library(options: list[str]) -> dict[str, Any]:
    """Return the options of the command as `Report.within` takes them."""
    values = dict(zip(options[::2], options[1::2], strict=True))
    found: dict[str, Any] = {}
    if "--step" in values:
        first, _, last = values["--step"].partition("..")
        found["steps"] = (int(first), int(last or first))
    if "--range" in values:
        found["range_name"] = values["--range"]
    for name, key in (("--from", "first_ns"), ("--to", "last_ns")):
        if name in values:
            found[key] = int(values[name].removesuffix("ms")) * 10**6
    return found


def test_the_selected_steps_have_their_work_and_no_other(lagging):
    [row] = asked("report", lagging, "--by", "device", *STEPS)["rows"]
    assert row["activities"] == FIGURES["selected_activities"]
    assert row["kernels"] == FIGURES["selected_kernels"]
    assert row["gpu_ns"] == FIGURES["selected_gpu_ns"]
    assert row["busy_ns"] == FIGURES["selected_busy_ns"]
    assert row["span_ns"] == FIGURES["work_span_ns"]
    assert row["communication_ns"] == FIGURES["communication_ns"]
    assert row["exposed_ns"] == FIGURES["exposed_communication_ns"]


def test_ops_have_the_kernels_that_they_launched_in_the_selected_steps(lagging):
    """Ranges of NCCL's own domain are no ops: its kernels are those of the op around."""
    expected = {**EXPECTED["kernels_of_op"]}
    del expected["ncclAllReduce"]
    expected["all-reduce"] = EXPECTED["kernels_below_op"]["all-reduce"]
    rows = asked("report", lagging, "--by", "op-kernel", *STEPS)["rows"]
    kernels: dict[str, int] = {}
    for row in rows:
        kernels[row["op"]] = kernels.get(row["op"], 0) + row["count"]
    assert {op: count for op, count in kernels.items() if op in expected} == expected
    assert sum(kernels.values()) == FIGURES["selected_kernels"]


def test_the_path_counts_no_kernel_of_other_steps_under_an_op(lagging):
    """Kernels run one after the other: each of the steps is an element of the path but those that others hide."""
    rows = asked("report", lagging, "--by", "critical", *STEPS)["rows"]
    kernels = {row["op"]: row["count"] for row in rows if row["kind"] == "kernel"}
    assert kernels["aten::addmm"] == EXPECTED["kernels_of_op"]["aten::addmm"] == 16
    for op, count in kernels.items():
        assert count <= EXPECTED["kernels_of_op"][op], op
    # The GPU does work of other steps alone for so long, of which no selected work can take any time.
    selected = sum(row["time_ns"] for row in rows if row["kind"] in {"kernel", "memcpy", "memset"})
    assert selected <= FIGURES["span_ns"] - FIGURES["others_ns"]
