"""Programs in the manner of RAF's two guides, beside the outputs that these show."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import forked
import pytest
from compat.paired import pairs, read

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

PROGRAMS = "latency levels op_latency op_groups memory no_ops own_code".split()

# The first event of the guide's log; the texts and numbers are those of its program.
SHOWN = {
    "name": "raf_op_tvm_cast_76",
    "cat": "Default Stream",
    "ph": "B",
    "ts": 1648086040982992,
    "args": {"args_string": "T<768xf32>,|T<768xf16>"},
    "pid": 2364,
    "tid": "Default Stream",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return forked.run_all(tmp_path_factory.mktemp("raf"), *(f"raf/{p}.py" for p in PROGRAMS))


def types_of(value: Any) -> Any:
    return {k: types_of(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


@pytest.mark.slow
def test_the_log_has_the_entries_of_the_guide(ran):
    log = read(ran["latency"].folder / "profile.json")
    assert list(log) == ["traceEvents", "displayTimeUnit"]
    assert log["displayTimeUnit"] == "ms"
    assert log == read(ran["latency"].folder / "dumped.json")
    for event in log["traceEvents"]:
        assert list(event) == list(SHOWN)
        assert types_of(event) == types_of(SHOWN)
        assert event["ts"] > 1e15  # µs since the epoch
    assert {"aten::addmm", "aten::gelu", "aten::gelu_backward"} <= {
        n for n, _ in pairs(log["traceEvents"])
    }


@pytest.mark.slow
def test_arguments_are_written_as_raf_writes_types(ran):
    log = read(ran["latency"].folder / "profile.json")["traceEvents"]
    texts = {event["name"]: event["args"]["args_string"] for event in log}
    cast = next(name for name, text in texts.items() if text.startswith("T<768xf32>,|T<768xf16>"))
    assert cast == "aten::_to_copy"
    assert texts["aten::gelu"] == "T<16x64xf32>,|T<16x64xf32>"


@pytest.mark.slow
def test_level_2_adds_what_the_host_does(ran):
    found = {
        level: {
            (e["name"], e["cat"])
            for e in read(ran["levels"].folder / f"level{level}.json")["traceEvents"]
        }
        for level in range(3)
    }
    assert found[0] == set()
    assert {cat for _, cat in found[1]} == {"ComputationOperator"}
    assert {name for name, _ in found[1]} < {name for name, _ in found[2]}
    calls = {name for name, cat in found[2] if cat == "api"}
    assert {"torch.nn.functional.linear", "torch.relu", "torch.Tensor.item"} <= calls


@pytest.mark.slow
def test_the_latency_of_an_op_has_a_value(ran):
    latency, workspace, cached = ran["op_latency"].stdout.splitlines()
    assert re.fullmatch(r"Latency: \d+\.\d+", latency)
    assert workspace == "Workspace size: -1.0"  # unknown on a CPU
    assert cached == "Cached: 1"


@pytest.mark.slow
def test_groups_of_ops_and_their_cache(ran):
    assert ran["op_groups"].stdout.splitlines() == ["3 3 2", "True", "0"]


@pytest.mark.slow
def test_the_memory_of_a_step(ran):
    used, allocated, at, title, _, head, *rows = ran["memory"].stdout.rstrip().splitlines()
    assert float(used.removeprefix("Max used memory (MBs): ")) > 10
    assert float(allocated.removeprefix("Max allocated memory (MBs): ")) > 10
    assert re.fullmatch(r"At: \d+ collections: 0", at)
    assert title == "Memory Trace:"
    assert head.split() == ["#Trace", "#Tag", "used", "alloc"]
    tags = [row.split()[1] for row in rows]
    assert "aten::addmm" in tags
    assert [int(row.split()[0]) for row in rows] == list(range(len(rows)))
    assert not ran["memory"].stderr


@pytest.mark.slow
def test_memory_without_ops_is_sampled_once_with_a_warning(ran):
    true, _, _, row = ran["no_ops"].stdout.rstrip().splitlines()
    assert true == "True"
    assert row.split()[:2] == ["0", "stop"]
    assert ran["no_ops"].stderr.count("no op ran between start and stop") == 1


@pytest.mark.slow
def test_code_of_ones_own_and_timers(ran):
    assert 20 <= float(ran["own_code"].stdout) < 2000
    log = read(ran["own_code"].folder / "profile.json")["traceEvents"]
    assert {(e["cat"], e["tid"]) for e in log} == {
        (c, c) for c in ("MemoryRequest", "ComputationOperator")
    }
    assert log[0]["args"] == {"args_string": "Count=3"}
    said = ran["own_code"].stderr.splitlines()
    assert re.fullmatch(r"Timed flushed: \S+s", said[0])
    assert said[1] == said[-1] == "Scope Timer Report:"
    shown = re.fullmatch(r"some_func: (\S+)s \(max (\S+)s, avg (\S+)s\) from 3 samples", said[2])
    total, longest, average = map(float, shown.groups())
    assert 0.03 <= total < 3
    assert average <= longest <= total
    assert total == pytest.approx(3 * average, rel=1e-4)
