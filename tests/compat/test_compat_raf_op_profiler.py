"""RAF's op profiler: latencies in µs, one per repeat, each of exec_number calls; and its cache."""

from __future__ import annotations

import time
from functools import partial

import pytest

from bridge.bench.devices import host
from bridge.compat.raf import op_profiler


@pytest.fixture(autouse=True)
def _forget():
    op_profiler.ResetCache()
    yield
    op_profiler.ResetCache()


def test_latencies_are_means_of_the_calls_in_us(monkeypatch):
    now, calls = [0], []
    monkeypatch.setattr(host, "perf_counter_ns", lambda: now[0])

    def op(ns):
        calls.append(ns)
        now[0] += ns * len(calls)  # each takes longer than the one before

    found = op_profiler.Profile((op, 1000), "cpu", 2, 3, 4)
    assert list(found) == ["latency", "workspace_size"]
    assert len(calls) == 1 + 2 + 3 * 4  # one to begin with
    assert found["latency"] == [5.0, 8.0, 11.0, 14.0]  # of calls 4 to 6, 7 to 9 …
    assert found["workspace_size"] == -1


def test_defaults_are_those_of_raf():
    assert len(op_profiler.Profile(partial(sum, [1]), "cpu")["latency"]) == 1


def test_what_is_no_call_takes_no_time_and_is_not_kept():
    assert op_profiler.Profile(("a", "b"), "cpu", 1, 1, 3) == {
        "latency": [0.0] * 3,
        "workspace_size": 0.0,
    }
    assert op_profiler.ProfileGroup(["a"], "cpu") == {"latency": [0.0], "workspace_size": 0.0}
    assert op_profiler.GetCacheSize("cpu") == 0


def test_the_cache():
    call = (sum, [1, 2])
    first = op_profiler.Profile(call, "cpu(0)")
    assert op_profiler.Profile(call, "cpu(0)") == first
    assert op_profiler.GetCacheSize("cpu") == 1
    op_profiler.Profile(call, "cpu", 10, 10, 2)
    op_profiler.ProfileGroup([call, call], "cpu")
    assert op_profiler.GetCacheSize("cpu") == op_profiler.GetCacheSize() == 3
    op_profiler.ResetCache("cpu")
    assert op_profiler.GetCacheSize("cpu") == 0


@pytest.mark.slow
def test_a_group_on_the_cpu_is_one_after_another():
    naps = [(time.sleep, 0.004), "no call", (time.sleep, 0.006)]
    found = op_profiler.ProfileGroup(naps, "cpu", [0, 1, 2], 0, 2, 3)
    assert len(found["latency"]) == 3
    assert min(found["latency"]) >= 10_000


def test_only_the_first_device_of_a_kind():
    with pytest.raises(ValueError, match="first device of a kind, not cpu\\(1\\)"):
        op_profiler.Profile(sum, "cpu(1)")
    with pytest.raises(ValueError, match="2 streams for 1 expressions"):
        op_profiler.ProfileGroup([sum], "cpu", [0, 1])
