"""Killed, out of disk, without a place to write to: what was written stays, and the program goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import BEGIN, arguments, environ, ran, recordings, run
from real_parts import NIGHT

from bridge import importers
from bridge.annotate.recording.sink import File
from bridge.annotate.recording.writer import Writer
from bridge.importers.recording.lines import read_recording

LOOP = """
writer, n = attached.writer(), 0
while True:
    for n in range(n, n + 200):
        attached.call(n)
    writer.flush()
    os.write(1, b"%d\\n" % n)
    n += 1
"""


def killed(folder: Path, after: float) -> int:
    """Run the loop, kill it; return what it said last that it had written."""
    folder.mkdir()
    command = [sys.executable, "-c", BEGIN + LOOP]
    with subprocess.Popen(command, env=environ(folder), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        time.sleep(after)
        child.send_signal(signal.SIGKILL)
        said += child.stdout.read()
    return int(said[: said.rindex(b"\n")].split(b"\n")[-1])


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_killed_at_any_moment_it_holds_what_was_written(tmp_path) -> None:
    moments = random.Random(1)
    for trial in range(25 if NIGHT else 6):
        last = killed(tmp_path / str(trial), moments.uniform(0, 0.03))
        (found,) = recordings(tmp_path / str(trial)).values()
        numbers = [*arguments(found).values()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last


@pytest.mark.slow
def test_what_is_open_is_there_though_the_process_is_killed(tmp_path) -> None:
    done = run(
        tmp_path,
        """
        from pathlib import Path
        from bridge import nvtx_op, nvtx_range
        from bridge.annotate import emit
        from bridge.annotate.recording.recorder import Recorder
        from bridge.annotate.recording.sink import File
        from bridge.annotate.recording.writer import Writer
        recorder = Recorder(Writer(File(Path(os.environ["BRIDGE_SIDECAR"], "s.jsonl"))))
        emit.use(recorder)
        nvtx_range("phase").start()
        with nvtx_op("outer"):
            with nvtx_op("inner"):
                recorder.writer.flush()
            recorder.writer.flush()
            os.kill(os.getpid(), 9)
        """,
    )
    assert done.returncode == -signal.SIGKILL
    ranges = importers.load(tmp_path / "s.jsonl").ranges
    assert dict(zip(ranges["name"], ranges["open"], strict=True)) == {
        "inner": False,
        "outer": True,
        "phase": True,
    }


@pytest.mark.slow
def test_a_full_disk_is_said_once_and_the_program_goes_on(tmp_path) -> None:
    done = run(
        tmp_path,
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for n in range(2_000):
            attached.call(n)
            if n % 100 == 0:
                attached.writer().flush()
        print(n, len(attached.writer().calls), len(attached.writer()._details))
        """,
    )
    assert done.stdout == "1999 99 99\n", done.stderr
    assert done.stderr.count("nothing more is recorded there") == 1
    assert "File too large" in done.stderr
    (path,) = tmp_path.glob("bridge-*")
    assert path.stat().st_size == 20_000
    found = read_recording(path)
    assert found.torn
    assert [*arguments(found).values()] == list(range(len(found.columns["calls"][0])))
    assert len(found.columns["calls"][0]) > 100


@pytest.mark.slow
def test_a_full_disk_of_a_small_size(tmp_path) -> None:
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path],
            check=False,
            capture_output=True,
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        done = run(tmp_path, "for n in range(20_000): attached.call(n)\nprint('end')")
        assert done.stdout == "end\n", done.stderr
        assert done.stderr.count("No space left on device; nothing more is recorded there") == 1
        (path,) = tmp_path.glob("bridge-*")
        read_recording(path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["a file/in it", "/proc/nothing"])
def test_where_nothing_can_be_written_it_is_said_once(tmp_path, place) -> None:
    (tmp_path / "a file").touch()
    done = run(tmp_path / place, "for n in range(20_000): attached.call(n)\nprint('end')")
    assert done.stdout == "end\n", done.stderr
    assert done.stderr.count("nothing more is recorded there") == 1


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_made(tmp_path) -> None:
    ran(tmp_path / "a" / "b", "attached.call(1)")
    assert len(recordings(tmp_path / "a" / "b")) == 1


@pytest.mark.slow
def test_off_is_off(tmp_path) -> None:
    environ_ = {**environ(tmp_path), "BRIDGE_SIDECAR": "off"}
    command = [sys.executable, "-c", BEGIN + "attached.call(1)"]
    subprocess.run(command, env=environ_, cwd=tmp_path, check=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_it_is_where_the_program_began_and_not_where_it_went(tmp_path) -> None:
    program = "os.chdir('/')\nattached.call(1)"
    command = [sys.executable, "-c", BEGIN + program]
    given = {k: v for k, v in environ(tmp_path).items() if k != "BRIDGE_SIDECAR"}
    subprocess.run(command, env=given, cwd=tmp_path, check=True)
    assert len(recordings(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "attached.writer().flush()"])
def test_what_annotates_at_the_very_end_is_there_as_well(tmp_path, before) -> None:
    program = "import atexit\natexit.register(attached.call, 2)\nattached.call(1)\n"
    ran(tmp_path, program + before)
    (found,) = recordings(tmp_path).values()
    assert [*arguments(found).values()] == [1, 2]


@pytest.mark.slow
def test_a_program_that_closes_all_files_gets_nothing_into_its_own(tmp_path) -> None:
    ran(
        tmp_path,
        """
        attached.call(1)
        attached.writer().flush()
        os.closerange(3, 100)
        own = [os.open(os.path.join(os.environ["BRIDGE_SIDECAR"], "own"), os.O_WRONLY | os.O_CREAT) for _ in range(20)]
        attached.call(2)
        """,
    )
    (found,) = recordings(tmp_path).values()
    assert [*arguments(found).values()] == [1, 2]
    assert not (tmp_path / "own").stat().st_size


def test_what_cannot_be_written_is_no_exception(tmp_path) -> None:
    writer = Writer(File(tmp_path / "r.jsonl"))
    writer.note(1, "key", {(1, 2): "no key of JSON's"})
    with pytest.warns(RuntimeWarning, match="TypeError.*nothing more is recorded there"):
        writer.flush()
    writer.note(2, "key", {})
    writer.flush()


@pytest.mark.slow
@pytest.mark.racy("threads and timers meet at random")
def test_a_recording_says_when_it_was_begun_not_when_it_was_written(tmp_path) -> None:
    """Else one of a program that ends long after its last range would be no recording of that time."""
    noted = int(
        ran(tmp_path, "attached.call(1)\nprint(time.time_ns())\ntime.sleep(0.2)\nattached.call(2)")
    )
    (found,) = recordings(tmp_path).values()
    assert found.header["epoch_ns"] <= noted
