"""What is no report of Nsight Compute gets one clear line; so does what a report without a timeline cannot show."""

from __future__ import annotations

import csv
import sys

import pandas as pd
import pytest
from command import assert_misused, assert_refused, bridge, refused
from made_ncu import kernel, raw
from made_reports import small

from bridge import importers
from bridge.importers import ReportError

HEAD = raw([])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("a,b\n1,2\n", ["no table of Nsight Compute"]),
        ("\n", ["no table of Nsight Compute"]),
        (HEAD, ["without a kernel"]),
        (HEAD.splitlines()[0], ["without a kernel"]),
        (HEAD.replace('"Device"', '"Invocations"'), ["summary", "--print-summary"]),
        (raw([kernel("x" * 200_000)]), ["invalid CSV"]),
    ],
)
def test_csv(tmp_path, text, words):
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    refused(path, *words)


def test_bytes_of_anything(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(bytes(range(256)) * 40)
    refused(path, "no table of Nsight Compute")


def test_a_report_cut_off_anywhere(corpus, tmp_path):
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    whole = (corpus / "ncu" / "simple-divergence.ncu-rep").read_bytes()
    path = tmp_path / "x.ncu-rep"
    for size in [3, 4, 5, 8, 9, *range(10, len(whole), 4999), len(whole) - 1]:
        path.write_bytes(whole[:size])
        message = refused(path)
        assert (
            "cut off or damaged" in message
            or "not a report of Nsight Compute" in message
            or ("no kernel was profiled" in message)
        ), size


@pytest.mark.parametrize(
    "data", [b"NVR", b"SQLite format 3\0" * 9, b"\0" * 64, b"NVR\0" + b"\xff" * 99]
)
def test_something_else_called_ncu_rep(tmp_path, data):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(data)
    refused(path)


FAKE_NCU = """#!/bin/sh
echo "$@" >>'{log}'
{otherwise}
"""


def put_ncu(folder, monkeypatch, otherwise):
    """Put an ncu on the PATH, alone, that writes down its arguments."""
    here = folder / "bin"
    here.mkdir()
    (here / "ncu").write_text(FAKE_NCU.format(log=folder / "log", otherwise=otherwise))
    (here / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:/usr/bin:/bin")
    monkeypatch.setitem(sys.modules, "ncu_report", None)


def test_with_neither_library_nor_ncu(corpus, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(corpus / "ncu" / "simple-divergence.ncu-rep", "pip install ncu-report", "PATH", "--csv")


@pytest.mark.slow
def test_without_the_library_ncu_prints_the_report(corpus, monkeypatch, tmp_path):
    """What ncu printed of this report, recorded, gives the figures of its CSV."""
    report, printed = (
        corpus / "ncu" / f"simple-divergence.{form}" for form in ("ncu-rep", "raw.csv")
    )
    put_ncu(tmp_path, monkeypatch, f"exec cat '{printed}'")
    ours, theirs = importers.load(report), importers.load(printed)
    assert (tmp_path / "log").read_text() == (
        f"--import {report} --csv --page raw --print-units base\n"
    )
    pd.testing.assert_frame_equal(ours.activities.to_pandas(), theirs.activities.to_pandas())
    pd.testing.assert_frame_equal(ours.metrics.table.to_pandas(), theirs.metrics.table.to_pandas())
    assert any("without its rules" in line for line in ours.facts[0].warnings)
    with printed.open() as file:
        rows = [row for row in csv.DictReader(file) if row["ID"]]
    assert ours.activities["name"].tolist() == [
        row["Kernel Name"].partition("(")[0] for row in rows
    ]


@pytest.mark.slow
def test_an_ncu_that_cannot_read_the_report(corpus, monkeypatch, tmp_path):
    put_ncu(tmp_path, monkeypatch, "echo '==ERROR== made by a newer version'; exit 1")
    refused(
        corpus / "ncu" / "simple-divergence.ncu-rep", "cannot read it", "made by a newer version"
    )


@pytest.mark.slow
def test_an_ncu_that_prints_no_table(corpus, monkeypatch, tmp_path):
    put_ncu(tmp_path, monkeypatch, "echo hello")
    refused(corpus / "ncu" / "simple-divergence.ncu-rep", "no table of Nsight Compute")


@pytest.fixture
def two_exports(folder):
    (folder / "x.csv").write_text(raw([kernel("k", pushed=["op"])]), encoding="utf-8")
    (folder / "y.csv").write_text(raw([kernel("k")]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("by", ["step", "gap", "idle", "range", "device", "launch", "wait"])
def test_tables_that_need_a_timeline(two_exports, by):
    assert_misused(bridge("report", "x.csv", "--by", by), "no timeline")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metrics", "speed"], ["no metric 'speed'", "--metrics list"]),
        (["--by", "memcpy", "--metrics", "occupancy"], ["no metrics for view 'memcpy'"]),
        (["--by", "api", "--metrics", "occupancy"], ["no metrics by API call"]),
        (["--by", "op-kernel", "--inclusive", "--metrics", "occupancy"], ["--inclusive"]),
        (["--columns", "cpu_self"], ["no cpu_self_ns"]),
        (["--ncu", "y.csv"], ["--ncu goes with a report that has a timeline"]),
    ],
)
def test_options_that_do_not_go(two_exports, options, words):
    assert_misused(bridge("report", "x.csv", *options), *words)


@pytest.mark.slow
def test_reports_of_two_kinds(two_exports, corpus):
    nsys = next(corpus.rglob("*.sqlite"))
    assert_refused(bridge("report", "x.csv", str(nsys)), "--ncu")
    assert_refused(bridge("report", str(nsys), "--ncu", str(nsys)), "no report of Nsight Compute")
    assert_misused(
        bridge("report", str(nsys), "--metrics", "occupancy"), "no metrics in the report"
    )


def test_one_of_a_kind_beside_one_with_a_timeline_is_refused(two_exports):
    """Its kernels would be counted twice; that several of either kind are taken stands elsewhere."""
    small(two_exports / "a.sqlite")
    for order in (("x.csv", "a.sqlite"), ("a.sqlite", "x.csv")):
        with pytest.raises(
            ReportError, match=r"^x\.csv: Nsight Compute's, the other reports are not; .* --ncu"
        ):
            importers.load(*order)
