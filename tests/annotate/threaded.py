"""A program that annotates on many threads at once, and checks what each of them recorded; any Python runs it."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict

from recorder import Recorder

from bridge.annotate import nvtx_op, pop, push

THREADS, CALLS, DEPTH = 16, 40, 5
PER_CALL = DEPTH + 2  # ranges: calls of `descend`, a block, a pushed range


@nvtx_op("descend")
def descend(depth: int) -> None:
    if depth > 1:
        descend(depth - 1)
        return
    with nvtx_op("inner", domain="library"):
        push("pushed")
        pop()


def work(start: threading.Barrier, number: int) -> None:
    own = nvtx_op(f"thread {number}")
    start.wait()
    for _ in range(CALLS):
        with own:
            descend(DEPTH)


def run() -> None:
    """Let all threads begin together, and wait for them."""
    start = threading.Barrier(THREADS)
    threads = [threading.Thread(target=work, args=(start, n)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check(tool: Recorder) -> None:
    """Raise AssertionError unless every thread has its own ranges, nested as it opened them."""
    assert tool.all_closed()
    by_thread = defaultdict(list)
    for piece in tool.slices:
        by_thread[piece.thread].append((piece.label.name, piece.parents))
    assert len(tool.slices) == THREADS * CALLS * (PER_CALL + 1)
    for pieces in by_thread.values():  # an id of a thread that ended may be given again
        names = {parents[0] for _, parents in pieces if parents}
        for name in names:
            stack = (name, *["descend"] * DEPTH)
            assert pieces.count((name, ())) == CALLS
            for depth in range(1, DEPTH + 1):
                assert pieces.count(("descend", stack[:depth])) == CALLS
            assert pieces.count(("pushed", stack)) == CALLS
        assert pieces.count(("inner", ())) == CALLS * len(names)
    assert len({name for name in tool.names() if name.startswith("thread ")}) == THREADS
    calls = tool.calls()
    assert calls["descend"] == THREADS * CALLS * DEPTH
    assert calls["inner"] == THREADS * CALLS


if __name__ == "__main__":
    from bridge.annotate import emit

    recorder = Recorder()
    emit.use(recorder)
    sys.setswitchinterval(1e-5)
    run()
    check(recorder)
    unlocked = not getattr(sys, "_is_gil_enabled", lambda: True)()
    version = f"{sys.version_info.major}.{sys.version_info.minor}{'t' * unlocked}"
    sys.stdout.write(f"{version}: {len(recorder.slices)}\n")
