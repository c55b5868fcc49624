"""Processes that end by force while no annotation comes: at most the last second of a recording is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from processes import PATH

from bridge import importers
from bridge.annotate.recording import writer

pytestmark = pytest.mark.slow

BURST = """
def burst(name):
    for n in range(2_000):
        with bridge.nvtx_op(name): pass
    time.sleep(1.2)
"""
WAYS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "_exit": "os._exit(0)",
    "abort": "os.abort()",
    "exec": "os.execv('/bin/true', ['true'])",
}


def run(folder: Path, program: str, begin: str = "") -> list[str]:
    """Run a program that records; return the lines that it printed."""
    head = "import os, resource, signal, subprocess, sys, threading, time\n"
    head += "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    file = folder / "program.py"
    file.write_text(head + begin + "import bridge\n" + BURST + dedent(program))
    done = subprocess.run(
        [sys.executable, "-u", "-W", "error", file],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PATH, "BRIDGE_SIDECAR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def counts(folder: Path) -> list[Counter[str]]:
    """Return how many ranges of each name each recording of a folder has."""
    reports = (importers.load(path) for path in sorted(folder.glob("*.jsonl")))
    return [Counter(report.ranges["name"]) for report in reports]


@pytest.mark.parametrize("way", WAYS)
def test_an_idle_process_leaves_what_it_recorded(tmp_path, way) -> None:
    run(
        tmp_path,
        f"""
        with bridge.profile(path="s.jsonl"), bridge.nvtx_op("outer"):
            burst("op")
            {WAYS[way]}
        """,
    )
    report = importers.load(tmp_path / "s.jsonl")
    assert Counter(report.ranges["name"]) == {"op": 2_000, "outer": 1}
    assert report.ranges["open"].sum() == 1


def test_an_open_range_alone_is_left(tmp_path) -> None:
    run(
        tmp_path,
        """
        with bridge.profile(path="s.jsonl"), bridge.nvtx_op("long"):
            time.sleep(1.2)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert counts(tmp_path) == [{"long": 1}]


def test_a_forked_child_leaves_what_it_recorded(tmp_path) -> None:
    run(
        tmp_path,
        """
        with bridge.profile(path="s.jsonl"):
            with bridge.nvtx_op("parent"): pass
            if not (pid := os.fork()):
                burst("child")
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(pid, 0)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert counts(tmp_path) == [{"child": 2_000}, {"parent": 1}]


OPENINGS = {"block": "bridge.nvtx_op('long')", "phase": "bridge.nvtx_range('long')"}


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_a_range_that_is_open_after_a_fork_is_left(tmp_path, opening) -> None:
    run(
        tmp_path,
        f"""
        sys.version_info = (3, 12)  # where the parent begins no thread right after a fork
        with bridge.profile(path="s.jsonl"):
            with bridge.nvtx_op("before"): pass
            pid = os.fork()
            with {opening}:
                time.sleep(1.2)
                if pid:
                    os.waitpid(pid, 0)
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert counts(tmp_path) == [{"long": 1}, {"before": 1, "long": 1}]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_terminated_child_of_multiprocessing_leaves_what_it_recorded(tmp_path, method) -> None:
    run(
        tmp_path,
        f"""
        import multiprocessing
        def work(pipe):
            with bridge.profile(path="child.jsonl"):
                burst("child")
                pipe.send("ready")
                time.sleep(60)
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            receiver, sender = context.Pipe()
            child = context.Process(target=work, args=(sender,))
            child.start()
            receiver.recv()
            child.terminate()
            child.join()
        """,
    )
    assert counts(tmp_path) == [{"child": 2_000}]


def test_details_of_calls_are_left(tmp_path) -> None:
    run(
        tmp_path,
        """
        attached.attach()
        attached.call(1)
        attached.call(1)
        time.sleep(1.2)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        "import attached\n",
    )
    (path,) = tmp_path.glob("bridge-*.jsonl")
    assert path.read_text().count('"calls"') >= 1


@pytest.mark.racy("a fork waits 50 ms for the thread, which may be late on a busy machine")
def test_the_program_meets_no_thread_of_ours(tmp_path) -> None:
    """Newer Pythons warn of a fork with threads; programs join all threads, and wait for signals."""
    lines = run(
        tmp_path,
        """
        with bridge.profile(path="s.jsonl"):
            with bridge.nvtx_op("a"): pass
            with bridge.nvtx_op("b"): pass
            print("recording", tasks(), threading.active_count(), len(threading.enumerate()))
            if not (pid := os.fork()):
                os._exit(0)
            os.waitpid(pid, 0)
            with bridge.nvtx_op("c"): pass
            print("after", tasks())
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGTERM)
            print("received", signal.sigwait({signal.SIGTERM}).name)
        time.sleep(4)
        print("idle", tasks())
        with bridge.profile(path="s2.jsonl"):
            with bridge.nvtx_op("d"): pass
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        "tasks = lambda: len(os.listdir('/proc/self/task'))\n"
        "os.register_at_fork(before=lambda: print('at the fork', tasks(), flush=True))\n",
    )
    expected = "recording 2 1 1, at the fork 1, after 2, received SIGTERM, idle 1"
    assert [line for line in lines if line] == expected.split(", ")
    assert counts(tmp_path) == [dict.fromkeys("abc", 1), {"d": 1}]


