"""Times are exact: whole nanoseconds of whatever the trace wrote, not what a float made of it."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.importers.kineto.events import MAX_NS, UNKNOWN, integers, nanoseconds

decimals = st.decimals(-(10**15), 10**16, allow_nan=False, allow_infinity=False, places=6)


@pytest.mark.slow
@given(st.lists(st.integers(-(2**70), 2**70) | decimals | st.none() | st.text(max_size=5)))
def test_microseconds_become_nanoseconds_exactly(values):
    written = [format(v, "f") if isinstance(v, Decimal) else v for v in values]
    found = nanoseconds(written).tolist()
    for value, ns in zip(values, found, strict=True):
        if isinstance(value, int | Decimal):
            exact = int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_UP))
            assert ns == (exact if abs(exact) < MAX_NS else UNKNOWN)
        elif value is None:
            assert ns == UNKNOWN


@given(st.integers(0, 2 * 10**18))
def test_three_decimals_of_a_time_of_today_are_kept(ns):
    text = f"{ns // 1000}.{ns % 1000:03d}"
    read = json.loads(text, parse_float=str)
    assert nanoseconds([read]).tolist() == [ns]
    if ns > 10**18 and ns % 1000 not in {0, 250, 500, 750}:
        assert Decimal(float(text)) != Decimal(text)  # why they are not read as floats


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("1.0005", 1001), ("1.00049999", 1000), ("-0.0005", -1), (".5", 500), ("5.", 5000), ("1e3", 1_000_000),
        ("1.7121954955e+15", 1_712_195_495_500_000_000), (" 7 ", 7000), ("4e-05", 0), (7, 7000), ("7", 7000),
        ("1e400", UNKNOWN), ("NaN", UNKNOWN), ("sNaN", UNKNOWN), ("-Infinity", UNKNOWN), ("", UNKNOWN),
        ("²", UNKNOWN), ("9" * 50, UNKNOWN), (10**400, UNKNOWN), (-(2**63), UNKNOWN), (True, UNKNOWN),
        ([1], UNKNOWN), ({}, UNKNOWN), ("1e99999999999999999999", UNKNOWN),
    ],
)  # fmt: skip
def test_what_is_written_otherwise(written, ns):
    assert nanoseconds([written, "1.5"]).tolist() == [ns, 1500]


@pytest.mark.parametrize(
    ("written", "number"),
    [(7, 7), ("7", 7), (-7, -7), ("7.0", -1), (True, -1), (None, -1), (10**30, -1), ("x", -1), ([], -1), ("²", -1)],
)  # fmt: skip
def test_integers(written, number):
    assert integers([written]).tolist() == [number]


def test_nothing():
    assert nanoseconds([]).tolist() == integers([]).tolist() == []
