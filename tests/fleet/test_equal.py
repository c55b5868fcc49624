"""What is said of aggregates is, byte for byte, what one process says of the reports together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from command import done
from made_reports import changed, report
from read_once import reading_once
from real_parts import NIGHT, sampled

from bridge import importers
from bridge.analyze.core.catalog.lookup import columns_of
from bridge.analyze.core.table import Table
from bridge.cli.table_output import TableOutput
from bridge.join.options import AttributionOptions
from bridge.report import Report, join
from bridge.scale.combined import CombinedReport, combine
from bridge.scale.loading import Workers, run, tasks_of
from bridge.scale.requests import PartRequest, needed, stored_tables, whole_tables
from bridge.scale.task import Work
from fleet.reports import several
from fleet.split import processes, split

TABLES = stored_tables(["path", "shape,op,kernel", "kernel,step", "op,module"])
FORMS = ("csv", "md", "table")
ASKED = (
    """
--by op --direction forward
--by op,kernel --direction backward
--by op-kernel --inclusive
--by op-kernel --kernel-names mangled --running
--by kernel --kernel-names demangled --columns p95,p99,mean,share,count,busy,span
--by memcpy --memory-kinds
--by op --columns communication,host,api,sync,queue,launch_gap,starved
--by op,phase --columns tensor-cores
--by op,path,direction --sort gpu_busy --top 5
--by api --columns default,p99
--by thread,kernel
--by report,device,stream --columns count,gb_per_s
--by op --names raw --filter gpu>1us
--by op --domain mine
--by op --exclude-domain nccl --graphs launch
--by op --adopt
""".strip()
    .replace("tensor-cores", "tensor-cores")
    .splitlines()
)


def together(paths: list[Path], tables: tuple[PartRequest, ...] = TABLES) -> CombinedReport:
    tasks = tasks_of(paths, Work(tuple(tables), AttributionOptions()))
    return run(tasks, Workers(1), lambda _: None)


def computable(asked: PartRequest) -> list[str]:
    """List the columns that a table can show of what is kept."""
    found = []
    for column in columns_of(asked.by).names:
        try:
            parts = needed(asked.by, [column])
            figures = replace(asked.request, columns=(column,)).figures
        except ValueError:
            continue
        found += figures if set(parts) <= set(asked.columns) else []
    return found


def assert_same(apart: CombinedReport, one: Report) -> None:
    assert apart.totals == one.totals
    assert apart.op_count == one.op_count
    assert warned(apart.warnings) == warned((*one.capture.warnings, *one.warnings))
    for nth, asked in enumerate(TABLES):
        how = {
            "inclusive": asked.request.inclusive,
            "memory_kinds": asked.request.memory_kinds,
        }
        columns = computable(asked)
        table = apart.by(asked.by, columns=columns, **how)
        expected = one.by(asked.by, columns=columns, **how)
        assert list(table.dtypes) == list(expected.dtypes), asked.name
        assert table.equals(expected), asked.name
        assert printed(apart, asked, table, "json") == printed(one, asked, expected, "json")
        table, expected = apart.by(asked.by, **how), one.by(asked.by, **how)
        assert table.equals(expected), asked.name
        # Of few rows, for to lay out many takes long; and in every form only at night.
        for form in FORMS if NIGHT else [FORMS[nth % len(FORMS)]]:
            shown = (
                printed(apart, asked, table[:9], form),
                printed(one, asked, expected[:9], form),
            )
            assert shown[0] == shown[1], asked.name


def warned(lines: Sequence[str]) -> list[str]:
    """Give warnings in order, without the row of an example, which is that of its own report."""
    return sorted(re.sub(r"first: #\d+", "first:", line) for line in lines)


def printed(
    found: CombinedReport | Report, asked: PartRequest, rows: pd.DataFrame, form: str
) -> str:
    text = TableOutput(found, asked.by, None)
    return text.text(Table.of(rows), form, to_terminal=False)


def readable(paths: Iterable[Path]) -> list[Path]:
    found = []
    for path in paths:
        try:
            importers.load(path, details=False)
        except importers.ReportError:
            continue
        found.append(path)
    return found


@pytest.mark.slow
def test_the_whole_corpus(corpus):
    paths = readable(sampled((corpus / "nsys").glob("*.sqlite")))
    assert len(paths) == (20 if NIGHT else 4)
    assert_same(together(paths), join(importers.load(*paths)))


@pytest.mark.slow
def test_made_reports_two_of_one_name(tmp_path):
    paths = several(tmp_path, 5)
    apart = together(paths)
    assert_same(apart, join(importers.load(*paths)))
    assert len(set(apart.by("report")["report"])) == 5


@pytest.mark.slow
def test_one_report_alone(tmp_path):
    [path] = several(tmp_path, 1)
    assert_same(together([path]), join(importers.load(path)))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder of three reports, each of which is read once."""
    folder = tmp_path_factory.mktemp("three")
    several(folder, 3)
    with reading_once():
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("words", ASKED)
def test_a_command_prints_the_same(words, three, monkeypatch):
    monkeypatch.chdir(three)
    command = ["report", "node*/*.sqlite", *words.split(), "--format", "json"]
    assert done(*command, "--workers", 1) == done(*command)


