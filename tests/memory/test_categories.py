"""What allocations are for: the rules on programs by hand, and a training whose tensors PyTorch itself has sorted."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bridge
from bridge.analyze.cost.memory import MemoryUsage, by_category
from bridge.analyze.cost.memory.categories import CATEGORIES, Categories

DATA = Path(__file__).parent / "data"


def sorted_by_torch(held: MemoryUsage) -> dict[int, str]:
    """Return what PyTorch takes each allocation for, by the event that makes it."""
    said = json.loads(gzip.decompress((DATA / "training.categories.json.gz").read_bytes()))
    found = {(time, address, size): category for time, address, size, category in said}
    assert len(found) == len(said)
    made = np.flatnonzero(held.is_made)
    time = held.events.time[made] + held.attributed.capture.facts[0].epoch_ns
    address = held.attributed.capture.memory.address[held.events.row[made]]
    events = zip(*(c.tolist() for c in (time, address, held.size[made])), strict=True)
    of = dict(zip(events, made.tolist(), strict=True))
    assert found.keys() == of.keys()
    return {of[key]: category.lower().replace("_", " ") for key, category in found.items()}


@pytest.mark.slow
def test_pytorch_sorts_the_tensors_of_a_training_alike(held):
    """But for the kinds of difference that docs/memory.md lists."""
    ours = Categories(held).of_event
    torchs = sorted_by_torch(held)
    both, count, size = Counter(), Counter(), held.size.tolist()
    for event, category in torchs.items():
        both[CATEGORIES[ours[event]], category] += size[event]
        count[CATEGORIES[ours[event]], category] += 1
    assert count.total() == 882  # every allocation of the trace, and every record of PyTorch's
    for category in ("gradient", "optimizer state", "input", "activation", "autograd detail"):
        assert both[category, category] > 0.95 * sum(
            much for pair, much in both.items() if category in pair and "temporary" not in pair
        )
    alike = [pair for pair in both if pair[0] == pair[1]]
    assert sum(both[pair] for pair in alike) > 0.95 * both.total()  # measured: 95.14 %
    assert sum(count[pair] for pair in alike) > 0.68 * count.total()  # measured: 68.48 %
    scratch = ("activation", "parameter", "input", "unknown")  # of the optimizer
    expected = {("temporary", name) for name in scratch}
    expected |= {("autograd detail", "unknown"), ("unknown", "input")}
    assert both.keys() - set(alike) == expected
    assert both["unknown", "input"] < 100  # bytes
    names = held.attributed.capture.ranges.name
    assert names.matching(lambda name: name.startswith("Optimizer.step")).any()


def test_levels_add_up_to_what_is_held(held):
    table = by_category(held)
    assert table["at_peak_bytes"].sum() == held.used.max()
    assert table["end_bytes"].sum() == held.used[-1]
    assert table["allocations"].sum() == held.is_made.sum()
    assert (table["peak_bytes"] >= table["at_peak_bytes"]).all()
    assert np.isclose(table["share"].sum(), 1)


# -- the rules, by hand: what a tensor is called tells what it is for

PLACES = {  # µs: name, from, to; outer ones first
    ("ProfilerStep#0", 100, 1_000),
    ("ProfilerStep#1", 1_000, 2_000),
    ("aten::empty", 45, 65),
    ("enumerate(DataLoader)#Iter.__next__", 110, 120),
    ("aten::randn", 130, 140),
    ("nn.Module: M_0", 200, 400),
    ("aten::linear", 210, 300),
    ("aten::empty", 310, 320),
    ("aten::cat", 440, 450),
    ("autograd::engine::evaluate_function: AddmmBackward0", 600, 800),
    ("AddmmBackward0", 610, 700),
    ("aten::mm", 620, 640),
    ("autograd::engine::evaluate_function: AddmmBackward0", 820, 860),
    ("Optimizer.step#SGD.step", 900, 950),
    ("aten::_foreach_add", 960, 980),
    ("aten::relu", 1_100, 1_200),
    ("autograd::engine::evaluate_function: ReluBackward0", 1_600, 1_700),
    ("Optimizer.zero_grad#SGD.zero_grad", 1_800, 1_900),
}
TENSORS = [  # what it is, when it was made, when released: -1 for never
    ("parameter", 50, -1),  # before the steps
    ("parameter", 51, 1_001),
    ("input", 52, 500),  # before the steps, but over in the first
    ("parameter", -1, -1),  # from before the capture: the allocator's total tells of it
    ("gradient", -1, 1_850),
    ("activation", -1, 650),
    ("unknown", -1, 450),
    ("input", 115, 900),
    ("input", 135, -1),
    ("activation", 220, 650),
    ("activation", 230, 420),
    ("temporary", 240, 290),
    ("activation", 315, 1_650),  # of a source, but in a module
    ("unknown", 350, 360),  # in a module, by no operator
    ("unknown", 445, -1),  # in no module and never released
    ("activation", 446, 1_990),
    ("gradient", 625, 1_850),
    ("gradient", 626, -1),
    ("gradient", 627, 890),
    ("autograd detail", 628, 780),
    ("autograd detail", 629, 850),  # the pass goes on
    ("autograd detail", 750, 790),
    ("temporary", 630, 639),
    ("optimizer state", 910, -1),
    ("optimizer state", 970, -1),
    ("temporary", 920, 940),
    ("activation", 1_150, -1),  # of the last step
    ("gradient", 1_650, 1_701),
    ("unknown", 1_950, 1_960),
]


def by_hand(path: Path, *, ops: bool = True) -> Path:
    """Write a trace in which each tensor has the bytes 1000 + its place, and its place as address."""
    moments = sorted(
        [(made, n, 1) for n, (_, made, _) in enumerate(TENSORS) if made >= 0]
        + [(over, n, -1) for n, (_, _, over) in enumerate(TENSORS) if over >= 0]
    )
    events, total = [], sum(1_000 + n for n, (_, made, _) in enumerate(TENSORS) if made < 0)
    place = {"pid": 2_000, "tid": 2_000}
    for time, n, sign in moments:
        total += sign * (1_000 + n)
        said = {
            "Addr": n,
            "Bytes": sign * (1_000 + n),
            "Device Type": 1,
            "Device Id": 0,
            "Total Allocated": total,
        }
        events.append(
            {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "ts": time, "args": said, **place}
        )  # fmt: skip
    shown = [("plain", 40, 60), *(p for p in PLACES if "Step" in p[0])] if not ops else PLACES
    for name, start, end in sorted(shown, key=lambda p: (p[1], -p[2])):
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": end - start, **place}
        )
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.mark.slow
def test_each_rule_by_hand(tmp_path):
    held = MemoryUsage.of(bridge.load(by_hand(tmp_path / "hand.json")).attributed)
    found = Categories(held)
    address = held.attributed.capture.memory.address[held.events.row]
    of = {int(a): CATEGORIES[c] for a, c in zip(address, found.of_event, strict=True)}
    expected = {n: name for n, (name, made, over) in enumerate(TENSORS) if max(made, over) >= 0}
    assert {n: (of[n], expected[n]) for n in expected if of[n] != expected[n]} == {}
    table = by_category(held).to_pandas().set_index("category")
    assert table.loc["parameter", "peak_bytes"] == 1_000 + 1_001 + 1_003
    assert table.loc["parameter", "end_bytes"] == 1_000 + 1_003
    assert table["end_bytes"].sum() == held.used[-1]


def test_without_operators_only_what_a_call_is_done_with_is_known(tmp_path):
    held = MemoryUsage.of(bridge.load(by_hand(tmp_path / "hand.json", ops=False)).attributed)
    assert set(np.unique(Categories(held).of_life)) <= {
        CATEGORIES.index("temporary"),
        CATEGORIES.index("unknown"),
    }


def test_the_docs_know_every_category():
    page = (Path(__file__).parents[2] / "docs" / "memory.md").read_text()
    rules = page.split("## Categories")[1].split("\n\n")[2]
    named = [line.split("`")[1] for line in rules.splitlines()[2:]]
    assert set(named) == set(CATEGORIES)
    assert len(named) == 12  # rules, as many as `of_life` has, and the last


@pytest.mark.slow
def test_ranks_with_one_number_are_kept_apart(tmp_path):
    """In containers every process may be number 1: of two that are, each has its own passes and steps."""
    one = MemoryUsage.of(bridge.load(by_hand(tmp_path / "hand.json")).attributed)
    trace = json.loads((tmp_path / "hand.json").read_text())
    for event in trace["traceEvents"]:
        event["ts"] += 333
    (tmp_path / "later.json").write_text(json.dumps(trace))
    both = MemoryUsage.of(bridge.load(tmp_path / "hand.json", tmp_path / "later.json").attributed)
    found = Categories(both)
    alone = np.sort(Categories(one).of_event)
    for report in (0, 1):
        ours = both.attributed.capture.memory.report[both.events.row] == report
        assert np.array_equal(np.sort(found.of_event[ours]), alone)