@pytest.mark.racy("a fork is interrupted within 0.5 s")
def test_a_fork_delays_signals_and_waits_for_no_write(tmp_path) -> None:
    lines = run(
        tmp_path,
        """
        from bridge.annotate.recording import sink, writer
        write, end = sink.File.write, writer.watch.end
        def slow(file, lines):
            time.sleep(1)
            write(file, lines)
        def interrupted(*args):
            os.kill(os.getpid(), signal.SIGINT)
            return end(*args)
        with bridge.profile(path="s.jsonl"):
            with bridge.nvtx_op("a"): pass
            sink.File.write = slow
            time.sleep(0.7)  # now the watch writes
            writer.watch.end = interrupted
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGTERM)
            began = time.monotonic()
            try:
                if not os.fork(): os._exit(0)
                time.sleep(1)
            except KeyboardInterrupt:
                print("Ctrl-C", time.monotonic() - began < 0.5)
            print(*(one.name for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
            print(*(one.name for one in signal.sigpending()))
            sys.stdout.flush()
            os._exit(0)
        """,
    )
    assert lines[-3:] == ["Ctrl-C True", "SIGTERM", "SIGTERM"]


@pytest.mark.racy("patience is measured by the clock")
def test_writes_that_hang_delay_the_exit_once_and_are_told(tmp_path) -> None:
    lines = run(
        tmp_path,
        """
        from bridge.annotate.recording import sink, writer
        from pathlib import Path
        writer.EXIT_S = 2.0
        sys.stderr = sys.stdout  # where warnings go
        session = bridge.profile(path="s.jsonl")
        session.start()
        other = writer.Writer(sink.File(Path("other.jsonl")))
        other.rows.append(writer.Row(bridge.annotate.label.Label("a"), 0, 1, 2, 3, 0.0))
        with bridge.nvtx_op("a"): pass
        sink.File.write = lambda *_: time.sleep(1000)
        threading.Thread(target=other.flush, daemon=True).start()
        time.sleep(1)
        began = time.monotonic()
        session.stop()
        """,
        "import atexit\natexit.register(lambda: print(time.monotonic() - began))\n",
    )
    told = " not written after 2 s; nothing more is recorded there"
    assert sorted(line.rpartition(":")[2] for line in lines[:-1] if line) == [told, told]
    assert float(lines[-1]) < 2 + 1 + 2 + 1  # the session, the watch, the exit, and a busy machine


def test_a_sub_interpreter_ends_with_its_session(tmp_path) -> None:
    run(
        tmp_path,
        """
        try:
            import _interpreters as interpreters
            options = {"config": "legacy"}
        except ImportError:
            import _xxsubinterpreters as interpreters
            options = {"isolated": False}
        lines = [
            "import bridge, time",
            "bridge.profile(path='s.jsonl').start()",
            "with bridge.nvtx_op('a'): pass",
            "time.sleep(0.7)",
            "with bridge.nvtx_op('b'): pass",
        ]
        interpreter = interpreters.create(**options)
        interpreters.run_string(interpreter, chr(10).join(lines))
        interpreters.destroy(interpreter)
        """,
    )
    assert counts(tmp_path) == [{"a": 1, "b": 1}]


def test_garbage_is_collected_as_the_program_says(tmp_path) -> None:
    lines = run(
        tmp_path,
        """
        import gc
        from bridge.annotate.recording import sink
        write = sink.File.write
        def watched(file, lines):
            print(gc.isenabled())
            write(file, lines)
        with bridge.profile(path="s.jsonl"):
            sink.File.write = watched
            with bridge.nvtx_op("a"): pass
            time.sleep(1.2)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        "sys.stdout.reconfigure(line_buffering=True)\n",
    )
    assert lines == ["True"]


class RaisedError(Exception):
    pass


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def handler() -> Iterator[None]:
    def raises(*_: object) -> None:
        raise RaisedError

    before = signal.signal(signal.SIGUSR1, raises)
    yield
    signal.signal(signal.SIGUSR1, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.mark.parametrize("moment", ["blocking", "starting"])
def test_a_signal_handler_that_raises_while_the_watch_begins(handler, monkeypatch, moment) -> None:
    watch, before = writer._Watch(), threads()
    block, start = writer._signal.pthread_sigmask, writer._thread.start_new_thread

    def pthread_sigmask(how: int, signals: Collection[int]) -> object:
        result = block(how, signals)
        if how == signal.SIG_BLOCK and signals:
            raise RaisedError  # as by a handler, which this call runs
        return result

    def start_new_thread(function: Callable[..., None], arguments: tuple[object, ...]) -> None:
        start(function, arguments)
        os.kill(os.getpid(), signal.SIGUSR1)

    if moment == "blocking":
        monkeypatch.setattr(writer._signal, "pthread_sigmask", pthread_sigmask)
    else:
        monkeypatch.setattr(writer._thread, "start_new_thread", start_new_thread)
    with pytest.raises(RaisedError):
        watch.begin()
    assert not block(signal.SIG_BLOCK, ())
    limit = time.monotonic() + 1
    while threads() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threads() == before
    monkeypatch.undo()
    watch.begin()
    assert watch.end()
