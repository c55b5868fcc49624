"""What is said first of every real profile: expectations from SQL over its rows, and from reading what it printed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bridge import load
from bridge.analyze.checks.failures import failures

# Errors in the rows that are no failures, with the reason, by call and value. All others are.
NO_FAILURES = {
    ("cudaEventQuery", 600): "not ready: an answer",
    ("cuEventQuery", 600): "not ready: an answer",
    (
        "cuIpcOpenMemHandle",
        217,
    ): "the same call on the same thread in the op MPI succeeds 90 ms later",
}
ROWS = {  # returned values other than 0, by file: SELECT name, returnValue, count(*) GROUP BY 1, 2
    "gtls-no-nvtx": {("cudaEventQuery", 600): 31},
    "jacobi-mpi-two-loops": {("cuEventQuery", 600): 7_028, ("cuIpcOpenMemHandle", 217): 1},
    "pytorch-hand-annotated": {("cudaEventQuery", 600): 14},
    "two-processes": {("cudaEventQuery", 600): 21},
}
SAID = {  # the kinds of what is said first; nothing of all other files
    "tensorrt-ranges-only": ["not-recorded"],
}
# No program of the corpus prints an error, and no profiler says that records were dropped, in these files:
WITH_OUTPUT = 15  # files with ProcessStreams; failed-export is one of them
UNREADABLE = {"failed-export", "no-kernels-osrt"}  # hold nothing that can be shown


def profiles(corpus: Path) -> list[Path]:
    return sorted((corpus / "nsys").glob("*.sqlite"))


def returned(path: Path) -> Counter[tuple[str, int]]:
    """Count the calls that returned another value than 0, by name without version."""
    query = (
        "SELECT s.value, r.returnValue FROM CUPTI_ACTIVITY_KIND_RUNTIME r"
        " JOIN StringIds s ON s.id = r.nameId WHERE r.returnValue != 0"
    )
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        try:
            rows = database.execute(query).fetchall()
        except sqlite3.OperationalError:  # no such table or column
            return Counter()
    return Counter((name.partition("_v")[0], value) for name, value in rows)


@pytest.mark.slow
def test_what_is_said_first_of_each_real_profile(corpus: Path) -> None:
    told = {}
    for path in profiles(corpus):
        if path.stem in UNREADABLE:
            continue
        rows = returned(path)
        assert rows == ROWS.get(path.stem, {}), path.stem
        report = load(path)
        assert (report.attributed.capture.launches.result > 0).sum() == rows.total()
        assert set(rows) <= set(NO_FAILURES)
        told[path.stem] = [one.kind for one in failures(report.attributed)]
    assert {name: kinds for name, kinds in told.items() if kinds} == SAID
    assert len(told) == 34


@pytest.mark.slow
def test_no_line_of_a_real_program_is_called_an_error(corpus: Path) -> None:
    printed = 0
    for path in profiles(corpus):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
        printed += "ProcessStreams" in names
        if path.stem not in UNREADABLE:
            table = load(path).capture.diagnostics
            assert table["name"][table["source"] == 100].tolist() == [], path.stem
    assert printed == WITH_OUTPUT
