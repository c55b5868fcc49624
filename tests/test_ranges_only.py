"""Reports with ranges and without work on a GPU: every view shows the host, or says what does."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import made_reports
import pytest
from command import assert_refused, bridge, done
from read_once import reading_once

import bridge as public
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import host_tables

ON_GPU = {name for name, view in VIEWS.items() if view.on_gpu}
ON_DEVICE = "kernels copies fills graphs launches"
HINT = "--by op (or module, step) shows CPU times"


@pytest.fixture
def ranges_only(tmp_path: Path) -> Path:
    return made_reports.small(tmp_path / "host.sqlite", without=ON_DEVICE)


@pytest.fixture(scope="module")
def real(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a real training without what CUPTI recorded of it."""
    path = tmp_path_factory.mktemp("real") / "forward.sqlite"
    path.write_bytes((corpus / "nsys" / "pytorch-forward.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'CUPTI%'")
        for (name,) in rows.fetchall():
            database.execute(f"DROP TABLE {name}")
        database.commit()
    with reading_once():
        yield path


@pytest.mark.parametrize("form", ["table", "md"])
@pytest.mark.parametrize(
    "by", [*sorted(ON_GPU - {"skew"}), "kind", "op,kernel", "stream", "library"]
)
def test_a_table_of_device_work_says_which_table_helps(
    ranges_only: Path, by: str, form: str
) -> None:
    text = done("report", ranges_only, "--by", by, "--format", form)
    message = f"no kernels, memcpys or memsets; bridge report {ranges_only} {HINT}"
    told = " ".join(text.split())
    assert told.endswith(f"{message} no work on a GPU")
    if form == "table":  # NCCL works on GPUs alone
        assert told.startswith("GPU work was not recorded: ncclAllReduce of NCCL")


def test_programs_get_empty_rows(ranges_only: Path) -> None:
    document = json.loads(done("report", ranges_only, "--by", "kernel", "--format", "json"))
    assert document["rows"] == []
    assert done("report", ranges_only, "--by", "kernel", "--format", "csv").startswith(
        "kernel,count,"
    )


def test_every_other_table_has_rows_or_says_why_not(ranges_only: Path) -> None:
    for by in {*VIEWS, *DIMENSIONS} - ON_GPU - {"skew"}:
        text = done("report", ranges_only, "--by", by)
        assert "GPU self" not in text, by
        assert len(text.splitlines()) > 1, by


def test_without_ranges_too_the_hint_is_at_cuda_calls(tmp_path: Path) -> None:
    path = made_reports.small(
        tmp_path / "x.sqlite", without="kernels copies fills graphs annotations"
    )
    for by, message in (
        ("op", "no NVTX ranges, so no ops"),
        ("kernel", "no kernels, memcpys or memsets"),
    ):
        text = " ".join(done("report", path, "--by", by).split())
        assert f"{message}; {host_tables(0).replace('REPORT', str(path))}" in text
        assert text.startswith(
            "No work on a GPU was recorded: no kernels, memcpys or memsets; 12 CUDA calls"
        )
    assert "--by api" in host_tables(0)
    assert len(done("report", path, "--by", "api").splitlines()) > 3
    assert_refused(bridge("why", path, "gemm"), host_tables(0).replace("REPORT", str(path)))


def test_a_condition_that_no_row_meets_is_named(ranges_only: Path, tmp_path: Path) -> None:
    with_work = made_reports.small(tmp_path / "work.sqlite")
    for path, by in ((with_work, "kernel"), (with_work, "op"), (ranges_only, "op")):
        text = done("report", path, "--by", by, "--filter", f"{by}=nothing")
        hint = f"no row meets the condition; = compares whole names, {by}~nothing finds those with nothing in them"
        assert hint in " ".join(text.split())
    for condition in ("kernel=a*b", "total>1000s"):
        text = done("report", with_work, "--by", "kernel", "--filter", condition)
        assert "no row meets the condition" in text.splitlines()


def test_stacks_weigh_cpu_time_unless_something_ran_on_a_gpu(
    ranges_only: Path, folder: Path
) -> None:
    assert done("flame", ranges_only) == done("flame", ranges_only, "--weight", "cpu") != ""
    with_work = made_reports.small(folder / "work.sqlite")
    assert done("flame", with_work) == done("flame", with_work, "--weight", "gpu")
    for name in ("x.folded", "x.svg"):
        assert_refused(
            bridge("flame", ranges_only, "--weight", "gpu", "-o", name),
            "no GPU time",
            "--weight cpu",
        )
        assert not (folder / name).exists()


def test_a_report_of_calls_alone_has_no_stacks(tmp_path: Path) -> None:
    path = made_reports.small(
        tmp_path / "x.sqlite", without="kernels copies fills graphs annotations"
    )
    assert_refused(bridge("flame", path), "nothing to stack, no CPU time")


def test_advice_says_that_nothing_ran_on_a_gpu(ranges_only: Path) -> None:
    text = done("advise", ranges_only)
    assert "\nno work on a GPU to judge: 1 finding (" in text
    assert "1. Work on a GPU was not recorded (not-recorded)" in text
    assert f"; bridge report {ranges_only} {HINT}" in " ".join(text.split())
    assert "0 ns" not in text
    assert "not checked" not in text  # what it would take is no news where nothing ran
    found = json.loads(done("advise", ranges_only, "--format", "json"))
    assert [one["rule"] for one in found["advice"]] == ["not-recorded"]
    skipped = [one["rule"] for one in found["not_judged"] if one["missing"] == "work on a GPU"]
    assert {"pageable-memcpys", "launch-bound", "small-grids"} <= set(skipped)


def test_there_is_no_score_where_nothing_ran_on_a_gpu(ranges_only: Path, folder: Path) -> None:
    why = "capture quality not rated: GPU work was not recorded"
    assert why in done("doctor", ranges_only)
    document = json.loads(done("doctor", ranges_only, "--format", "json"))
    assert (document["score"], document["covers"]) == (None, ["host"])
    with_work = made_reports.small(folder / "work.sqlite")
    assert why not in done("doctor", with_work)
    document = json.loads(done("doctor", with_work, "--format", "json"))
    assert document["score"] > 0
    assert document["covers"] == ["host", "gpu"]
    assert why in done("summary", ranges_only)
    done("import", ranges_only, "-q")
    assert "GPU work was not recorded" in done("runs", "show", "1")
    assert "GPU work was not recorded" in done("summary", "--run", "1")


def test_runs_are_listed_with_their_ops_and_cpu_time(ranges_only: Path, folder: Path) -> None:
    done("import", ranges_only, "-q")
    done("import", made_reports.small(folder / "work.sqlite"), "-q")
    host, work = done("runs", "list").splitlines()
    ops = public.load(ranges_only).by("op")
    assert f" {len(ops)} ops " in host
    assert " on the CPU  not rated" in host
    assert " activities " in work
    assert host.index("not rated") == work.index("quality")


@pytest.mark.slow
def test_a_real_training_shows_its_modules_and_ops_by_cpu_time(real: Path, folder: Path) -> None:
    ops = done("report", real, "--by", "op", "--top", "5").splitlines()
    assert ops[0].split() == ["op", "calls", "CPU", "self", "CPU", "total"]
    modules = done("report", real, "--by", "module").splitlines()
    assert modules[0].split() == ["module", "calls", "CPU", "self", "CPU", "total"]
    table = public.load(real).by("module")
    assert list(table["cpu_total_ns"]) == sorted(table["cpu_total_ns"], reverse=True)
    assert table["cpu_self_ns"].sum() == public.load(real).by("op")["cpu_self_ns"].sum()
    ranges = done("report", real, "--by", "range", "--top", "3").splitlines()
    assert "GPU" not in ranges[0]
    weights = [int(line.rpartition(" ")[2]) for line in done("flame", real).splitlines()]
    assert sum(weights) == table["cpu_self_ns"].sum()
    assert "CPU total" in done("summary", real)
    done("html", real, "-o", "page.html")
    assert "no work on a GPU" in done("report", real, "--by", "op-kernel")


TRAINING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_training_on_the_cpu_that_nsys_recorded(nsys: str, folder: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    words = [sys.executable, "-m", "bridge", "run", "--auto", "-o", "r", "train.py"]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    if public.load("r.nsys-rep").totals["activities"]:
        pytest.skip("the training ran on a GPU")
    modules = done("report", "--by", "module", "--format", "csv")
    assert "Sequential.0," in modules
    assert "Sequential.0" in done("flame")
    assert " on the CPU " in done("runs", "list")
    done("scrub", "r.nsys-rep", "shared.sqlite")
    said = bridge("report", "shared.sqlite").stderr.replace("shared.sqlite", "r.nsys-rep")
    assert [line for line in said.splitlines() if "GPU" in line] == [
        line for line in bridge("report", "r.nsys-rep").stderr.splitlines() if "GPU" in line
    ]
