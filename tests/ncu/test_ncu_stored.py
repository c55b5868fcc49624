"""Runs of the store with what Nsight Compute measured: as the files give it, and plain SQL to everybody else."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import counters
import pandas as pd
import pytest
from command import assert_misused, assert_refused, done, inside
from command import bridge as run
from made_reports import UNSEALED
from read_once import reading_once
from real_parts import NIGHT

from bridge import importers, store
from bridge.report import join
from bridge.store.tables import VERSION

pytestmark = pytest.mark.slow


FILES = (
    *("cutlass-gemm-nvtx.ncu-rep", "cutlass-gemm-int8.ncu-rep", "cuda-graph.ncu-rep"),
    *("simple-divergence.ncu-rep", "simple-divergence.raw.csv", "simple-divergence.details.csv"),
    *("copy-blocked.details.csv", "llm-kernel.details.csv", "llm-kernel.metrics.csv"),
)


@pytest.fixture
def given(folder):
    return written(folder)


def written(folder):
    counters.timeline(folder / "t.sqlite")
    counters.counters(folder / "c.csv")
    counters.advised(folder / "rules.csv")
    return folder


def ask(db, sql, *values):
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(sql, values).fetchall()


def assert_alike(ours, theirs):
    """Assert that metrics are equal in every row, column and dtype, whatever the codes of their names."""
    assert ours.source == theirs.source
    assert (ours.of.tolist(), ours.sure.tolist()) == (theirs.of.tolist(), theirs.sure.tolist())
    for pair in ((ours.table, theirs.table), (ours.rules, theirs.rules)):
        one, other = (frame.to_pandas() for frame in pair)
        assert list(one.columns) == list(other.columns)
        for column in one:
            if isinstance(one[column].dtype, pd.CategoricalDtype):
                assert one[column].astype(str).tolist() == other[column].astype(str).tolist()
            else:
                pd.testing.assert_series_equal(one[column], other[column])


@pytest.mark.parametrize("name", FILES if NIGHT else FILES[::2])
def test_every_file_of_the_corpus_comes_back(corpus, folder, name):
    if name.endswith("-rep"):
        pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    report = importers.load(corpus / "ncu" / name)
    back = store.load(folder / "x.db", store.save(join(report), folder / "x.db", "x"))
    assert len(report.metrics)
    assert_alike(back.metrics, report.metrics)
    bare = store.load(folder / "x.db", metrics=False)
    assert not len(bare.metrics)
    assert len(bare.activities) == len(report.activities)


SAME = (
    [
        "report",
        "--by",
        "kernel",
        "--metrics",
        "occupancy,dram_bytes,big.sum,launch__func_cache_config,match",
    ],
    ["report", "--by", "op,step", "--metrics", "occupancy,match", "--format", "json"],
    ["report", "--metrics", "list", "--format", "csv"],
    ["report", "--by", "rule", "--format", "json"],
    ["report", "--by", "op", "--columns", "flops", "--format", "json"],
    ["report", "--by", "step", "--columns", "flops", "--format", "csv"],
    ["advise", "--format", "json"],
    ["trace", "-o", "x.json"],
    ["trace", "-o", "x.pftrace"],
    ["html", "-o", "x.html"],
    ["plot", "--kind", "roofline", "-o", "x.svg"],
)


GIVEN = ["t.sqlite", "--ncu", "rules.csv", "--ncu", "c.csv"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Write the files once and import them; they are read once."""
    folder = tmp_path_factory.mktemp("stored")
    with reading_once(), pytest.MonkeyPatch.context() as patched:
        patched.chdir(written(folder))
        done("import", "-q", "--db", "bridge.db", *GIVEN)
        yield folder


