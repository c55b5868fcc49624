"""Workers: of Dask, of our own pool; one that is killed loses nothing, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from command import bridge, done
from made_reports import small
from real_parts import need
from served import served

from bridge.join.options import AttributionOptions
from bridge.scale import pool
from bridge.scale.aggregates import Aggregates
from bridge.scale.loading import tasks_of
from bridge.scale.requests import stored_tables
from bridge.scale.task import FailedTask, Task, Work
from fleet.reports import several

REPORTS = 16
PROGRAM = """
import sys
if sys.argv.pop(1) == "pool":
    sys.modules["distributed"] = None
if __name__ == "__main__":
    from bridge.cli import main
    main(prog_name="bridge")
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    several(folder, REPORTS)
    return folder


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Start a Dask cluster of two workers once, and give its address."""
    need("dask", find_spec("distributed"), "Dask's distributed is not installed")
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as running:
        yield running.scheduler_address


def workers_of_ours() -> list[BaseProcess]:
    return [child for child in active_children() if child.name == pool.NAME]


def tasks(reports: Path) -> list[Task]:
    return tasks_of(
        sorted(reports.rglob("*.sqlite")), Work(stored_tables()[:3], AttributionOptions())
    )


def pattern(reports: Path) -> str:
    return f"{reports}/**/*.sqlite"


@pytest.fixture(scope="module")
def one_process(reports: Path) -> str:
    """Give what one process prints."""
    return done("report", pattern(reports), "--by", "op-kernel", "--format", "json")


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_a_cluster_of_two_workers_says_what_one_process_says(reports, scheduler, one_process):
    command = ("report", pattern(reports), "--by", "op-kernel", "--format", "json")
    result = bridge(*command, "--workers", scheduler)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == one_process
    assert f"{REPORTS} of {REPORTS}: rank" in result.stderr


@pytest.mark.slow
@pytest.mark.racy("a cluster that shares a busy machine")
def test_workers_fetch_reports_themselves_and_leave_nothing(
    reports, scheduler, one_process, tmp_path, monkeypatch
):
    left = set(Path(tempfile.gettempdir()).rglob("bridge-fetch-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with served(reports) as place:
        names = sorted(str(path.relative_to(reports)) for path in reports.rglob("*.sqlite"))
        urls = [f"http://u:hidden@{place}/{name}" for name in names]
        command = ("report", *urls, "--by", "op-kernel", "--format", "json", "--workers")
        none = f"http://u:hidden@{place}/none.sqlite"
        on_cluster = bridge(*command, scheduler)
        broken = bridge(*command, scheduler, "--strict", none)
        in_pool = bridge(*command, 2)
    assert on_cluster.stdout == in_pool.stdout == one_process
    assert broken.exit_code == 1
    assert f"http://{place}/none.sqlite: no such file" in broken.stderr
    assert "hidden" not in on_cluster.output + in_pool.output + broken.output
    assert not [*tmp_path.iterdir()]
    monkeypatch.undo()
    assert set(Path(tempfile.gettempdir()).rglob("bridge-fetch-*")) <= left


@pytest.mark.slow
def test_a_pool_of_two_workers_says_what_one_process_says(reports, one_process):
    command = ("report", pattern(reports), "--by", "op-kernel", "--format", "json")
    assert done(*command, "--workers", 2) == one_process
    assert not workers_of_ours()


def after_a_kill(
    outcomes: Iterator[Aggregates | FailedTask], kill: Callable[[], None]
) -> list[Aggregates | FailedTask]:
    """Take all outcomes, and kill what works once the first is there."""
    found = [next(outcomes)]
    kill()
    return [*found, *outcomes]


def assert_complete(found: list[Aggregates | FailedTask], work: list[Task]) -> None:
    assert all(isinstance(one, Aggregates) for one in found)
    assert sorted(one.place for one in found) == [task.place for task in work]


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_a_killed_worker_of_a_cluster_loses_nothing(reports, scheduler):
    from distributed import Client

    def kill() -> None:
        with Client(scheduler) as client:
            workers = client.run(os.getpid)
            os.kill(next(iter(workers.values())), signal.SIGKILL)

    work = tasks(reports)
    assert_complete(after_a_kill(pool.on_cluster(deque(work), scheduler), kill), work)


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_killed_workers_of_the_pool_lose_nothing(reports):
    killed: list[int] = []

    def kill() -> None:
        for child in workers_of_ours():
            killed.append(child.pid or 0)
            os.kill(child.pid or 0, signal.SIGKILL)

    work = tasks(reports)
    assert_complete(after_a_kill(pool.in_processes(deque(work), 2), kill), work)
    assert len(killed) == 2
    assert not workers_of_ours()


class Deadly:
    """Kills the process that it is sent to."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[int, ...]]:
        return signal.raise_signal, (signal.SIGKILL,)


