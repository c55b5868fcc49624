"""What programs of MXNet and RAF rely on, in small: parts of custom operators, values, devices, expressions."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.compat import raf
from bridge.compat.calls import Call, RecordedEvents, call_times
from bridge.compat.mxnet.custom_op import split_custom_ops
from bridge.compat.raf.values import FloatImm, IntImm


def call(number: int, name: str, start: int, end: int, category: str = "", thread: int = 1) -> Call:
    return Call(name, "", category, False, False, 1, thread, start, end, number, {})


@st.composite
def programs(draw) -> list[Call]:
    """Draw nested calls of one thread, some of which are custom operators or calls of the API."""
    found: list[Call] = []

    def fill(first: int, last: int, depth: int) -> None:
        at = first
        while depth < 4 and last - at > 4 and draw(st.booleans()):
            start = draw(st.integers(at, last - 2))
            end = draw(st.integers(start + 1, last))
            category = draw(st.sampled_from(["custom_op", "api", "", ""]))
            found.append(call(len(found), draw(st.sampled_from("abc")), start, end, category))
            fill(start, end, depth + 1)
            at = end

    fill(0, 60, 0)
    return sorted(found, key=lambda c: (c.start, -c.end, c.payload))


@given(programs())
def test_parts_are_those_of_a_plain_loop(calls: list[Call]) -> None:
    """Every instant of a custom operator is its own code or that of the outermost ops right in it."""
    truth: dict[str, int] = defaultdict(int)
    counted: dict[str, int] = defaultdict(int)
    operators = [c for c in calls if c.category != "api"]

    def around(inner: Call) -> list[Call]:
        place = calls.index(inner)
        return [
            c
            for c in calls[:place]
            if c.start <= inner.start and inner.end <= c.end and c.category != "api"
        ]

    for one in operators:
        custom = [c for c in around(one) if c.category == "custom_op"]
        if one.category == "custom_op":
            inside = [c for c in operators if c is not one and one in around(c)]
            own = sum(
                not any(c.start <= at < c.end for c in inside) for at in range(one.start, one.end)
            )
            truth[f"{one.name}::pure_python"] += own
            counted[f"{one.name}::pure_python"] += 1
        elif custom:
            truth[f"{custom[-1].name}::{one.name}"] += one.end - one.start
            counted[f"{custom[-1].name}::{one.name}"] += 1
    found, times = defaultdict(int), defaultdict(int)
    for name, ns in call_times(
        c for c in split_custom_ops(RecordedEvents(tuple(calls))).calls if "::" in c.name
    ):
        found[name] += ns
        times[name] += 1
    assert (found, times) == (truth, counted)


def test_backward_passes_have_the_names_of_mxnet():
    recorded = RecordedEvents(
        (call(1, "MyOpBackward", 0, 10, "custom_op"), call(2, "aten::mul", 2, 4))
    )
    assert [c.name for c in split_custom_ops(recorded).calls] == [
        "_backward_MyOp::pure_python", "_backward_MyOp::aten::mul", "_backward_MyOp::pure_python",
    ]  # fmt: skip


def test_numbers_are_plain_and_have_a_value():
    number, count = FloatImm(1.5), IntImm(3)
    assert (number, number.value, number + 1, json.dumps(number)) == (1.5, 1.5, 2.5, "1.5")
    assert (count, count.value, [10, 20, 30, 40][count]) == (3, 3, 40)
    assert type(number.value) is float
    assert type(count.value) is int


@pytest.mark.parametrize(
    ("given", "text"),
    [("cpu", "cpu(0)"), ("cuda", "cuda(0)"), ("gpu(1)", "cuda(1)"), ("cuda:2", "cuda(2)")],
)
def test_devices(given, text):
    assert str(raf.Device(given)) == text
    assert str(raf.Device(raf.Device(given))) == text


def test_other_devices_are_refused():
    assert (str(raf.cpu()), str(raf.cuda(3))) == ("cpu(0)", "cuda(3)")
    with pytest.raises(ValueError, match="no device"):
        raf.Device("tpu")


def test_the_names_that_programs_import():
    from bridge.compat.raf.utils import memory_profiler, profiler

    from bridge.compat.raf._ffi.op_profiler import Profile

    assert raf.op_profiler.Profile is Profile
    assert (raf.utils.profiler, raf.utils.memory_profiler) == (profiler, memory_profiler)
    assert raf._ffi.scope_timer is raf.scope_timer
