"""nsys 2022 to 2024 fail to start a program now and then: it is tried again, and the program runs once."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from pretended import install

from bridge.capture import plan
from bridge.capture.plan import STARTS, TRIES, run_until_begun, starter
from bridge.capture.tool import CaptureError

pytestmark = pytest.mark.slow

# Fails so many times, then runs the program: `nsys profile [--option=value]... PROGRAM ...`.
NSYS = """
    n=$(cat tries 2>/dev/null || echo 0); echo $((n + 1)) > tries
    if [ $n -lt {fails} ]; then echo 'sem_open failed: No such file' >&2; exit {status}; fi
    shift
    while case "$1" in -*) true ;; *) false ;; esac; do shift; done
    echo report > r.nsys-rep
    exec "$@"
"""
SHOW = """
import os, sys, signal
print(sys.argv[1:], os.getcwd(), os.environ["OWN"], os.getpid() == int(os.environ.get("EXPECTED", os.getpid())))
print(sorted(os.listdir("/proc/self/fd")), [line for line in open("/proc/self/status") if line.startswith("Sig")])
sys.exit(int(sys.argv[1]))
"""


COMMAND = [sys.executable, "-m", "bridge", "run", "-o", "r", "--no-import"]


def environ(folder: Path) -> dict[str, str]:
    """Give an environment with the nsys of a folder, and a place for temporary files of its own."""
    (folder / "tmp").mkdir()
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OWN": "1 é", "TMPDIR": str(folder / "tmp")}


def bridge_run(
    folder: Path, *words: str, fails: int, status: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run `bridge run` under an nsys that fails so many times."""
    install(folder, "nsys", "2022.4", NSYS.format(fails=fails, status=status))
    (folder / "show.py").write_text(SHOW)
    return subprocess.run(
        [*COMMAND, *words],
        cwd=folder, env=environ(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip


def tries(folder: Path) -> int:
    return int((folder / "tries").read_text())


@pytest.mark.parametrize("fails", range(TRIES))
def test_a_program_that_did_not_begin_is_tried_again(tmp_path, fails):
    done = bridge_run(tmp_path, "show.py", "7", "two words", "", fails=fails)
    assert done.returncode == 7
    assert tries(tmp_path) == fails + 1
    assert done.stdout.count("['7', 'two words', '']") == 1
    assert done.stderr.count("nsys did not start the program (status 1): once more\n") == fails
    assert "the program ended with status 7" in done.stderr
    assert not [*(tmp_path / "tmp").glob("bridge-run-*")]


def test_one_that_never_begins_ends_with_126(tmp_path):
    done = bridge_run(tmp_path, "show.py", "7", fails=99)
    assert (done.returncode, tries(tmp_path)) == (126, TRIES)
    assert "the program ended" not in done.stderr
    assert done.stderr.count("sem_open failed: No such file") == TRIES
    assert "nsys did not start the program in 3 tries (status 1); what it says of" in done.stderr


def test_a_program_that_began_and_failed_runs_once(tmp_path):
    done = bridge_run(tmp_path, "show.py", "1", fails=0)
    assert (done.returncode, tries(tmp_path)) == (1, 1)


def test_a_program_that_removes_temporary_files_and_fails_runs_once(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho ran\nrm -rf "$TMPDIR"/*\nexit 1\n')
    program.chmod(0o755)
    done = bridge_run(tmp_path, "--", str(program), fails=0)
    assert (done.returncode, tries(tmp_path)) == (1, 1), done.stderr
    assert done.stdout.count("ran") == 1


def test_a_program_that_cannot_be_executed_is_said_in_a_line_and_leaves_no_report(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/nosuch/interpreter\n")
    program.chmod(0o755)
    done = bridge_run(tmp_path, "--", str(program), fails=0)
    assert (done.returncode, tries(tmp_path)) == (126, 1), done.stderr
    assert done.stderr.count("cannot be executed") == 1
    assert f"{program}: cannot be executed: No such file or directory" in done.stderr
    assert "the program ended" not in done.stderr
    assert not [*tmp_path.glob("*.nsys-rep")]


def test_a_signal_before_the_program_begins_is_no_reason_to_try_again(tmp_path):
    done = bridge_run(tmp_path, "show.py", "1", fails=99, status=130)
    assert (done.returncode, tries(tmp_path)) == (130, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("tried", [0, 1])
def test_a_signal_while_nsys_starts_ends_the_launch(tmp_path, tried, number):
    """nsys ends with 1 then, as if it had failed."""
    starting = """
    n=$(cat tries 2>/dev/null || echo 0); echo $((n + 1)) > tries
    if [ $n -lt {tried} ]; then exit 1; fi
    trap 'exit 1' TERM INT HUP
    echo starting
    for _ in $(seq 100); do sleep 0.05; done
    """
    install(tmp_path, "nsys", "2022.4", starting.format(tried=tried))
    (tmp_path / "show.py").write_text(SHOW)
    command = [*COMMAND, "show.py", "7"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ(tmp_path), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:  # fmt: skip
        assert run.stdout.readline() == "starting\n"
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    assert (run.returncode, tries(tmp_path)) == (128 + number, tried + 1), err
    assert f"{number.name} came before nsys had started the program" in err
    assert not [*(tmp_path / "tmp").glob("bridge-run-*")]


def test_without_a_starter_for_the_machine_it_runs_as_it_is(monkeypatch):
    ran = []
    monkeypatch.setattr(plan, "starter", lambda: None)
    monkeypatch.setattr(plan, "run_command", lambda command, *_, **__: ran.append(command) or 1)
    assert run_until_begun(["nsys", "profile"], ["a", "b"], {}) == 1
    assert ran == [["nsys", "profile", "a", "b"]]


def test_the_program_sees_no_difference(tmp_path):
    """Arguments, environment, files, signals, process: as without the starter."""
    start = starter()
    assert start is not None
    program = tmp_path / "program.py"
    program.write_text(SHOW)
    environ = {**os.environ, "OWN": "é", "_": "x", "PWD": "/nowhere"}
    own = [sys.executable, str(program), "0", "a b", ""]
    mark = str(tmp_path / "mark")
    seen = [
        subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        for command in (own, [str(start), mark, sys.executable, *own])
    ]
    assert seen[0] == seen[1]
    show = "import os; print(os.environb, end='')"
    kept = [str(start), mark, sys.executable, "name of its own", "-c", show]
    plain = subprocess.run(
        [sys.executable, "-c", show], env=environ, capture_output=True, check=True
    )
    assert subprocess.run(kept, env=environ, capture_output=True, check=True).stdout == plain.stdout


def test_a_script_without_a_format_is_one_of_the_shell(tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$@"')
    script.chmod(0o755)
    command = [str(starter()), str(tmp_path / "mark"), str(script), "script", "a", "b c"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "a b c\n"
    command[2] = str(tmp_path / "none")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (126, "")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_starters_are_of_their_source(machine):
    digest = sha256((STARTS / "start.c").read_bytes()).hexdigest()
    assert f"source:{digest}".encode() in (STARTS / f"start-{machine}").read_bytes()
    assert os.access(STARTS / f"start-{platform.machine()}", os.X_OK)


def test_the_message_of_a_launch_that_never_began_is_an_error_of_capture(monkeypatch):
    monkeypatch.setattr(plan, "run_command", lambda *_, **__: 1)
    with pytest.raises(CaptureError) as raised:
        run_until_begun(["nsys", "profile"], [sys.executable, "a.py"], {})
    assert raised.value.status == 126
