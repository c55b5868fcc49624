"""What is said of a cluster of Dask that loses workers, is another version, or does not answer, without one."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from bridge import __version__
from bridge.join.options import AttributionOptions
from bridge.scale import pool
from bridge.scale.pool import NoClusterError, on_cluster
from bridge.scale.task import FailedTask, Task, Work

ADDRESS = "tcp://there:1"
TASKS = [Task(n, Path(f"none{n}.sqlite"), "", Work((), AttributionOptions())) for n in range(2)]


class KilledError(Exception):
    """As Dask's KilledWorker: it tries a task on one worker more than so many may fail."""

    allowed_failures = 3


class Client:
    """Answers at once; what it makes of tasks is said beforehand."""

    answers: Any = __version__
    outcome: Exception | None = None
    scheduler = SimpleNamespace(address=ADDRESS)

    def __init__(self, address: str) -> None:
        assert address == ADDRESS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to be done."""

    def submit(self, *_: object, pure: bool) -> Future[Any]:
        return future(self.answers)

    def map(
        self, _: object, tasks: Iterable[Task], *, pure: bool, priority: int
    ) -> list[Future[Any]]:
        return [future(self.outcome or task.place) for task in tasks]


def future(outcome: Any) -> Future[Any]:
    found: Future[Any] = Future()
    if isinstance(outcome, Exception):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)
    return found


class Completed(list[Future[Any]]):
    """Futures that end in the order from the last to the first."""

    def __iter__(self) -> Iterator[Future[Any]]:
        while self:
            yield self.pop()

    update = list.extend


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Put such a cluster in the place of Dask's."""
    made = SimpleNamespace(Client=Client, as_completed=Completed, KilledWorker=KilledError)
    monkeypatch.setitem(sys.modules, pool.DASK, made)
    monkeypatch.setattr(pool, "available", lambda: True)
    return monkeypatch


def test_what_comes_of_tasks_is_given_in_the_order_in_which_they_end(dask) -> None:
    assert [*on_cluster(deque(TASKS), ADDRESS)] == [1, 0]


def test_a_report_that_takes_its_workers_down_is_named_with_how_many(dask) -> None:
    dask.setattr(Client, "outcome", KilledError())
    found = [*on_cluster(deque(TASKS), ADDRESS)]
    assert all(isinstance(one, FailedTask) for one in found)
    assert [one.place for one in found] == [1, 0]
    said = "none0.sqlite: its worker died 4 times (as Dask counts); is there memory enough?"
    assert isinstance(found[1], FailedTask)
    assert found[1].line.startswith(said)


@pytest.mark.parametrize(
    ("answers", "outcome", "said"),
    [
        ("0.0.1", None, f"tcp://there:1: its workers have nsight-bridge 0.0.1, this is {__version__}"),
        (TimeoutError(), None, "tcp://there:1: no worker answers; is nsight-bridge .* installed there"),
        (ImportError("no bridge"), None, "tcp://there:1: its workers: no bridge; is nsight-bridge"),
        (__version__, CancelledError(), "the scheduler is gone; is its machine up"),
    ],
    ids=["another version", "no worker", "without this package", "gone"],
)  # fmt: skip
def test_a_cluster_that_cannot_do_it_is_an_error_in_one_line(answers, outcome, said, dask) -> None:
    dask.setattr(Client, "answers", answers)
    dask.setattr(Client, "outcome", outcome)
    with pytest.raises(NoClusterError, match=said):
        list(on_cluster(deque(TASKS), ADDRESS))
