"""CUDA graphs recorded as a whole: the tables that they are no rows of say where their time is."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import made_reports
import pytest
from command import bridge, done
from made_reports import Made

from bridge.analyze.core.totals import add_totals
from bridge.render import units
from bridge.render.table import graphs_line

OF_KERNELS = ("op", "op-kernel", "kernel")
GRAPHS = "CUDA graphs recorded as a whole take"
LINE = re.compile(rf"\d+ {GRAPHS} .*? → bridge report (?:\S+ )*--by [a-z,]+")


def with_graphs(path: Path, *, outside: int = 0) -> Path:
    """Write two steps with a graph of 5 ns in each, and graphs of 10 ns that no range is around."""
    made = Made()
    for number in range(2):
        made.step(number, 100)
    for number in range(outside):
        at = 5_000 + 100 * number
        made.launched("graphs", at, 100, at + 10, at + 20, graph=4)
    return made.written(path)


def line(*words: str | Path) -> str:
    """Give the line on graphs that a command prints, "" if there is none."""
    text = " ".join(done(*words).split())
    lines = LINE.findall(text)
    assert len(lines) == text.count(GRAPHS) <= 1
    return lines[0] if lines else ""


def test_their_time_is_in_ops_or_under_a_reason(tmp_path: Path) -> None:
    within, mixed = (
        with_graphs(tmp_path / name, outside=n) for name, n in (("a.sqlite", 0), ("b.sqlite", 1))
    )
    assert line("report", within, "--by", "kernel").startswith(f"2 {GRAPHS} 10 ns (")
    assert line("report", within, "--by", "kernel").endswith(
        f"in ops 100.0 % → bridge report {within} --by op,kind"
    )
    assert line("report", within).endswith(f"in ops 100.0 % → bridge report {within} --by kind")
    assert line("report", mixed, "--by", "op-kernel").startswith(f"3 {GRAPHS} 20 ns (")
    assert "): in ops 50.0 %, no range 50.0 % →" in line("report", mixed, "--by", "op-kernel")
    assert line("report", mixed, "--by", "op", "--format", "md")


def test_other_tables_and_reports_without_graphs_have_no_such_line(tmp_path: Path) -> None:
    path = with_graphs(tmp_path / "a.sqlite")
    assert not any(
        line("report", path, "--by", by) for by in ("kind", "memcpy", "stream", "op,kind")
    )
    without = made_reports.small(tmp_path / "b.sqlite", without="graphs")
    assert not any(line("report", without, "--by", by) for by in OF_KERNELS)
    assert graphs_line("op", add_totals([]), 0) == ""


def test_the_store_and_workers_say_the_same(tmp_path: Path, folder: Path) -> None:
    path = with_graphs(tmp_path / "a.sqlite", outside=1)
    first = line("import", path).replace(f" {path}", "")
    assert first == line("report", path, "--by", "op-kernel").replace(f" {path}", "")
    assert first == line("import", path).replace(f" {path}", "")  # from the stored tables
    assert first == line("report", "--by", "op-kernel")
    workers = line("report", path, "--by", "op-kernel", "--workers", "1")
    assert first == workers.replace(f" {path}", "")
    done("import", path, "--workers", "1", "--db", "many.db", "-q")
    stored = line("runs", "show", "1", "--db", "many.db")
    assert first == stored.replace(" --run 1 --db many.db", "").replace(" --db many.db", "")
    assert first == line("summary", path).replace(f" {path}", "")


@pytest.mark.slow
def test_a_real_report_whose_time_is_in_graphs(corpus: Path) -> None:
    path = corpus / "nsys" / "torch-compile-graphs.sqlite"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        sql = "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        count, time = database.execute(sql).fetchone()
    for by in OF_KERNELS:
        text = line("report", path, "--by", by)
        assert text.startswith(
            f"{count} {GRAPHS} {units.time(time)} (>99.9 % of GPU time): no range 100.0 %"
        )
        assert bridge("report", path, "--by", by).stderr.count("--cuda-graph-trace=node") == 1
    assert "kernel belongs to an op" in done("report", path, "--by", "op-kernel")
    assert "no ops" in done("report", path, "--by", "op")
    assert not any(line("report", path, "--by", by) for by in ("kind", "stream"))
