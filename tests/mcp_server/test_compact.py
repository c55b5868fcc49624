"""Documents of a few bytes: what they hold, what they leave out, and that they say so."""

from __future__ import annotations

import json

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from bridge.render.compact import LONGEST, NEXT, Rows, as_text


def frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "op": [f"op {n}" for n in range(rows)],
            "total_ns": range(rows),
            "mean_ns": 0.5 + 2 * pd.Series(range(rows)),
        }
    )


@given(st.integers(0, 60), st.integers(1, 80), st.integers(0, 70), st.integers(100, 3_000))
def test_rows_that_do_not_fit_are_left_out_and_counted(rows, top, skip, limit):
    text = as_text({"rows": Rows.of_frame(frame(rows), top, skip)}, limit, f"skip={NEXT}")
    document = json.loads(text)
    shown = document["rows"]
    assert [row[1] for row in shown] == list(range(skip, skip + len(shown)))
    left = max(0, rows - skip - len(shown))
    assert document.get("left_out", 0) == left
    assert document.get("more") == (f"skip={skip + len(shown)}" if left else None)
    assert len(text.encode()) <= limit + 50 or len(shown) <= 1


@given(st.integers(0, 40), st.integers(0, 40), st.integers(150, 2_000))
def test_the_longest_of_several_tables_is_cut_first(first, second, limit):
    tables = {"a": Rows.of_frame(frame(first), 40), "b": Rows.of_frame(frame(second), 40)}
    document = json.loads(as_text(tables, limit))
    sizes = {name: len(document[name]["rows"]) if name in document else 0 for name in tables}
    cut = [name for name, whole in (("a", first), ("b", second)) if sizes[name] < whole]
    for name in cut:
        assert sizes[name] >= max(sizes.values()) - 1
    assert all(document[name]["left_out"] for name in cut)


def test_times_are_whole_and_other_figures_have_four_digits():
    rows = [
        {
            "mean_ns": 762030.6949,
            "share": 0.0337137815,
            "bytes": 123456789,
            "ratio": 2.0,
            "note": "x" * 500,
        }
    ]
    [row] = json.loads(as_text({"rows": Rows.of(rows)}, 4_000))["rows"]
    assert row[:4] == [762031, 0.03371, 123456789, 2]
    assert len(row[4]) == LONGEST
    assert row[4].endswith("…")


def test_what_is_not_known_is_left_out():
    text = as_text({"a": None, "b": [], "c": {}, "d": "", "e": {"f": None, "g": 0}, "h": -1}, 4_000)
    assert json.loads(text) == {"e": {"g": 0}, "h": -1}
