"""What captures are worth: every reason on a program that it is true of, the formula, and the words."""

from __future__ import annotations

import json
import math
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import pytest
from advice.story import US, Story
from command import bridge as ran
from command import done
from hypothesis import given
from hypothesis import strategies as st
from made_reports import START_END, UNSEALED, process, thread
from made_reports import report as made_report
from real_parts import ROOT, corpus_reports, named

import bridge
from bridge import importers
from bridge.analyze.checks.quality import REASONS, Quality, quality
from bridge.analyze.checks.quality.amount import Overhead
from bridge.importers.nsys import schema
from bridge.render import units
from bridge.render.quality import sentence
from bridge.report import Report

PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
LOST = "Not all CUDA events might have been collected."
BEFORE = 1_000  # µs until the first op


def good(*, steps: int = 6, us: int = 500, **how: bool) -> Story:
    """Steps of ten kernels each, all in ops, of which nothing bad can be said."""
    story = Story(**how)
    story.now = BEFORE
    for number in range(steps):
        with story.op(f"step {number}"):
            for _ in range(10):
                story.kernel(us=us)
            story.now = story.done
    return story


def own(story: Story, start: int, end: int, name: str = "CUPTI Buffer flush", **of: int) -> None:
    row = {"start": start * US, "end": end * US, "thread": thread(100), **of}
    story.tables["overhead"].append({**row, "name": story.string(name)})


def said(story: Story, text: str, severity: int = 2, pid: int = 100) -> None:
    row = {"time": 5, "process": process(pid), "source": 2, "severity": severity}
    story.tables["diagnostics"].append({**row, "text": text})


def lost(*, of_helper: bool = False) -> Story:
    story = good()
    said(story, LOST, pid=999 if of_helper else 100)
    return story


def warned() -> Story:
    story = good()
    said(story, "The driver is newer than this nsys.")
    return story


def slowed(share: float) -> Story:
    """A profiler that takes this share of the time from the first step to the end of the last kernel."""
    story = good()
    whole = story.now - BEFORE
    own(story, BEFORE + 100, BEFORE + 100 + round(whole * share))
    return story


def dense() -> Story:
    story = good()
    for n in range(2_000):
        at = 100_000 + 5 * n
        story.annotation(59, at * US, at * US + 10, text="tiny", thread=thread(100, 2))
    return story


def called_alone() -> Story:
    story = Story()
    story.call("cudaMalloc_v3020")
    return story


def in_graphs() -> Story:
    story = good()
    with story.op("graphs"):
        story.graph(us=30_000)
    return story


def without_calls() -> Story:
    story = good()
    del story.tables["launches"][:30]
    return story


def without_ops() -> Story:
    story = good()
    del story.tables["annotations"][:]
    return story


def half_outside() -> Story:
    story = good()
    del story.tables["annotations"][:3]
    return story


def cut() -> Story:
    story = good()
    story.annotation(59, 20_000 * US, None, text="never ended", thread=thread(100))
    return story


def backwards() -> Story:
    story = good()
    story.annotation(59, 20_000 * US, 10_000 * US, text="backwards", thread=thread(100))
    return story


def skewed() -> Story:
    story = good()
    for row in story.tables["kernels"][40:]:
        row["start"] = row["start"] - 9_000 * US
        row["end"] = row["end"] - 9_000 * US
    return story


def warming() -> Story:
    story = good(steps=0)
    story.now = BEFORE
    for number, us in enumerate([2_000, *[500] * 7]):
        with story.op(f"step {number}"):
            for _ in range(10):
                story.kernel(us=us)
            story.now = story.done
    return story


TRUE_OF: dict[str, tuple[Callable[[], Story], int]] = {  # and how many points it costs there
    "dropped-records": (lost, 20),
    "profiler-warnings": (warned, 3),
    "profiler-overhead": (lambda: slowed(0.105), 13),
    "dense-ranges": (dense, 10),
    "no-kernels": (called_alone, 80),
    "opaque-graphs": (in_graphs, 20),
    "no-api-record": (without_calls, 30),
    "no-ops": (without_ops, 30),
    "outside-ops": (half_outside, 14),
    "open-ranges": (cut, 10),
    "unlawful-times": (backwards, 3),
    "skewed-clocks": (skewed, 15),
    "no-gpu-names": (lambda: good(described=False), 5),
    "short-capture": (lambda: good(us=100), 11),
    "few-steps": (lambda: good(steps=4, us=1_000), 2),
    "warm-up": (warming, 5),
}


