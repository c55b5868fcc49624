"""The real nsys, launched: statuses, streams, reports of every capture range, and failures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import launched
import pytest
from command import inside
from pretended import BEGINS, install

import bridge
from bridge.autorun import LAUNCHER
from bridge.cli.run import UNRECORDED

pytestmark = pytest.mark.slow


ROOT = Path(bridge.__file__).parent.parent
PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
SCRIPT = launched.__file__
Run = Callable[..., subprocess.CompletedProcess[str]]


def environ(**more: str) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
    return {**left, "PYTHONPATH": PATH, "COLUMNS": "100", **more}


@pytest.fixture
def run(nsys: str, folder: Path) -> Run:
    """Run `bridge run` in a folder of its own."""

    def launch(
        *words: str | Path, before: tuple[str, ...] = (), **how: object
    ) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, "-m", "bridge", "run", *map(str, words)]
        settings = {"env": environ(), "input": "", "cwd": folder, **how}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, **settings
        )

    return launch


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Give what the program said; the bar of nsys may stand in front of it, and a summary quotes its last line."""
    lines = done.stdout.partition("Generated:")[0].splitlines()
    return [line.partition("SAID ")[2] for line in lines if "SAID " in line]


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("Error: ")]


def listed(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "bridge", *words]
    done = subprocess.run(
        command, env=environ(), cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_program_runs_as_it_would_and_its_breakdown_follows(run, folder):
    words = ["7", "two words", "a'b\"c$HOME*", "", "--op", "-m", "é\n"]
    done = run("-o", "r", SCRIPT, "exit", *words)
    assert done.returncode == 7
    assert said(done) == [repr(tuple(words))]
    assert "on stderr\n" in done.stderr
    assert "the program ended with status 7\n" in done.stderr
    assert done.stderr.startswith(
        f"BRIDGE_SIDECAR={folder}/r.recordings nsys profile --trace=cuda,nvtx "
    )
    assert "work" in done.stdout.partition("SAID")[2]
    assert inside(folder) == ["bridge.db", "r.nsys-rep", "r.recordings"]
    assert "r.recordings/: details of calls and processes; keep it beside the" in done.stderr
    [recording] = (folder / "r.recordings").iterdir()
    assert recording.suffix == ".jsonl"
    assert "exit" in listed(
        folder, "report", "r.nsys-rep", "--by", "range", "--arguments", "--format", "csv"
    )


def test_the_command_that_is_printed_is_the_one_that_runs(run, folder):
    words = ["-o", "odd 'name'", SCRIPT, "exit", "0", "a 'b\" $c"]
    printed = run("--print", *words)
    assert printed.stderr == ""
    done = run(*words, "--no-import")
    assert done.stderr.splitlines()[0] == printed.stdout.rstrip("\n") + " --no-import"
    (folder / "odd 'name'.nsys-rep").unlink()
    by_hand = subprocess.run(
        ["sh", "-c", printed.stdout],
        env=environ(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said(by_hand) == [repr(("0", "a 'b\" $c"))]
    assert (folder / "odd 'name'.nsys-rep").exists()


def test_a_killed_program_leaves_its_status_and_its_report(run, folder):
    done = run(SCRIPT, "die")
    assert done.returncode == 128 + 9
    assert "ended with status 137 (SIGKILL); what it recorded last may be lost\n" in done.stderr
    assert (folder / "report1.nsys-rep").exists()


def test_standard_input_a_module_and_a_store_of_ones_own(run, folder):
    done = run(
        "--db",
        "own.db",
        "-m",
        "launched",
        "read",
        input="line\n",
        env=environ(PYTHONPATH=f"{PATH}{os.pathsep}{Path(SCRIPT).parent}"),
    )
    assert done.returncode == 0, done.stderr
    assert said(done) == ["()", repr(("line\n",)), repr(("to its end",))]
    assert "run 1 of own.db" in done.stderr
    assert not (folder / "bridge.db").exists()


def test_any_command_and_no_import(run, folder):
    done = run("--no-import", "--", "sh", "-c", 'echo "SAID $1"; exit 4', "sh", "a  b")
    assert (done.returncode, said(done)) == (4, ["a  b"])
    assert inside(folder) == ["report1.nsys-rep"]


@pytest.mark.parametrize("status", [0, 7])
def test_a_program_without_ranges_and_gpu_ends_with_its_own_status_and_a_warning(
    run, folder, status
):
    (folder / "plain.py").write_text(f"import sys\nprint('SAID', 1)\nsys.exit({status})\n")
    done = run("plain.py", "a b")
    assert done.returncode == status
    assert errors(done) == []
    warning, note = done.stderr.splitlines()[-2:]
    assert warning == f"warning: report1.nsys-rep: {UNRECORDED}"
    assert note.startswith(
        "note: bridge run --auto plain.py 'a b' annotates PyTorch, JAX and CuPy; "
    )
    assert inside(folder) == ["plain.py", "report1.nsys-rep"]


def test_a_program_is_annotated(run, folder):
    (folder / "part.py").write_text("def load(n):\n    return n\n")
    (folder / "whole.py").write_text("import part, sys\nprint('SAID', part.load(3), sys.argv)\n")
    options = {"env": environ(BRIDGE_AUTORUN_OPTIONS="")}
    done = run("--auto", "whole.py", "--x", **options)
    assert said(done) == ["3 ['whole.py', '--x']"]
    assert f" {LAUNCHER} whole.py --x" in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1].startswith(
        "bridge run annotates PyTorch (modules, on a GPU ops"
    )


ODD_NAMES = ["a.b 100%p%h", "-d üñí", 'it\'s a "qu&ote"\n']


@pytest.mark.parametrize("name", ODD_NAMES)
def test_folders_and_reports_with_odd_names(run, folder, name):
    (folder / f"f{name}").mkdir()
    report = Path(f"f{name}") / f"{name}"
    done = run("-o", report, SCRIPT, "exit", "5")
    assert done.returncode == 5, done.stderr
    assert inside(folder) == ["bridge.db", f"f{name}"]
    files = inside(folder / f"f{name}")
    assert f"{name}.nsys-rep" in files
    assert len(inside(folder / f"f{name}" / f"{name}.recordings")) == 1
    assert "run 1 of bridge.db" in done.stderr


SCHEDULE = "wait=1,warmup=1,active=2,repeat=2"


def steps_of(folder: Path) -> list[int]:
    """Give the steps that are in the newest run."""
    ops = listed(folder, "report", "--format", "csv")
    return [n for n in range(launched.STEPS) if f"step{n}" in ops]


def test_the_reports_of_all_capture_ranges_are_one_run(run, folder):
    done = run("-o", "r", "--schedule", SCHEDULE, SCRIPT, "steps")
    assert done.returncode == 0, done.stderr
    assert said(done)[-1] == repr(("to its end",))
    reports = ["r.1.nsys-rep", "r.2.nsys-rep"]
    assert [name for name in inside(folder) if name.endswith("rep")] == reports
    assert "of bridge.db" in done.stderr
    assert "r.1.nsys-rep, r.2.nsys-rep" in listed(folder, "runs", "list")
    assert steps_of(folder) == [2, 3, 6, 7]

    assert errors(run("-o", "r", "--schedule", SCHEDULE, SCRIPT, "steps")) == [
        "Error: r.1.nsys-rep: exists; give another name, or --force to replace it"
    ]
    once = SCHEDULE.replace("repeat=2", "repeat=1")
    forced = run("--force", "-o", "r", "--schedule", once, SCRIPT, "steps")
    assert forced.returncode == 0, forced.stderr
    assert said(forced)[-1] == repr(("to its end",))
    assert [name for name in inside(folder) if name.endswith("rep")] == ["r.nsys-rep"]
    assert steps_of(folder) == [2, 3]


def test_only_kill_ends_the_program_with_its_last_capture(run):
    once = SCHEDULE.replace("repeat=2", "repeat=1")
    done = run("--kill", "--schedule", once, SCRIPT, "steps")
    assert done.returncode == 128 + 15
    assert repr(("to its end",)) not in said(done)
    assert "step3" in done.stdout


def test_no_capture_range_was_hit(run, folder):
    done = run("--capture", "nvtx", SCRIPT, "exit", "0")
    assert done.returncode == 1
    [line] = errors(done)
    assert line.startswith("Error: no report: no range capture@nsight-bridge began")
    done = run("--capture", "cudaProfilerApi", SCRIPT, "exit", "2")
    assert done.returncode == 2
    [line] = errors(done)
    assert line.startswith(
        "Error: the program ended with status 2; no report: cudaProfilerStart was"
    )
    assert not (folder / "bridge.db").exists()


def test_no_space_is_left_for_the_report(run, folder):
    (folder / "small").mkdir()
    mount = "mount -t tmpfs -o size=64k none small"
    apart = ("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")
    if (
        not shutil.which("unshare")
        or subprocess.run([*apart, "true"], cwd=folder, check=False).returncode
    ):
        pytest.skip("no file systems of one's own here")
    done = run("-o", "small/r", SCRIPT, "exit", "0", before=apart)
    assert done.returncode == 1
    assert errors(done) == [f"Error: no report: no space is left in {folder / 'small'}"]


def test_nsys_writes_no_report(run, folder, tmp_path):
    install(tmp_path, "nsys", "2022.4", otherwise=f"{BEGINS}echo broken >&2; exit ${{STATUS:-0}}")
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = run(SCRIPT, env=environ(**path))
    assert done.returncode == 1
    reason = "nsys wrote none; what it says of that is above"
    remedy = "if that is no fault of the program, run it again"
    assert errors(done) == [f"Error: no report: {reason}; {remedy}"]
    assert "broken\n" in done.stderr
    assert run(SCRIPT, env=environ(**path, STATUS="9")).returncode == 9
    install(tmp_path, "nsys", "2022.4", otherwise="echo raw > report1.1.qdstrm")
    assert errors(run("--capture", "nvtx", SCRIPT, env=environ(**path))) == [
        "Error: no report: nsys captured report1.1.qdstrm and could not import it; why is said above"
    ]
    # A report that is empty, or no report at all, is said to be that; the program's status counts for more.
    writes_junk = "echo junk > report1.nsys-rep; exit ${STATUS:-0}"
    install(tmp_path, "nsys", "2022.4", otherwise=BEGINS + writes_junk)
    done = run(SCRIPT, env=environ(**path))
    assert done.returncode == 1
    [line] = errors(done)
    assert line.startswith("Error: report1.nsys-rep: nsys export failed")
    (folder / "report1.nsys-rep").unlink()
    assert run(SCRIPT, env=environ(**path, STATUS="9")).returncode == 9


def test_a_report_of_ncu_is_imported_and_its_breakdown_printed(run, folder, tmp_path, corpus):
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    real = corpus / "ncu" / "cutlass-gemm-nvtx.ncu-rep"
    install(tmp_path, "ncu", "2024.1", otherwise=f"cp '{real}' k.ncu-rep; exit 3")
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = run("--tool", "ncu", "-o", "k", SCRIPT, env=environ(**path))
    assert done.returncode == 3
    # Durations as ncu --page details prints them: 26.11, 11.04 and 10.78 us.
    rows = [line.split() for line in done.stdout.splitlines()]
    [fused], [other] = (
        [r for r in rows if r[:1] == [op]] for op in ("Fused-GEMM", "Non-fused-GEMM")
    )
    assert fused[2:5] == ["1", "26.112", "µs"]
    assert other[2:5] == ["2", "21.824", "µs"]
    assert {"k.ncu-rep", "bridge.db"} <= set(inside(folder))


def test_a_report_of_ncu_that_cannot_be_read_is_kept(run, folder, tmp_path):
    install(tmp_path, "ncu", "2024.1", otherwise="echo kernels > k.ncu-rep; exit 3")
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = run("--tool", "ncu", "-o", "k", SCRIPT, env=environ(**path))
    assert done.returncode == 3
    assert "Error: k.ncu-rep: not a report of Nsight Compute" in done.stderr
    assert inside(folder) == ["k.ncu-rep"]


def test_nothing_is_left_behind_in_the_folder_for_temporary_files(run):
    place = Path(tempfile.gettempdir())
    before = set(place.iterdir())
    assert run(SCRIPT, "exit", "0").returncode == 0
    left = set(place.iterdir()) - before
    assert not [path for path in left if path.name.startswith("bridge-")]
