"""The pool's workers, without a process of their own: what they are told, what they answer, and what comes of one that dies."""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

import pytest

from bridge.join.options import AttributionOptions
from bridge.scale import pool
from bridge.scale.loading import Workers
from bridge.scale.task import FailedTask, Task, Work

PATIENCE_S = 5


def tasks(count: int) -> list[Task]:
    """Make tasks of reports that there are not."""
    names = [Path(f"none{n}.sqlite") for n in range(count)]
    return [
        Task(n, path, str(path), Work((), AttributionOptions())) for n, path in enumerate(names)
    ]


class Pretended:
    """A thread in the place of a worker's process: it answers each task, but for those that it dies at."""

    exitcode = -signal.SIGKILL

    def __init__(self, of: OfThreads, theirs: Connection, folder: str | None) -> None:
        self.of, self.theirs, self.folder = of, theirs, folder
        self.thread = Thread(target=self.works, daemon=True)

    def start(self) -> None:
        self.end = Connection(os.dup(self.theirs.fileno()))  # a process has an end of its own
        self.thread.start()

    def works(self) -> None:
        with self.end, suppress(EOFError, OSError):
            while True:
                task = self.end.recv()
                self.of.tried[task.place] += 1
                if self.of.tried[task.place] <= self.of.deaths.get(task.place, 0):
                    return
                wrong = self.of.wrong.get(task.place)
                self.end.send(wrong or FailedTask(task.place, task.path, "answered"))

    def join(self, _: float | None = None) -> None:
        self.thread.join()

    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def terminate(self) -> None:
        """It ends by itself once its pipe is closed."""


class OfThreads:
    """A context whose processes are threads: ``deaths`` says at which task how many of them die."""

    Pipe = staticmethod(Pipe)

    def __init__(
        self, deaths: dict[int, int] | None = None, wrong: dict[int, Exception] | None = None
    ) -> None:
        self.deaths, self.wrong = deaths or {}, wrong or {}
        self.tried: Counter[int] = Counter()
        self.started: list[Pretended] = []

    def Process(self, args: tuple[Connection], **_: object) -> Pretended:  # noqa: N802 - its name
        self.started.append(Pretended(self, *args))
        return self.started[-1]

    def run(self, work: list[Task], workers: int) -> list[FailedTask]:
        """Do the work in a pool of such processes; none may be left."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pool, "get_context", lambda _: self)
            try:
                return [*pool.in_processes(deque(work), workers)]  # type: ignore[list-item]
            finally:
                assert not any(one.is_alive() for one in self.started)


def test_a_worker_that_dies_is_seen_at_once() -> None:
    worker = pool.Worker(OfThreads(deaths={0: 1}))  # type: ignore[arg-type]
    worker.start(tasks(1)[0])
    assert worker.connection.poll(PATIENCE_S)  # the pipe has ended: nobody else has its other end
    assert worker.answer() is None
    assert worker.task is not None
    assert worker.end() == "killed by SIGKILL"


def test_every_task_is_answered_once() -> None:
    processes = OfThreads()
    found = processes.run(tasks(5), 2)
    assert sorted(one.place for one in found) == [0, 1, 2, 3, 4]
    assert processes.tried == dict.fromkeys(range(5), 1)
    assert len(processes.started) == 2


def test_no_more_workers_are_started_than_there_are_tasks() -> None:
    processes = OfThreads()
    assert len(processes.run(tasks(1), 8)) == len(processes.started) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_whose_worker_died_twice_is_done_by_the_third(workers: int) -> None:
    processes = OfThreads(deaths={1: 2})
    found = processes.run(tasks(3), workers)
    assert sorted((one.place, one.line) for one in found) == [(n, "answered") for n in range(3)]
    assert processes.tried == {0: 1, 1: 3, 2: 1}
    assert 3 <= len(processes.started) <= workers + 2  # another is started where none is idle


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_takes_three_workers_down_is_given_up_and_named(workers: int) -> None:
    processes = OfThreads(deaths={1: 99})
    found = {one.place: one.line for one in processes.run(tasks(3), workers)}
    assert found.keys() == {0, 1, 2}
    assert found[1].startswith("none1.sqlite: its worker died 3 times (killed by SIGKILL);")
    assert found[0] == found[2] == "answered"
    assert processes.tried == {0: 1, 1: 3, 2: 1}


def test_what_goes_wrong_in_a_worker_is_raised_here_and_no_process_is_left() -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        OfThreads(wrong={1: ZeroDivisionError("a bug")}).run(tasks(3), 2)


# -- in the worker


@pytest.fixture
def signals() -> Iterator[None]:
    """Put back what signals do."""
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(one) for one in both]
    yield
    for one, does in zip(both, before, strict=True):
        signal.signal(one, does)


@pytest.mark.usefixtures("signals")
def test_a_worker_answers_task_after_task_until_there_are_no_more() -> None:
    ours, theirs = Pipe()
    found: list[object] = []

    def parent() -> None:
        with ours, suppress(EOFError, OSError):
            for task in (*tasks(2), "no task"):
                ours.send(task)
                found.append(ours.recv())

    asking = Thread(target=parent)
    asking.start()
    with theirs:
        pool.serve(theirs)
    asking.join()
    first, second, wrong = found
    assert isinstance(first, FailedTask)
    assert isinstance(second, FailedTask)
    assert (first.place, second.place) == (0, 1)
    assert "none1.sqlite: no such file" in second.line
    assert isinstance(wrong, AttributeError)


@pytest.mark.usefixtures("signals")
def test_a_worker_leaves_interrupts_to_its_parent_and_ends_when_it_is_told_to() -> None:
    ours, theirs = Pipe()
    ours.close()
    pool.serve(theirs)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    with pytest.raises(SystemExit) as ended:  # so that it leaves nothing of its task behind
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_worker_ends_when_its_parent_has_ended_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[object] = []

    class Parent:
        def join(self) -> None:
            happened.append("the parent ended")

    monkeypatch.setattr(pool, "parent_process", Parent)
    monkeypatch.setattr(pool.os, "_exit", happened.append)
    pool._end_with_parent()  # what a thread of each worker does
    assert happened == ["the parent ended", 1]


# -- where tasks are done


def test_one_worker_or_one_report_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "available", lambda: False)
    monkeypatch.setattr(pool, "in_processes", lambda work, count: iter([(len(work), count)]))
    assert [*Workers(2).run(deque(tasks(3)))] == [(3, 2)]
    for workers, work in ((Workers(1), tasks(2)), (Workers(2), tasks(1))):
        found = [*workers.run(deque(work))]
        assert [one.place for one in found] == [task.place for task in work]
        assert all("no such file" in one.line for one in found if isinstance(one, FailedTask))
