"""Many threads at once, and code that runs in the midst of other code: nothing lost, nothing waits."""

from __future__ import annotations

import pytest
from processes import arguments, ran, recordings
from real_parts import NIGHT

from bridge import importers

pytestmark = pytest.mark.slow

SESSIONS = 30 if NIGHT else 8


def test_a_thousand_threads_lose_nothing_and_share_no_id(tmp_path) -> None:
    ran(
        tmp_path,
        """
        gate = threading.Barrier(1000)
        def work(first):
            gate.wait()
            for n in range(first, first + 50): attached.call(n % 500 if n % 2 else n)
        threading.stack_size(256 * 1024)
        threads = [threading.Thread(target=work, args=(50 * k,)) for k in range(1000)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(set(attached.ids)) == len(attached.ids) == 50_000
        """,
    )
    (found,) = recordings(tmp_path).values()
    noted = arguments(found)
    assert sorted(noted) == list(range(1, 50_001))
    assert sorted(noted.values()) == sorted(n % 500 if n % 2 else n for n in range(50_000))


def test_a_thousand_threads_with_times(tmp_path) -> None:
    """Ranges that overlap over threads, written by whoever comes first, while others flush."""
    ran(
        tmp_path,
        """
        from pathlib import Path
        from bridge import nvtx_op
        from bridge.annotate import emit
        from bridge.annotate.recording.recorder import Recorder
        from bridge.annotate.recording.sink import File
        from bridge.annotate.recording.writer import Writer
        emit.state.attached = False
        recorder = Recorder(Writer(File(Path(os.environ["BRIDGE_SIDECAR"], "s.jsonl"))))
        recorder.writer.period_ns = 100_000
        emit.use(recorder)
        gate = threading.Barrier(1000)
        def work():
            gate.wait()
            for n in range(20):
                with nvtx_op("outer"), nvtx_op("inner"): pass
        threads = [threading.Thread(target=work) for k in range(1000)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    ranges = importers.load(tmp_path / "s.jsonl").ranges.to_pandas()
    assert not ranges["open"].any()
    assert ranges["name"].value_counts().to_dict() == {"outer": 20_000, "inner": 20_000}
    assert ranges["payload"].is_unique


@pytest.mark.racy("a signal comes at a random moment")
def test_a_session_that_ends_while_threads_annotate(tmp_path) -> None:
    ran(
        tmp_path,
        """
        from pathlib import Path
        from bridge.annotate.label import Label
        from bridge.annotate.recording.recorder import Recorder
        from bridge.annotate.recording.sink import File
        from bridge.annotate.recording.writer import Writer
        sys.setswitchinterval(1e-6)
        def work(recorder, ended):
            label = Label("range")
            while not ended.is_set():
                for _ in range(3): recorder.push(label, 0)
                for _ in range(3): recorder.pop(None)
        for k in range(SESSIONS):
            writer = Writer(File(Path(os.environ["BRIDGE_SIDECAR"], f"{k}.jsonl")))
            recorder, ended = Recorder(writer), threading.Event()
            threads = [threading.Thread(target=work, args=(recorder, ended)) for _ in range(4)]
            for thread in threads: thread.start()
            time.sleep(0.003)
            recorder.finish()
            writer.flush()
            ended.set()
            for thread in threads: thread.join()
            writer.close()
        """.replace("SESSIONS", str(SESSIONS)),
    )
    for k in range(SESSIONS):
        ranges = importers.load(tmp_path / f"{k}.jsonl").ranges.to_pandas()
        assert not ranges.duplicated(["thread", "start"]).any()


@pytest.mark.racy("a signal comes at a random moment")
def test_signal_handlers_that_annotate_in_the_midst_of_a_flush(tmp_path) -> None:
    out = ran(
        tmp_path,
        """
        import signal
        handled = 0
        def handler(*_):
            global handled
            handled += 1
            attached.call(-handled)
            attached.writer().flush()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        for n in range(30_000):
            attached.call(n)
            if n % 500 == 0: attached.writer().flush()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(handled)
        """,
    )
    handled = int(out)
    assert handled > 20
    (found,) = recordings(tmp_path).values()
    assert sorted(arguments(found).values()) == list(range(-handled, 0)) + list(range(30_000))


def test_finalizers_that_annotate_in_the_midst_of_a_flush(tmp_path) -> None:
    out = ran(
        tmp_path,
        """
        import gc
        gc.set_threshold(50)
        made = 0
        class Cycle:
            def __init__(self): self.me = self
            def __del__(self):
                global made
                made += 1
                attached.call(-made)
                attached.writer().flush()
        for n in range(20_000):
            Cycle() if n % 7 == 0 else None
            attached.call(n)
            if n % 500 == 0: attached.writer().flush()
        gc.collect()
        print(made)
        """,
    )
    made = int(out)
    assert made > 1000
    (found,) = recordings(tmp_path).values()
    assert sorted(arguments(found).values()) == list(range(-made, 0)) + list(range(20_000))


@pytest.mark.racy("a signal comes at a random moment")
def test_a_handler_comes_twice_in_one_flush(tmp_path) -> None:
    """The first may not open the way for the second: what it wrote would come before the first line."""
    ran(
        tmp_path,
        """
        writer = attached.writer()
        attached.call(1)
        sink, write = writer.sink, writer.sink.write
        def writing(lines):
            for n in (2, 3):
                attached.call(n)
                writer.flush()
            write(lines)
        sink.write = writing
        writer.flush()
        del sink.write
        """,
    )
    (found,) = recordings(tmp_path).values()
    assert [*arguments(found).values()] == [1, 2, 3]


def test_first_details_on_many_threads_make_one_recording(tmp_path) -> None:
    ran(
        tmp_path,
        """
        sys.setswitchinterval(1e-6)
        gate = threading.Barrier(64)
        def work(n):
            gate.wait()
            attached.call(n)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    (found,) = recordings(tmp_path).values()
    assert sorted(arguments(found).values()) == list(range(64))
