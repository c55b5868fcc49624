"""Which processes a signal to the launcher is handed on to, and what comes back: with a pretended tool, that is no process."""

from __future__ import annotations

import os
import signal
from threading import get_ident
from typing import NamedTuple

import pytest

from bridge.capture import plan

HERE, TOOL, AGENT, PROGRAM, WORKER, OTHER = 10, 100, 101, 102, 103, 999
BY_KEY, BY_KILL = 0x80, 0  # SI_KERNEL, SI_USER
# pid, parent, session, whether it has ended: a program that leads a session, its child another.
TREE = [
    (TOOL, HERE, 1, False),
    (AGENT, TOOL, 1, False),
    (PROGRAM, AGENT, PROGRAM, False),
    (WORKER, PROGRAM, WORKER, False),
    (OTHER, HERE, OTHER, False),
]


class Sent(NamedTuple):
    """A signal that was handed on, to a process or to its group."""

    to: str
    pid: int
    number: int


@pytest.fixture
def sent(monkeypatch) -> list[Sent]:
    """Pretend these processes, and keep what is sent to them."""
    found: list[Sent] = []
    monkeypatch.setattr(plan, "_processes", lambda: TREE)
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append(Sent("process", pid, number)))
    monkeypatch.setattr(os, "killpg", lambda pid, number: found.append(Sent("group", pid, number)))
    return found


def came(number: int, code: int) -> signal.struct_siginfo:
    return signal.struct_siginfo((number, code, 0, 0, 0, 0, 0))


def test_the_program_is_the_topmost_process_under_the_tool_that_leads_a_session(monkeypatch):
    monkeypatch.setattr(plan, "_processes", lambda: TREE)
    assert plan.session_leaders(TOOL) == [PROGRAM]
    assert plan.session_leaders(PROGRAM) == [WORKER]
    assert plan.session_leaders(WORKER) == []


def test_a_program_that_has_ended_leads_no_more(monkeypatch):
    ended = [(*one[:3], one[0] == PROGRAM) for one in TREE]
    monkeypatch.setattr(plan, "_processes", lambda: ended)
    assert plan.session_leaders(TOOL) == [WORKER]


@pytest.mark.parametrize("apart", [False, True])
def test_a_signal_to_the_launcher_alone_goes_to_the_program_alone(sent, apart):
    plan._forward(TOOL, came(signal.SIGTERM, BY_KILL), apart=apart)
    assert sent == [("process", PROGRAM, signal.SIGTERM)]


def test_a_key_of_the_terminal_goes_to_the_whole_group_that_did_not_get_it(sent):
    plan._forward(TOOL, came(signal.SIGINT, BY_KEY), apart=True)
    assert sent == [("group", PROGRAM, signal.SIGINT)]


def test_a_key_of_the_terminal_that_all_have_got_already_is_not_handed_on(sent):
    plan._forward(TOOL, came(signal.SIGINT, BY_KEY), apart=False)
    assert sent == []


def test_before_the_program_has_begun_the_tool_gets_the_signal(sent, monkeypatch):
    monkeypatch.setattr(plan, "_processes", lambda: TREE[:2])
    plan._forward(TOOL, came(signal.SIGHUP, BY_KILL), apart=True)
    assert sent == [("process", TOOL, signal.SIGHUP)]


@pytest.fixture
def ends(monkeypatch):
    """Pretend a tool: what is signalled to the launcher one by one, and how the tool has ended at the last."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def pretended(numbers: list[int], status: int) -> None:
        left, waited_for = [*numbers, signal.SIGCHLD], []

        def signalled() -> None:
            if left:
                signal.pthread_kill(get_ident(), left.pop(0))

        def spawned(*_: object, **__: object) -> int:
            signalled()
            return TOOL

        def waited(pid: int, options: int) -> tuple[int, int]:
            assert (pid, options) == (TOOL, os.WNOHANG)
            if left:
                signalled()
                return 0, 0
            if waited_for:
                raise ChildProcessError
            waited_for.append(pid)
            return TOOL, status

        monkeypatch.setattr(os, "posix_spawn", spawned)
        monkeypatch.setattr(os, "waitpid", waited)

    yield pretended
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (9, 128 + 9)])
def test_the_status_is_the_tools_own_when_it_has_ended(ends, sent, status, code):
    ends([signal.SIGTERM], status)
    assert plan.run_command(["tool"], {}, apart=True) == code
    assert sent == [("process", PROGRAM, signal.SIGTERM)]


def test_afterwards_the_launcher_hears_signals_as_before(ends, sent):
    def hears() -> tuple[object, object]:
        return signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGCHLD)

    before = hears()
    ends([], 0)
    plan.run_command(["tool"], {}, apart=True)
    assert hears() == before