@pytest.mark.parametrize("words", SAME, ids=lambda words: " ".join(words[:3]))
def test_a_run_gives_what_its_files_give(stored, words, monkeypatch):
    if words[0] == "plot":
        pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'nsight-bridge[plot]'")
    monkeypatch.chdir(stored)
    monkeypatch.delenv("BRIDGE_DB", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    output = stored / words[words.index("-o") + 1] if "-o" in words else None

    def said(*more):
        result = run(words[0], *more, *words[1:], *(["--force"] if output else []))
        if output and not result.exit_code:
            return output.read_bytes()
        return result.stdout.replace(f" {' '.join(GIVEN)}", "").split()  # hints name what was given

    assert said()
    assert said() == said(*GIVEN)
    assert said() != said("t.sqlite")


def test_a_report_of_ncu_alone_keeps_its_metrics(given):
    done("import", "-q", "c.csv")
    words = ["report", "--by", "op-kernel", "--metrics", "occupancy,dram_bytes", "--format", "json"]
    assert done(*words) == done(words[0], "c.csv", *words[1:])
    assert json.loads(done(*words))["rows"][0]["dram_bytes"] > 0
    assert "Nsight Compute (raw page)" in done("runs", "show", "1")


def test_what_was_matched_is_part_of_what_a_run_is_known_by(given):
    done("import", "-q", "t.sqlite")
    done("import", "-q", "t.sqlite", "--ncu", "c.csv")
    done("import", "-q", "t.sqlite", "--ncu", "c.csv", "--ncu", "rules.csv")
    for words in (["t.sqlite"], ["t.sqlite", "--ncu", "c.csv"]):
        assert "already imported" in run("import", "-q", *words).stderr
    listed = done("runs", "list").splitlines()
    sources = ["t.sqlite", "t.sqlite, with c.csv", "t.sqlite, with c.csv, rules.csv"]
    assert len(listed) == len(sources)
    for line, source in zip(listed, sources, strict=True):
        assert line.endswith(f"  {source}")
    assert_refused(run("diff", "t.sqlite"), "no run of another report to compare with")


def test_numbers_say_how_many_were_matched(given):
    assert (
        "c.csv: metrics of 6 of 6 kernels: 3 by call, 3 by path"
        in run("import", "-q", "t.sqlite", "--ncu", "c.csv").stderr
    )


def test_ncu_beside_ncu_is_misused(given):
    assert_misused(run("import", "c.csv", "--ncu", "c.csv"), "--ncu goes with a report that has")
    assert_refused(run("import", "t.sqlite", "--ncu", "t.sqlite"), "no report of Nsight Compute")
    assert "bridge.db" not in inside(given)


def test_views_for_people(given):
    done("import", "-q", "t.sqlite", "--ncu", "rules.csv", "--ncu", "c.csv")
    sql = (
        "SELECT kernel, op, metric, value, text, unit, match, duration_ns FROM kernel_metrics"
        " WHERE run = 1 AND metric IN (?, ?, ?) ORDER BY activity, metric"
    )
    names = (
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "launch__func_cache_config",
        "big.sum",
    )
    rows = ask("bridge.db", sql, *names)
    assert len(rows) == 3 * 2 * len(counters.OPS)
    assert rows[:3] == [
        ("gemm", "op_gemm", "big.sum", float(2**60), None, "inst", "call", 3000),
        ("gemm", "op_gemm", names[1], None, "CachePreferNone", None, "call", 3000),
        ("gemm", "op_gemm", names[0], 10.25, None, "%", "call", 3000),
    ]
    said = ask(
        "bridge.db", "SELECT DISTINCT rule, kind, scope, speedup FROM kernel_rules ORDER BY 1"
    )
    assert said == [
        ("IssueSlots", "OPT", "local", 90.0),
        ("LaunchConfiguration", "OPT", "global", 50.0),
    ]


def test_a_removed_run_takes_its_metrics_along(given):
    done("import", "-q", "t.sqlite", "--ncu", "rules.csv")
    done("import", "-q", "c.csv")
    kept = store.load(given / "bridge.db", 2).metrics
    done("runs", "rm", "1")
    for table in ("metrics", "metric_rules", "measured"):
        assert {owner for (owner,) in ask("bridge.db", f"SELECT run FROM {table}")} <= {2}
    assert_alike(store.load(given / "bridge.db", 2).metrics, kept)


def test_a_store_of_version_6_goes_on(given):
    done("import", "-q", "t.sqlite")
    with closing(sqlite3.connect("bridge.db")) as old:
        for view in ("kernel_metrics", "kernel_rules"):
            old.execute(f"DROP VIEW {view}")
        for table in ("metrics", "metric_rules", "measured"):
            old.execute(f"DROP TABLE {table}")
            old.execute("DELETE FROM extents WHERE [table] = ?", [table])
        old.execute("ALTER TABLE runs DROP COLUMN ncu")
        for statement in UNSEALED:
            old.execute(statement)
        old.execute("PRAGMA user_version = 6")
        old.commit()
    before = done("report", "--format", "json")
    assert before == done("report", "t.sqlite", "--format", "json")
    assert not len(store.load(given / "bridge.db").metrics)
    assert store.list_runs(given / "bridge.db")[0].ncu == ()
    done("import", "-q", "t.sqlite", "--ncu", "c.csv")
    assert done("report", "--run", "1", "--format", "json") == before
    assert len(store.load(given / "bridge.db", 2).metrics) == len(importers.load("c.csv").metrics)
    assert ask("bridge.db", "PRAGMA user_version") == [(VERSION,)]