@pytest.mark.slow
def test_a_report_that_kills_its_worker_every_time_is_named_and_the_others_go_on(reports):
    first, deadly, *others = tasks(reports)[:4]
    work = [first, replace(deadly, given=Deadly()), *others]
    found = {one.place: one for one in pool.in_processes(deque(work), 2)}
    broken = found.pop(1)
    assert isinstance(broken, FailedTask)
    assert "died 3 times (killed by SIGKILL)" in broken.line
    assert_complete([*found.values()], [first, *others])
    assert not workers_of_ours()


@pytest.mark.slow
def test_what_nobody_waits_for_any_more_is_dropped_by_the_scheduler(reports, scheduler):
    from distributed import Client

    def left(dask_scheduler: object = None) -> int:
        return len(dask_scheduler.tasks)  # type: ignore[attr-defined]

    outcomes = pool.on_cluster(deque(tasks(reports)), scheduler)
    next(outcomes)
    outcomes.close()
    ends = time.monotonic() + 20
    with Client(scheduler) as client:
        while client.run_on_scheduler(left) and time.monotonic() < ends:
            time.sleep(0.01)
        assert client.run_on_scheduler(left) == 0


@pytest.mark.slow
def test_nobody_answers_at_the_address(reports, monkeypatch):
    import dask

    need("dask", find_spec("distributed"), "Dask's distributed is not installed")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        result = bridge("report", pattern(reports), "--workers", "tcp://127.0.0.1:9")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("Error: tcp://127.0.0.1:9: no scheduler")


def test_without_dask_a_scheduler_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "available", lambda: False)
    path = small(tmp_path / "made.sqlite", steps=1)
    result = bridge("report", path, "--workers", "tcp://127.0.0.1:9")
    assert result.exit_code == 1
    assert "nsight-bridge[cluster]" in result.stderr


@pytest.fixture
def started(tmp_path: Path, reports: Path) -> Iterator[subprocess.Popen[str]]:
    """Start an import in a pool, in a session of its own, and wait until a report is done."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = ["pool", "import", pattern(reports), "--workers", "2", "--db", tmp_path / "x.db"]
    process = subprocess.Popen(
        [sys.executable, program, *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr
    assert process.stderr.readline().startswith("1 of 16")
    yield process
    process.kill()
    process.communicate()


def living(group: int) -> list[str]:
    """List the processes of a group that are no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            found += [stat.parent.name] if int(of) == group and state != "Z" else []
    return found


def left(group: int, patience_s: float) -> list[str]:
    """List what of a group still lives after some patience.

    Python's own tracker of resources ends after its parent: it has closed its standard error, which is what a reader waits
    for, some milliseconds before it is gone.
    """
    ends = time.monotonic() + patience_s
    while (found := living(group)) and time.monotonic() < ends:
        time.sleep(0.01)
    return found


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_an_interrupt_leaves_nothing(started, tmp_path):
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "interrupted; nothing half-written was left" in said
    assert "Traceback" not in said
    assert not left(started.pid, 5)
    assert not (tmp_path / "x.db").exists()


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_workers_end_with_a_parent_that_is_killed(started, tmp_path):
    assert len(living(started.pid)) >= 3
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert not left(started.pid, 20)
