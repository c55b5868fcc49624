"""Signals reach the program, once, and its own exit status comes back."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import launched
import pytest
from real_parts import few
from test_run_under_nsys import environ

from bridge.capture import plan

pytestmark = pytest.mark.slow


COMMAND = [sys.executable, "-m", "bridge", "run"]
WAITING = b"waiting"


def test_statuses_of_a_command_and_what_it_inherits():
    def status(script: str) -> int:
        return plan.run_command(
            ["/bin/sh", "-c", script], {**os.environ, "GIVEN": "3"}, apart=False
        )

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert status("exit 0") == 0
    assert status("exit $GIVEN") == 3
    assert status("kill -9 $$") == 128 + 9
    assert status("kill -PIPE $$; exit 5") == 128 + 13  # which Python itself ignores
    assert status("kill -TERM $$; exit 5") == 128 + 15
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    with pytest.raises(FileNotFoundError):
        plan.run_command(["/no/such"], {}, apart=True)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.racy("a signal comes at a random moment")
def test_the_program_under_a_tool_is_what_leads_a_session():
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\ntime.sleep(30)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as tool:
        program = int(tool.stdout.readline())
        try:
            assert plan.session_leaders(tool.pid) == [program]
            assert plan.session_leaders(program) == []
        finally:
            os.kill(program, signal.SIGKILL)
            tool.kill()


def sent(folder: Path, number: int, caught: str) -> tuple[int, str, str]:
    """Send a signal to the launcher while the program waits; give status, stdout and stderr."""
    with subprocess.Popen(
        [*COMMAND, launched.__file__, "wait", caught],
        cwd=folder, env=environ(), text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as run:  # fmt: skip
        lines = []
        while "waiting" not in "".join(lines[-1:]):
            lines.append(run.stdout.readline())
            assert lines[-1], run.stderr.read()
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    return run.returncode, "".join(lines) + out, err


@pytest.mark.parametrize("number", few(launched.CAUGHT_ONES, 2))
def test_a_program_that_catches_a_signal_leaves_as_it_likes(nsys, folder, number):
    status, out, err = sent(folder, number, "caught")
    assert status == launched.CAUGHT + number, err
    # What it was given, and the signal: once. The summary quotes its last line.
    assert out.partition("Generated:")[0].count("'caught'") == 2
    assert "work" in out.partition("Generated:")[2]
    assert (folder / "report1.nsys-rep").exists()


@pytest.mark.parametrize("number", few(launched.CAUGHT_ONES, 2))
def test_a_program_that_does_not_is_ended_and_reported(nsys, folder, number):
    status, _, err = sent(folder, number, "no")
    assert status == 128 + number, err
    assert f"the program ended with status {status} ({number.name})" in err
    assert "interrupted" not in err
    assert (folder / "report1.nsys-rep").exists()


@pytest.mark.parametrize(("key", "number"), [(b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)])
def test_keys_of_the_terminal_reach_the_program_once(nsys, folder, key, number):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [*COMMAND, launched.__file__, "wait", "caught"], environ())
    shown, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if key and WAITING in shown:
            os.write(terminal, key)
            key = b""
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == launched.CAUGHT + number, shown.decode()
    assert shown.partition(b"Generated:")[0].count(b"'caught', ") == 1
    assert b"run 1 of bridge.db" in shown


@pytest.mark.racy("a signal comes at a random moment")
def test_a_launcher_that_ignores_a_signal_leaves_it_to_be_ignored(nsys, folder):
    script = 'trap "" HUP; exec "$@"'
    program = (
        "import os, signal; os.kill(os.getppid(), 0); print(signal.getsignal(signal.SIGHUP).name)"
    )
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "--no-import", "--", sys.executable, "-c", program],
        cwd=folder, env=environ(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "SIG_IGN\n" in done.stdout, done.stderr
