"""Frames per second, in the table and in the trace, against a plain loop; markers with their scopes."""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import fmean

import pytest
from made_reports import MARK, PUSH_POP, START_END, Made, thread

from bridge.report import load

FRAME, SCOPES = (
    5,
    {"global": "g", "process": "p", "thread": "t", "task": "p", "marker": "p", "": "t"},
)
FRAMES = [  # name, domain, process, kind, start, end; of a frame that never ended None
    ("frame", 3, 100, START_END, 1_000, 1_500),
    ("frame", 3, 100, START_END, 3_000, 3_100),
    ("frame", 3, 100, START_END, 4_000, 4_900),
    ("frame", 3, 101, START_END, 2_000, 2_100),
    ("frame", 4, 100, PUSH_POP, 1_200, 1_300),
    ("frame", 4, 100, PUSH_POP, 2_200, 2_800),
    ("other", 4, 100, PUSH_POP, 2_250, 2_251),
    ("other", 4, 100, PUSH_POP, 2_251, 2_300),
]
DOMAINS = {3: "game", 4: "video"}


@pytest.fixture
def game(tmp_path):
    made = Made()
    for pid in (100, 101):
        host = {"thread": thread(pid)}
        for number, name in DOMAINS.items():
            made.annotation(75, 1, None, text=name, domain=number, **host)
            made.annotation(33, 1, None, text="frame", category=FRAME, domain=number, **host)
    for name, domain, pid, kind, start, end in FRAMES:
        where = {"domain": domain, "thread": thread(pid), "category": FRAME}
        made.annotation(kind, start, end, text=name, **where)
    made.annotation(PUSH_POP, 1_000, 9_000, text="no frame", thread=thread(100))
    for number, scope in enumerate(SCOPES, start=20):
        host = {"thread": thread(100)}
        if scope:
            made.annotation(33, 1, None, text=scope, category=number, **host)
        category = {"category": number} if scope else {}
        made.annotation(MARK, 100 * number, None, text=f"mark {scope}", **category, **host)
    return load(made.written(tmp_path / "made.sqlite"))


def test_the_table_is_that_of_a_plain_loop(game):
    series = defaultdict(list)
    for name, domain, pid, _, start, end in FRAMES:
        series[name, DOMAINS[domain], pid].append((start, end))
    found = game.by("frame").set_index(["frame", "domain", "pid"])
    assert set(found.index) == set(series)
    for key, spans in series.items():
        begun, lengths = [s for s, _ in spans], [e - s for s, e in spans]
        span = max(begun) - min(begun)
        row = found.loc[key]
        assert row["frames"] == len(spans)
        assert row["frames_per_s"] == pytest.approx((len(spans) - 1) / span * 1e9 if span else -1)
        assert row["mean_ns"] == pytest.approx(fmean(lengths))
        assert (row["p50_ns"], row["max_ns"]) == (
            sorted(lengths)[len(lengths) // 2] if len(lengths) % 2 else fmean(lengths),
            max(lengths),
        )


def test_the_trace_has_a_curve_of_rates_and_scopes_of_marks(game, tmp_path):
    game.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    rates = sorted(
        (e["name"], e["pid"], e["args"]["value"])
        for e in events
        if e["ph"] == "C" and "frames/s" in e["name"]
    )
    truth = []
    last = {}
    for name, domain, pid, _, start, _ in FRAMES:
        before = last.get((name, domain, pid))
        if before is not None:
            truth.append((f"frames/s {name}", pid, round(1e9 / (start - before), 3)))
        last[name, domain, pid] = start
    assert rates == sorted(truth)
    marks = {e["name"]: e["s"] for e in events if e["ph"] == "i" and e["name"].startswith("mark ")}
    assert marks == {f"mark {scope}": letter for scope, letter in SCOPES.items()}


def test_a_report_without_frames_says_what_makes_them(tmp_path):
    from command import bridge
    from made_reports import report

    done = bridge("report", report(tmp_path / "a.sqlite"), "--by", "frame")
    assert "no range has the category frame" in done.output