BESIDES = {  # what is true of the program too
    "outside-ops": {"few-steps": 4},
}


def costs(joined: Report) -> dict[str, int]:
    return {one.reason.name: one.cost for one in joined.quality.reasons}


@pytest.mark.slow
def test_nothing_stands_against_a_good_capture(tmp_path):
    story = good()
    own(story, 10, 900, "CUDA profiling initialization")  # before the first op
    said(story, "Number of CUDA events collected: \t60.", severity=1)
    found = story.load(tmp_path).quality
    assert (found.score, found.reasons) == (100, ())
    assert set(found.judged) == {r.name for r in REASONS} - {"host-tracing", "unread-events"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUE_OF)
def test_a_reason_costs_its_points_where_it_is_true(name, tmp_path):
    tell, points = TRUE_OF[name]
    assert costs(tell().load(tmp_path)) == {name: points, **BESIDES.get(name, {})}


def test_every_reason_is_tried():
    assert {*TRUE_OF, "host-tracing", "unread-events"} == {reason.name for reason in REASONS}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "points"), [(30, 0), (200, 1), (20_000, 5)])
def test_what_else_was_recorded_counts_by_its_rate(rows, points, tmp_path):
    path = good().written(tmp_path / "with.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE OSRT_API (start INTEGER)")
        database.executemany("INSERT INTO OSRT_API VALUES (?)", [(1,)] * rows)
        database.execute("DROP TABLE ANALYSIS_DETAILS")  # the length of the capture is unknown
        database.commit()
    joined = bridge.load(path)
    assert joined.capture.facts[0].beside == {"calls of the OS runtime": rows}
    assert costs(joined).get("host-tracing", 0) == points
    assert importers.load(path, details=False).facts[0].beside == {}


@pytest.mark.slow
def test_the_rate_of_other_records_is_over_the_whole_capture(tmp_path):
    """Ranges may fill a part of the capture only: rates over that part would be too high."""
    path = good().written(tmp_path / "with.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE OSRT_API (start INTEGER)")
        database.executemany("INSERT INTO OSRT_API VALUES (?)", [(1,)] * 20_000)
        database.execute("UPDATE ANALYSIS_DETAILS SET duration = 2000000000")
        database.commit()
    report = bridge.load(path)
    [measured] = [d.measured for d in report.quality.reasons if d.reason.name == "host-tracing"]
    assert measured.figures == {"rows": 20_000, "rate": 10_000}


@pytest.mark.slow
def test_what_concerns_a_helper_alone_is_no_loss(tmp_path):
    assert lost(of_helper=True).load(tmp_path).quality.score == 100


@pytest.mark.slow
def test_an_error_counts_of_whatever_process(tmp_path):
    story = good()
    said(story, "The agent crashed.", severity=3, pid=999)
    assert costs(story.load(tmp_path)) == {"profiler-warnings": 3}


@pytest.mark.slow
@pytest.mark.parametrize("column", ["text", "textId"])
def test_diagnostics_are_texts_or_ids(column, tmp_path):
    story = good()
    story.tables["diagnostics"].append(
        {"time": 5, "process": process(100), "severity": 2}
        | ({"text": LOST} if column == "text" else {"text_id": story.string(LOST)})
    )
    joined = story.load(tmp_path)
    assert joined.capture.diagnostics.name.tolist() == [LOST]
    [one] = joined.quality.reasons
    assert LOST in sentence(one)


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name)
def test_points_grow_with_the_measure(reason):
    scale = reason.scale
    low, high = sorted((scale.free, scale.full))
    path = [low + (high - low) * n / 50 for n in range(51)]
    found = [scale.cost(value) for value in path]
    found = found if scale.full > scale.free else found[::-1]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, scale.points)
    assert scale.cost(scale.full * 9 + 9 if scale.full else -1) == scale.points