@pytest.mark.slow
def test_the_order_in_which_workers_end_changes_nothing(tmp_path):
    found = together(several(tmp_path, 3))
    again = combine([found.parts[n] for n in (2, 0, 1)], tables=found.tables)
    assert again.source == found.source
    for by in ("op", "kernel", "report,op"):
        assert again.by(by).to_csv() == found.by(by).to_csv()


@pytest.mark.slow
def test_a_domain_that_one_report_lacks_is_no_error(folder):
    several(folder, 2)
    changed(folder / "node0/rank0.sqlite", "DELETE FROM NVTX_EVENTS WHERE domainId = 3")
    command = ("report", "node*/*.sqlite", "--by", "report,op", "--domain", "mine")
    assert done(*command, "--workers", 1) == done(*command)


@pytest.mark.slow
def test_processes_of_one_number_have_rows_of_their_own(tmp_path):
    """As those of several virtual machines have, whose bits are above the number's."""
    twin = 100 | 1 << 24
    paths = [report(tmp_path / name, pids=(100, twin)) for name in ("a.sqlite", "b.sqlite")]
    for by, rows in (("process", 4), ("process,kernel", 18), ("stream,kernel", 18)):
        apart = together(paths, whole_tables([by])).by(by)
        assert apart.to_csv() == join(importers.load(*paths)).by(by).to_csv()
        assert len(apart) == rows, by


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (2, 2), (3, 1), (9, 1)])
def test_workers_share_the_cores(count, threads, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert Workers(count).threads == threads
    assert Workers(count, "tcp://there:1").threads == 1


def by_op_and_kernel(found: CombinedReport | Report) -> list[list]:
    return [
        found.by(by).to_numpy().tolist() for by in ("op", "op-kernel", "kernel", "memcpy", "api")
    ]


@pytest.mark.slow
def test_processes_split_into_reports_amount_to_the_same(corpus, tmp_path):
    exports = sorted((corpus / "nsys").glob("*.sqlite"))
    of_several = [path for path in exports if len(processes(path)) > 1]
    paths = readable(of_several if NIGHT else of_several[-1:])
    assert len(paths) == (4 if NIGHT else 1)
    for path in paths:
        parts = split(path, tmp_path)
        assert len(parts) == 2
        whole, apart = join(importers.load(path)), together(parts)
        assert apart.totals == whole.totals
        columns = "count,total,min,p50,p95,max,share"
        for by in ("op-kernel", "kernel,op", "memcpy", "api", "kind", "direction,kernel"):
            found = apart.by(by, columns=columns.replace("p50,", ""))
            assert found.to_csv() == whole.by(by, columns=columns.replace("p50,", "")).to_csv(), by
        assert apart.by("op").drop(columns="gpu_busy_ns").to_csv() == (
            whole.by("op").drop(columns="gpu_busy_ns").to_csv()
        )
