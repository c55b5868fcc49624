"""Programs in the manner of MXNet's documentation, beside what MXNet 1.9.1 printed and wrote for them.

The operators differ, because PyTorch runs them; blocks, columns, units, keys and phases are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import forked
import pytest
from compat.paired import pairs, read

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

PROGRAMS = (
    "training custom_operator objects imperative memory cuda_ranges continuous"
    " autostart?MXNET_PROFILER_AUTOSTART=1&MXNET_PROFILER_MODE=1"
).split()

# As MXNet printed it; the names of its operators are PyTorch's here, and `api` stands for MXNET_C_API.
BLOCK = """
=================
Name                          Total Count        Time (ms)    Min Time (ms)    Max Time (ms)    Avg Time (ms)
----                          -----------        ---------    -------------    -------------    -------------
"""
NOTE = ["Profile Statistics:", "\tNote the difference in units for different entries."]
OBJECTS = {  # block: rows with their counts
    "My Domain": {"task": 1},
    "My Domain,frame": {"frame": 3},
    "event": {"event": 3},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    programs = (f"mxnet/{p.partition('?')[0]}.py{p[len(p.partition('?')[0]) :]}" for p in PROGRAMS)
    return forked.run_all(tmp_path_factory.mktemp("mxnet"), *programs)


def blocks(text: str) -> dict[str, dict[str, list[str]]]:
    """Give the cells of the rows of each block by their names, which may contain spaces."""
    lines = text.splitlines()
    found: dict[str, dict[str, list[str]]] = {}
    for number, line in enumerate(lines):
        if line == "=" * 17:
            heads = lines[number + 1].split("  ")
            columns = len([head for head in heads if head.strip()]) - 1
            rows = found.setdefault(lines[number - 1], {})
            for row in lines[number + 3 :]:
                if not row:
                    break
                name, *cells = row.rsplit(None, columns)
                rows[name] = cells
    return found


def events(path: Path) -> list[dict[str, Any]]:
    return [event for event in read(path)["traceEvents"] if event["ph"] != "M"]


@pytest.mark.slow
def test_the_order_of_the_tutorial_keeps_aggregates_and_timeline(ran):
    """MXNet, too: `dump`, an empty run, `dumps`, `dump(finished=False)` lose nothing."""
    text = ran["training"].stdout
    assert text.splitlines()[1:3] == NOTE
    found = blocks(text)
    assert list(found) == sorted(found)
    operators = found["operator"]
    assert operators["aten::convolution"][0] == "2"  # what PyTorch dispatches for Conv2d
    assert {"aten::max_pool2d_with_indices", "aten::addmm", "aten::relu"} <= operators.keys()
    assert {"torch.nn.functional.conv2d", "torch.Tensor.backward"} <= found["api"].keys()
    assert found["Device Storage"]["host resident"][0] != "0"
    drawn = Counter(
        name
        for name, _ in pairs(read(ran["training"].folder / "profile_output.json")["traceEvents"])
    )
    assert drawn["aten::convolution"] == 2


@pytest.mark.slow
def test_a_block_looks_as_mxnets_does(ran):
    lines = ran["objects"].stdout.splitlines()
    at = lines.index("operator")
    name = lines[at + 2].index("Total Count") - len("Total Count".rjust(17)) + len("Total Count")
    shorter = [line[:4] + " " * 24 + line[name:] for line in lines[at + 2 : at + 4]]
    assert [" ".join(line.split()) for line in shorter] == [
        " ".join(line.split()) for line in BLOCK.splitlines()[2:4]
    ]
    assert lines[at + 1] == BLOCK.splitlines()[1]


@pytest.mark.slow
def test_custom_operators_are_split_as_by_mxnet(ran):
    """MXNet named MyAddOne::pure_python, MyAddOne::_plus_scalar, _backward_MyAddOne::pure_python …"""
    first = json.JSONDecoder().raw_decode(ran["custom_operator"].stdout)[0]
    assert first["Unit"] == {"Time": "ms", "Memory": "kB"}
    parts = first["Time"]["Custom Operator"]
    assert set(parts) == {
        "MyAddOne::pure_python",
        "MyAddOne::aten::add",
        "_backward_MyAddOne::pure_python",
        "_backward_MyAddOne::aten::clone",
    }
    assert all(part["Count"] == 1 for part in parts.values())
    assert set(parts["MyAddOne::aten::add"]) == {"Count", "Total", "Min", "Max", "Avg"}
    assert "aten::add" not in first["Time"]["operator"]
    drawn = events(ran["custom_operator"].folder / "profile.json")
    names = [e["name"] for e in drawn if e["cat"] == "Custom Operator" and e["ph"] == "B"]
    assert [n for n in names if n.endswith("::aten::add")] == ["MyAddOne::aten::add"] * 2


@pytest.mark.slow
def test_objects_have_the_blocks_of_mxnet(ran):
    found = blocks(ran["objects"].stdout)
    assert {
        name: {row: int(cells[0]) for row, cells in found[name].items() if row != "counter"}
        for name in OBJECTS
    } == OBJECTS
    assert found["operator"]["aten::ones"][0] == "3"
    assert "aten::zeros" not in found["operator"]  # paused


@pytest.mark.slow
def test_objects_are_drawn_with_the_scopes_of_markers(ran):
    drawn = events(ran["objects"].folder / "objects.json")
    marks = [e for e in drawn if e["cat"] == "My Domain,instant_marker"]
    assert [(e["ph"], e["s"]) for e in marks] == [("i", s) for s in "gptpp"]
    assert [e["args"]["counter"] for e in drawn if e["ph"] == "C"] == [5, 7, 9, 11, 7]
    kinds = Counter((e["name"], e["cat"], e["ph"]) for e in drawn)
    assert kinds["task", "My Domain", "b"] == kinds["task", "My Domain", "e"] == 1
    assert kinds["frame", "My Domain,frame", "b"] == 3
    assert kinds["event", "event", "B"] == kinds["event", "event", "E"] == 3


@pytest.mark.slow
def test_imperative_operators_are_sorted_and_reset(ran):
    text = ran["imperative"].stdout
    first, end = json.JSONDecoder().raw_decode(text)
    assert first["Time"]["operator"]["aten::mm"]["Count"] == 4
    assert json.loads(text[end:]) == {
        "Time": {},
        "Memory": {},
        "Unit": {"Time": "ms", "Memory": "kB"},
    }


@pytest.mark.slow
def test_memory_scopes_and_use(ran):
    text = ran["memory"].stdout
    assert text.splitlines()[:2] == ["net:fc1:", "<unk>:"]
    assert "Min Use (kB)" in text
    ranges = {e["name"] for e in events(ran["memory"].folder / "memory.json")}
    assert {"net:fc1:", "net:fc2:"} <= ranges


@pytest.mark.slow
def test_nvtx_ranges(ran):
    drawn = pairs(read(ran["cuda_ranges"].folder / "nvtx.json")["traceEvents"])
    assert {"forward", "loss", "update"} <= {name for name, _ in drawn}
    assert not ran["cuda_ranges"].stderr


@pytest.mark.slow
def test_autostart_needs_no_call_and_takes_the_bits_of_the_mode(ran):
    drawn = events(ran["autostart"].folder / "profile.json")
    assert Counter(e["name"] for e in drawn if e["ph"] == "B")["aten::mm"] == 5
    assert {e["cat"] for e in drawn} == {"operator"}  # MODE=1: neither API calls nor memory
    assert not ran["autostart"].stderr


@pytest.mark.slow
def test_what_is_dumped_continuously_survives_a_kill(ran):
    import bridge

    folder = ran["continuous"].folder
    assert not (folder / "long.json").exists()
    assert "aten::mul" in set(bridge.load(folder / "long.jsonl").by("op")["op"])
