"""When a session has ended all is as before, whatever ended it and from wherever."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import growth
import interrupted
import pytest
from real_parts import NIGHT
from watched import names, op, ranges, steps, unchanged

import bridge
from bridge import nvtx_op
from bridge.annotate import emit

pytestmark = pytest.mark.usefixtures("all_as_before")

ROOT = Path(bridge.__file__).parent.parent
ONE = {"wait": 0, "warmup": 0, "active": 1}


def test_sessions_leave_nothing_at_exit():
    with bridge.profile():
        pass
    before = atexit._ncallbacks()
    for _ in range(100):
        with bridge.profile(level=2):
            pass
    assert atexit._ncallbacks() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("options", [{}, {"dump_period": 0.01}])
def test_what_the_body_raises(error, options, tmp_path):
    path = tmp_path / "a.jsonl" if options else None
    session = bridge.profile(level=2, record_shapes=True, path=path, **options)
    with pytest.raises(error), session, nvtx_op("open"):
        raise error
    assert names(session) == ["open"]
    assert not any(one["open"] for one in ranges(session))


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_ready_raises(error):
    raising = [True]

    def ready(_: object) -> None:
        if raising[0]:
            raise error("of ready")

    session = bridge.profile(level=2, schedule=bridge.schedule(**ONE), on_trace_ready=ready)
    with unchanged():
        session.start()
        op("a")
        with pytest.raises(error, match="of ready"):
            session.step()
        assert session.is_profiling  # the next step has begun
        op("b")
        with pytest.raises(error, match="of ready"):
            session.stop()
    raising.clear()
    raising.append(False)
    assert (names(session), steps(session)) == (["b"], [1])
    with session:
        op("again")
    assert names(session) == ["again"]


def test_what_the_body_raises_is_not_lost_when_ready_raises():
    def ready(_: object) -> None:
        raise OSError("of ready")

    with (
        pytest.raises(OSError, match="of ready") as raised,
        bridge.profile(on_trace_ready=ready),
    ):
        raise KeyError("of the body")
    assert isinstance(raised.value.__context__, KeyError)


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["start", "stop"])
def test_a_capture_that_fails(failing, monkeypatch):
    from bridge.capture.session.control import CaptureControl

    def fails(_: object) -> None:
        raise OSError("of the tool")

    session = bridge.profile(level=2)
    with unchanged(), monkeypatch.context() as patch:
        patch.setattr(CaptureControl, failing, fails)
        with pytest.raises(OSError, match="of the tool"), session:
            op("a")
    with session:
        op("b")
    assert names(session) == ["b"]


def test_memory_that_cannot_be_read(monkeypatch):
    from bridge.capture.session import cycle

    session = bridge.profile(profile_memory=True)
    with unchanged():
        session.start()
        with monkeypatch.context() as patch:
            patch.setattr(cycle, "uses", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                session.stop()


def test_something_that_cannot_be_undone_is_said_and_the_rest_undone():
    from bridge.capture.session.cycle import Automatic
    from bridge.capture.session.options import Options

    class Switch:
        on, stuck = False, True

        def enable(self) -> None:
            self.on = True

        def disable(self) -> None:
            if self.stuck:
                raise RuntimeError("not now")
            self.on = False

    first, second = Switch(), Switch()
    first.stuck = False
    automatic = Automatic(Options(level=0))
    automatic._switches = lambda: iter([first, second])
    automatic.enable()
    with pytest.warns(RuntimeWarning, match="not now"):
        automatic.disable()
    assert (first.on, second.on) == (False, True)
    second.stuck = False
    automatic.disable()
    assert not second.on


@pytest.mark.racy("threads and timers meet at random")
def test_stop_from_another_thread():
    # Level 0: PyTorch's dispatch mode, where PyTorch is loaded, would stay on the thread that began.
    session = bridge.profile(level=0, schedule=bridge.schedule(**(ONE | {"active": 9})))
    session.start()
    with nvtx_op("around"):
        op("a")
        stopper = threading.Thread(target=session.stop)
        stopper.start()
        stopper.join()
        assert not bridge.is_profiling()
        op("unheard")
    assert names(session) == ["around", "a"]
    assert [one["open"] for one in ranges(session)] == [True, True, False]


@pytest.mark.racy("threads and timers meet at random")
def test_many_threads_stop_at_once():
    calls = []
    for _ in range(50):
        session = bridge.profile(level=0, on_trace_ready=calls.append)
        barrier = threading.Barrier(4)
        problems = []

        def stop(barrier=barrier, session=session, problems=problems) -> None:
            barrier.wait()
            try:
                session.stop()
            except BaseException as problem:
                problems.append(problem)

        session.start()
        threads = [threading.Thread(target=stop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
    assert len(calls) == 50


@pytest.mark.slow
@pytest.mark.racy("a signal comes at a random moment")
def test_stop_from_a_signal_handler():
    session, found = bridge.profile(level=2), set()
    before = signal.signal(signal.SIGALRM, lambda *_: session.stop())
    try:
        for _ in range(30):
            session.start()
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            while bridge.is_profiling():
                op("a")
            collected = {"gc generation 0", "gc generation 1", "gc generation 2"}
            found |= (
                set(names(session)) - collected
            )  # none, where the alarm came before the first op
    finally:
        signal.signal(signal.SIGALRM, before)
    assert found == {"a"}


@pytest.mark.slow
@pytest.mark.racy("a signal comes at a random moment")
def test_an_interrupt_at_any_moment_leaves_nothing_that_a_second_stop_cannot_undo():
    done = subprocess.run(
        [sys.executable, interrupted.__file__],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "count"), [("steps", 1000 if NIGHT else 400), ("sessions", 100 if NIGHT else 30)]
)
def test_memory_does_not_grow_over_the_steps_and_sessions(of, count):
    done = subprocess.run(
        [sys.executable, growth.__file__, of, str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert float(done.stdout) < 10  # bytes; one object has 28 or more


def test_under_a_tool_the_tool_hears_all_and_nothing_stays_open(tool):
    with bridge.profile() as session:
        with nvtx_op("a"):
            session.pause()
            op("unheard")
            session.resume()
        session.step()
        op("b")
    assert emit.state.emitter is tool
    assert tool.names() == ["a", "ProfilerStep#1", "b"]
    assert tool.all_closed()
    assert names(session) == ["a", "b"]


def test_ranges_open_over_both_ends_under_a_tool(tool):
    session = bridge.profile()
    with nvtx_op("before"):
        session.start()
        op("inside")
    open_at_the_end = nvtx_op("open at the end")
    open_at_the_end.__enter__()
    session.stop()
    op("after")
    open_at_the_end.__exit__(None, None, None)
    assert tool.names() == ["before", "inside", "open at the end", "after"]
    assert [(one["name"], one["open"]) for one in ranges(session)] == [
        ("inside", False),
        ("open at the end", True),
    ]


ENDS = {
    "return": ("", 0),
    "exit": ("sys.exit(3)", 3),
    "exception": ("1 / 0", 1),
    "thread": ("import threading; threading.Thread(target=session.step).start()", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "name"),
    [*((ending, "a.jsonl") for ending in ENDS), ("exception", "a.json"), ("return", "a.json.gz")],
)
def test_a_program_that_ends_without_stop(ending, name, tmp_path):
    code, status = ENDS[ending]
    program = f"""
import sys, bridge
session = bridge.profile(path={name!r}, on_trace_ready=lambda s: print(len(s.by("op"))))
session.start()
with bridge.nvtx_op("a"): pass
{code}
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "BRIDGE_NVTX": "auto"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert done.stdout.strip() in {"1", "2"}
    assert done.stderr.count("Traceback") == (ending == "exception"), done.stderr
    assert [one.name for one in tmp_path.iterdir()] == [name]