EVENTS = st.lists(
    st.tuples(st.integers(0, 9_000), st.integers(0, 4_000), st.integers(1, 3)), max_size=8
)


@pytest.mark.slow
@given(events=EVENTS)
def test_the_profilers_own_time_by_counting(events, tmp_path_factory):
    """Microsecond by microsecond: which of them any overhead of the launching thread covers."""
    story = good(steps=1, us=500)
    story.now += 5_000
    for start, length, number in events:
        own(story, start, start + length, thread=thread(100, number))
    joined = story.load(tmp_path_factory.mktemp("own"))
    first, last = BEFORE, max(row["end"] for row in story.tables["kernels"]) // US
    last = max(last, *(row["end"] // US for row in story.tables["annotations"]))
    covered = {
        at
        for start, length, number in events
        if number == 1
        for at in range(max(start, first), min(start + length, last))
    }
    found = Overhead.of(joined.attributed)
    assert found.own == len(covered) * US
    if events:
        assert found.window == (last - first) * US


@pytest.mark.slow
def test_overhead_of_no_known_thread_counts(tmp_path):
    story = good()
    own(story, BEFORE + 100, BEFORE + 5_000, thread=process(100))
    assert "profiler-overhead" in costs(story.load(tmp_path))


def test_two_processes_have_their_own_times(tmp_path):
    story = good()
    first = story.now
    story.pid, story.now, story.done = 101, first + 100_000, 0
    with story.op("step 0"):
        for _ in range(10):
            story.kernel(us=500)
        story.now = story.done
    own(story, first + 10, first + 90_000)  # the first is done, the second has not begun
    own(story, first + 10, first + 90_000, thread=thread(101))
    assert Overhead.of(story.load(tmp_path).attributed).own == 0


@pytest.mark.slow
def test_phases_are_no_dense_ranges(tmp_path):
    story = good()
    for n in range(2_000):
        story.annotation(START_END, n, n + 1, text="phase", thread=thread(100))
    assert costs(story.load(tmp_path)) == {}


@pytest.mark.slow
def test_a_recording_is_judged_by_what_it_has(tmp_path):
    story = Story(described=False)
    with story.op("host"):
        story.rest(100)
    found = story.load(tmp_path).quality
    assert found.score is None  # nothing ran on a GPU
    assert found.judged == ("dense-ranges", "open-ranges", "unlawful-times")


@pytest.mark.slow
def test_the_same_report_has_the_same_score_from_the_store(folder):
    path = made_report(folder / "made.sqlite")
    first = bridge.load(path).quality
    done("import", path, "--quiet")
    kept = json.loads(done("doctor", "--run", "1", "--format", "json"))
    again = json.loads(done("doctor", path, "--format", "json"))
    assert kept == again
    assert kept["score"] == first.score
    assert [one["reason"] for one in kept["reasons"]] == [one.reason.name for one in first.reasons]
    assert f"quality {first.score:>3}  " in done("runs", "list")
    assert f"capture quality {first.score} of 100, " in done("runs", "show", "1")


@pytest.mark.slow
def test_import_says_it_in_a_line(folder):
    good_one = good().written(folder / "good.sqlite")
    other = half_outside().written(folder / "other.sqlite")
    assert "quality" not in done("import", good_one)
    other_lines = done("import", other).splitlines()
    assert other_lines[-1] == (
        "capture quality 82 of 100, usable: 50.0 % of GPU time was launched outside any op; 1 more reason"
        " → bridge doctor --run 2"
    )
    assert "quality" not in done("import", other, "--quiet")


@pytest.mark.slow
def test_the_forms(folder):
    path = slowed(0.105).written(folder / "slow|ed.sqlite")
    text = done("doctor", path)
    assert text.startswith(
        "ok    slow|ed.sqlite: readable, recorded by Nsight Systems 2099.1.2.3-456v0\n\n"
        "capture quality 87 of 100, usable (14 checks apply)\n\n−13 profiler-overhead\n"
    )
    assert "10.5 % of the time is the profiler's own: " in text
    assert "CUPTI Buffer flush      1" in text
    markdown = done("doctor", path, "--format", "md")
    assert "| 13 | `profiler-overhead` | 10.5 % of the time" in markdown
    document = json.loads(done("doctor", path, "--format", "json"))
    assert document["format"] == "bridge.quality/1"
    [one] = document["overhead"]
    assert one["total_ns"] == one["inside_ns"] == document["reasons"][0]["figures"]["own_ns"]
    done("doctor", path, "-o", "q.md")
    assert (folder / "q.md").read_text(encoding="utf-8") == markdown
    assert ran("doctor", path, "-o", "q.md").exit_code == 1


@pytest.mark.slow
def test_the_page_has_it(folder):
    path = slowed(0.105).written(folder / "slowed.sqlite")
    done("html", path, "-o", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert '"quality":{"score":87,"first":"10.5 % of the time' in page


@pytest.mark.slow
def test_the_trace_draws_the_profilers_work(folder):
    story = good()
    own(story, 10, 900, "before the first event")
    own(story, BEFORE + 100, BEFORE + 200, "flush")
    own(story, BEFORE + 150, BEFORE + 250, "crossing")
    own(story, story.now + 500, story.now + 600, "after the last")
    path = story.written(folder / "owned.sqlite")
    done("trace", path, "-o", "t.json")
    events = json.loads((folder / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    drawn = [e for e in events if e.get("cat") == "overhead"]
    assert [(e["name"], e["ts"], e["dur"]) for e in drawn] == [
        ("flush", 100, 100),
        ("crossing", 150, 100),
    ]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [names[e["tid"]] for e in drawn] == [
        "thread 1 profiler overhead",
        "thread 1 profiler overhead (2)",
    ]
    done("trace", path, "-o", "s.json", "--slim")
    assert '"overhead"' not in (folder / "s.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_trace_draws_calls_of_the_operating_system(folder):
    story = good()
    calls = (
        (BEFORE + 100, BEFORE + 300, "fread", thread(100)),
        (BEFORE + 120, BEFORE + 200, "read", thread(100)),  # within fread
        (BEFORE + 250, BEFORE + 400, "poll", thread(100)),  # crosses it, which only clocks can do
        (BEFORE + 100, BEFORE + 300, "sem_wait", thread(100) + 1),  # no range, no API call
        (10, 900, "brk", thread(100)),  # before the first event
    )
    for start, end, name, of in calls:
        row = {"start": start * US, "end": end * US, "thread": of, "name": story.string(name)}
        story.tables["system_calls"].append(row)
    done("trace", story.written(folder / "os.sqlite"), "-o", "t.json")
    events = json.loads((folder / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    drawn = [e for e in events if e.get("cat") == "osrt"]
    assert [(e["name"], e["ts"], e["dur"]) for e in drawn] == [
        ("fread", 100, 200),
        ("read", 120, 80),
        ("poll", 250, 150),
    ]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [names[e["tid"]] for e in drawn] == [
        "thread 1 OS runtime",
        "thread 1 OS runtime",
        "thread 1 OS runtime (2)",
    ]
    done("trace", folder / "os.sqlite", "-o", "s.json", "--slim")
    assert '"osrt"' not in (folder / "s.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_work_that_begins_with_its_call_is_no_skew(tmp_path):
    story = good()
    called = {row["correlation"]: row["start"] for row in story.tables["launches"]}
    for row in story.tables["kernels"]:
        row["start"] = called[row["correlation"]]
    assert "skewed-clocks" not in costs(story.load(tmp_path))


@pytest.mark.slow
def test_only_some_time_is_judged(tmp_path):
    whole = half_outside().load(tmp_path)
    assert "outside-ops" not in costs(whole.within(steps=(4, 5)))


def amount(unit: str, value: float) -> str:
    if not value:
        return "0"
    written: dict[str, Callable[[float], str]] = {
        "ns": units.time,
        "share": units.percent,
        "count": units.count,
        "per second": lambda number: f"{units.count(number)} per s",
    }
    return written[unit](value)


def test_the_docs_list_all_reasons_as_they_are():
    for r in REASONS:
        unit, free, full, points = astuple(r.scale)
        limits = f"{amount(unit, free)} | {amount(unit, full)} | {points}"
        assert f"| `{r.name}` | {r.title} | {limits} | {r.remedy} |\n" in PAGE
    listed = PAGE.partition("## The reasons")[2]
    assert listed.count("\n| `") == len(REASONS)


SCORES = tomllib.loads((Path(__file__).parent / "scores.toml").read_text(encoding="utf-8"))
NOT_READ = ("failed-export", "no-kernels-osrt")


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite", "kineto/*"))
def test_the_score_of_real_profiles_is_what_was_checked_by_hand(path):
    name = path.name.partition(".")[0]
    if name in NOT_READ:
        pytest.skip("nothing recorded in this file, by design")
    found = bridge.load(path).quality
    why = ", ".join(f"{one.reason.name} {one.cost}" for one in found.reasons) or "–"
    score = "none" if found.score is None else found.score
    assert (SCORES[name]["score"], SCORES[name]["reasons"]) == (score, why)
    if found.score is not None:
        assert found.score == max(0, 100 - sum(one.cost for one in found.reasons))


@pytest.mark.slow
def test_the_docs_have_scores_of_profiles_alone(corpus):
    assert set(SCORES) <= {named(path) for path in corpus.glob("*/*.*")}


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("ncu/*"))
def test_a_report_of_nsight_compute_is_not_punished_for_what_it_is(path):
    if path.suffix == ".ncu-rep":
        pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    assert bridge.load(path).quality.score == 100


@pytest.mark.slow
def test_overhead_is_what_the_file_says(corpus):
    files = compared = 0
    for path in sorted(corpus.glob("nsys/*.sqlite")):
        if path.stem in NOT_READ:
            continue
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            name = schema.OVERHEAD.name
            is_there = "SELECT count(*) FROM sqlite_master WHERE name = ?"
            if not database.execute(is_there, [name]).fetchone()[0]:
                rows = []
            else:
                rows = database.execute(f"SELECT start, end, globalTid FROM {name}").fetchall()
        table = importers.load(path).overhead
        assert [*zip(table["start"], table["end"], table["thread"], strict=True)] == rows
        files += len(rows) > 0
        compared += len(rows)
    assert files >= 19  # measured: 19 files with any, 486 rows in all
    assert compared >= 480


@pytest.mark.slow
def test_a_scrubbed_report_has_no_messages(folder):
    story = good()
    story.tables["diagnostics"].append(
        {"time": 5, "process": process(100), "severity": 2, "text_id": story.string(LOST)}
    )
    path = story.written(folder / "lost.sqlite")
    done("scrub", path, "shared.sqlite")
    assert b"might have been" not in (folder / "shared.sqlite").read_bytes()
    assert isinstance(bridge.load(folder / "shared.sqlite").quality, Quality)


@pytest.mark.slow
def test_a_store_of_before_has_no_score(folder):
    path = made_report(folder / "made.sqlite")
    done("import", path, "--quiet")
    with closing(sqlite3.connect(folder / "bridge.db")) as database:
        for statement in (
            "DROP TABLE overhead",
            "DROP TABLE diagnostics",
            "DELETE FROM extents WHERE [table] IN ('overhead', 'diagnostics')",
            "ALTER TABLE runs DROP COLUMN quality",
            "ALTER TABLE reports DROP COLUMN beside",
            "PRAGMA user_version = 7",
            *UNSEALED,
        ):
            database.execute(statement)
        database.commit()
    assert "not rated    made.sqlite" in done("runs", "list")
    assert "capture quality" not in done("runs", "show", "1")
    assert 0 < json.loads(done("doctor", "--run", "1", "--format", "json"))["score"] < math.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tell", "score"),
    [
        (good, 100),
        # Of six equal steps three lie in no op. Outside: (50 % - 10 %) / 90 % of 30 points, rounded up.
        # Steps: 3 where 5 are enough, so two fifths of 10 points.
        (half_outside, 100 - 14 - 4),
        # A call of CUDA and no kernel: nothing ran on a GPU that could be judged.
        (called_alone, None),
        # One warning of the two that cost all 5 points: 2.5, rounded up.
        (warned, 100 - 3),
    ],
)
def test_quality_is_of_what_was_attributed(tell, score, tmp_path):
    joined = tell().load(tmp_path)
    assert quality(joined.attributed).score == joined.quality.score == score
