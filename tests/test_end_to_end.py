"""From a decorated program through the real nsys to the table of its ops."""

import json
import os
import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import command
import pytest
from real_parts import ROOT, few

import bridge
from bridge.cli import demo_report

pytestmark = pytest.mark.slow


SCRIPT = ROOT / "tests" / "annotate" / "decorated.py"
# The script counts call ids; its one block with a payload of its own has none.
EXPECTED = runpy.run_path(str(SCRIPT), run_name="read")["EXPECTED"] | {"block": 1}
COMMAND = str(Path(sys.executable).with_name("bridge"))


def run(*command, cwd, **environment):
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def captured(nsys, tmp_path_factory):
    """The decorated program's .nsys-rep."""
    folder = tmp_path_factory.mktemp("captured")
    profile = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "-o", "report"]
    run(*profile, sys.executable, SCRIPT, cwd=folder)
    return folder / "report.nsys-rep"


def calls(report, folder):
    printed = run(COMMAND, "report", report, "--by", "op", "--format", "json", cwd=folder)
    return {row["op"]: row["calls"] for row in json.loads(printed)["rows"]}


def test_every_call_of_a_decorated_program_is_counted(captured, tmp_path):
    assert calls(captured, tmp_path) == EXPECTED
    assert [p.name for p in captured.parent.iterdir()] == ["report.nsys-rep"]


def test_an_import_of_the_report_itself_can_be_shown_again(captured, tmp_path):
    run(COMMAND, "import", captured, cwd=tmp_path)
    assert json.loads(run(COMMAND, "report", "--format", "json", cwd=tmp_path))["source"] == [
        "report.nsys-rep"
    ]
    assert "report.nsys-rep" in run(COMMAND, "runs", "list", cwd=tmp_path)


def fill(db, table, **values):
    """Insert a row into a table of nsys's own making, zeros where it wants a value."""
    columns = db.execute(f"PRAGMA table_info({table})").fetchall()
    row = {name: 0 for _, name, _, not_null, _, _ in columns if not_null} | values
    marks = ", ".join("?" * len(row))
    names = ", ".join(f'"{n}"' for n in row)
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def test_kernels_in_nsys_own_tables_find_their_ops(captured, nsys, tmp_path):
    """Without a GPU nsys writes its CUDA tables empty: one launch is put into every range."""
    path = tmp_path / "filled.sqlite"
    run(nsys, "export", "--type", "sqlite", "--lazy=false", "-o", path, captured, cwd=tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO StringIds VALUES (900001, 'cudaLaunchKernel_v7000'), (900002, 'kernel')"
        )
        ranges = 'SELECT start, "end", globalTid FROM NVTX_EVENTS WHERE eventType = 59'
        for n, (_, end, thread) in enumerate(db.execute(ranges).fetchall(), 1):
            last = {
                "start": end - 1,
                "end": end,
                "correlationId": n,
            }  # when no inner range is open any more
            fill(db, "CUPTI_ACTIVITY_KIND_RUNTIME", **last, globalTid=thread, nameId=900001)
            fill(
                db, "CUPTI_ACTIVITY_KIND_KERNEL", start=end, end=end + 1000, correlationId=n,
                globalPid=thread & ~0xFFFFFF, shortName=900002, demangledName=900002, streamId=7,
            )  # fmt: skip
        db.commit()
        (made,) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    joined = bridge.load(path)
    ops = joined.by("op").set_index("op")
    assert joined.totals["attributed_ns"] == joined.totals["gpu_ns"] == made * 1000
    assert ops["kernels"].sum() == made
    assert dict(ops["calls"]) == EXPECTED
    assert ops.loc["plain", "kernels"] == EXPECTED["plain"]
    assert (
        ops.loc["work", "gpu_max_ns"]
        == joined.by("op").set_index("op").loc["work", "gpu_total_ns"] / 4
    )


THEIRS = """
import {name}                       # the user's own
from bridge.report import load      # loaded past the table of names of the package
import bridge

@bridge.nvtx_op
def step():
    return {name}.answer

assert step() == 42
run = load("demo.sqlite")
assert run.by("op-kernel", inclusive=True).shape[0] > 9
assert bridge.load("demo.sqlite").totals == run.totals
import {name} as again
assert again.answer == 42 and again.__file__.startswith({folder!r}), again.__file__
print("fine", len(run.op_kernels))
"""


@pytest.mark.parametrize(
    "file", few(["importers/__init__.py", "importers.py", "frames.py", "texts.py", "package.py"], 3)
)
def test_a_module_of_the_users_with_a_name_of_ours_breaks_nothing(tmp_path, file):
    own, name = tmp_path / file, file.partition("/")[0].removesuffix(".py")
    own.parent.mkdir(exist_ok=True)
    own.write_text("answer = 42\n")
    (tmp_path / "train.py").write_text(THEIRS.format(name=name, folder=str(tmp_path)))
    demo_report.make(tmp_path / "demo.sqlite")
    assert run(sys.executable, "train.py", cwd=tmp_path) == "fine 118\n"
    assert "flash_fwd_kernel" in run(
        COMMAND, "report", "demo.sqlite", "--by", "kernel", cwd=tmp_path
    )


def test_a_users_importers_package_is_profiled_too(nsys, tmp_path):
    (tmp_path / "importers").mkdir()
    (tmp_path / "importers" / "__init__.py").write_text(
        "from bridge import nvtx_op\n@nvtx_op\ndef load(): ...\n"
    )
    (tmp_path / "train.py").write_text("import importers\nfor _ in range(3): importers.load()\n")
    profile = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "-o", "r"]
    run(*profile, sys.executable, "train.py", cwd=tmp_path)
    assert calls("r.nsys-rep", tmp_path) == {"load": 3}


def test_parity_with_nvidias_own_figures(parity_script, monkeypatch, capsys):
    """The script's own comparison, its commands run in this process."""

    def rows(_, report, *options):
        result = command.bridge("report", report, "--format", "json", *options)
        if result.exit_code:
            raise RuntimeError(result.stderr)
        return json.loads(result.stdout)["rows"]

    script = runpy.run_path(str(parity_script))
    monkeypatch.setitem(script["main"].__globals__, "bridge", rows)
    monkeypatch.setattr(sys, "argv", ["parity.py"])
    assert script["main"]() == 0
    agree, of, every, *_ = capsys.readouterr().out.splitlines()[-1].split()
    assert (of, agree) == ("of", every)
    assert int(every) >= 53
