"""Forked and spawned processes: a recording each, whole, with nothing of another's."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import BEGIN, arguments, ran, recordings, run

pytestmark = pytest.mark.slow


WORKERS = 64


def numbers(folder: Path) -> list[list[int]]:
    return sorted(sorted(arguments(one).values()) for one in recordings(folder).values())


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_fork_in_the_midst_of_threads_that_annotate(tmp_path) -> None:
    ran(
        tmp_path,
        """
        stop = threading.Event()
        def work(first):
            n = first
            while not stop.is_set():
                attached.call(n)
                n += 4
                if n % 300 < 4:
                    attached.writer().flush()
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads: thread.start()
        children = []
        for child in range(40):
            time.sleep(0.002)
            pid = os.fork()
            if not pid:
                for n in range(50): attached.call(-1 - n - 50 * child)
                attached.writer().flush()
                os._exit(0)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads: thread.join()
        """,
    )
    found = numbers(tmp_path)
    assert len(found) == 41
    *children, parent = found
    assert sorted(n for child in children for n in child) == list(range(-2000, 0))
    assert all(len(child) == 50 for child in children)
    for k in range(4):
        mine = [n for n in parent if n % 4 == k]
        assert mine == list(range(k, k + 4 * len(mine), 4))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_children_of_multiprocessing_end_without_atexit_but_not_without_their_lines(
    tmp_path, method
) -> None:
    workers = WORKERS if method == "fork" else 4
    (tmp_path / "program.py").write_text(
        BEGIN.replace("attached.attach()", "")
        + f"""
import multiprocessing
def work(first):
    attached.attach()
    for n in range(first, first + 30): attached.call(n)
if __name__ == "__main__":
    attached.attach()
    attached.call(-1)
    context = multiprocessing.get_context("{method}")
    children = [context.Process(target=work, args=(100 * k,)) for k in range({workers})]
    for child in children: child.start()
    for child in children: child.join()
    assert not any(child.exitcode for child in children)
"""
    )
    ran(
        tmp_path,
        f"import runpy\nsys.argv = [{str(tmp_path / 'program.py')!r}]\nrunpy.run_path(sys.argv[0], run_name='__main__')",
    )
    assert numbers(tmp_path) == [
        [-1],
        *(list(range(100 * k, 100 * k + 30)) for k in range(workers)),
    ]


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_sessions_recording_in_children_of_multiprocessing(tmp_path) -> None:
    ran(
        tmp_path,
        """
        import multiprocessing
        from pathlib import Path
        from bridge import nvtx_op
        from bridge.annotate import emit
        from bridge.annotate.recording.recorder import Recorder
        from bridge.annotate.recording.sink import File
        from bridge.annotate.recording.writer import Writer
        emit.state.attached = False
        writer = Writer(File(Path(os.environ["BRIDGE_SIDECAR"], "bridge-s.jsonl")))
        writer.about({"run": 7})
        emit.use(Recorder(writer))
        def work():
            for n in range(10):
                with nvtx_op("of the child", payload=n): pass
        with nvtx_op("around"):
            with nvtx_op("of the parent"): pass
            children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
            idle = multiprocessing.get_context("fork").Process(target=int)
            for child in (*children, idle): child.start()
            for child in (*children, idle): child.join()
        """,
    )
    parent, *children = sorted(recordings(tmp_path).values(), key=lambda one: one.header["pid"])
    assert len(children) == 3  # one that annotates nothing leaves nothing
    names = [sorted(found.labels[n][0] for n in found.columns["ranges"][0]) for found in children]
    assert names == [["around", *["of the child"] * 10]] * 3
    assert all(found.columns["open"][0].size == 1 for found in children)  # what it was forked in
    assert sorted(one[0] for one in parent.labels) == ["around", "of the parent"]
    assert all(one.metadata == {"run": 7} for one in (parent, *children))


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_an_abrupt_end_loses_at_most_what_was_not_written(tmp_path) -> None:
    ran(
        tmp_path,
        """
        for n in range(10): attached.call(n)
        attached.writer().flush()
        for n in range(10, 20): attached.call(n)
        os._exit(0)
        """,
    )
    assert numbers(tmp_path) == [list(range(10))]


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_child_of_a_child(tmp_path) -> None:
    ran(
        tmp_path,
        """
        for n in range(4):
            attached.call(n)
            pid = os.fork()
            if pid:
                assert os.waitpid(pid, 0)[1] == 0
                sys.exit()
        attached.call(4)
        """,
    )
    assert numbers(tmp_path) == [[n] for n in range(5)]


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_child_that_annotates_nothing_leaves_nothing(tmp_path) -> None:
    ran(
        tmp_path,
        """
        attached.call(1)
        if not os.fork(): sys.exit()
        os.wait()
        """,
    )
    assert numbers(tmp_path) == [[1]]


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_fork_within_a_signal_handler_in_the_midst_of_a_flush(tmp_path) -> None:
    done = run(
        tmp_path,
        """
        import signal
        for n in range(3000): attached.call(n)
        writer, children = attached.writer(), []
        before = writer._events
        def forking(*given):
            found = before(*given)
            signal.raise_signal(signal.SIGUSR1)
            return found
        writer._events = forking
        def handler(*_): children.append(os.fork())
        signal.signal(signal.SIGUSR1, handler)
        writer.flush()
        del writer._events
        attached.call(-1 if children[0] else -2)
        if children[0]: assert os.waitpid(children[0], 0)[1] == 0
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert numbers(tmp_path) == [[-2], [-1, *range(3000)]]
