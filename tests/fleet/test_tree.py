"""The tree by which workers merge tables: all of them once, in the order of the reports, however they end."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.join.options import AttributionOptions
from bridge.scale import pool, tree
from bridge.scale.loading import Workers, run, tasks_of
from bridge.scale.merging import Part
from bridge.scale.requests import mergeable, whole_tables
from bridge.scale.task import Merge, Merged, Work
from bridge.scale.tree import FAN, Tree
from fleet.reports import several


def grown(reports: int, broken: set[int], seed: int, lost: float = 0.0) -> Tree:
    """Let reports end in any order, and merges too, of which a part is lost."""
    chance, made = random.Random(seed), Tree(reports, ["op"])
    waiting: list[int | Merge] = [*range(reports)]
    while waiting:
        task = waiting.pop(chance.randrange(len(waiting)))
        if isinstance(task, Merge):
            assert len(task.parts) > 1
            joined = ({"op": b"".join(part["op"] for part in task.parts)},)
            done = (
                task.lost("memory")
                if chance.random() < lost
                else Merged(task.level, task.number, joined)
            )
            waiting += made.ended(done.level, done.number, done.parts)
        else:
            tables = {"op": b"%d " % task, "kernel": b"no"}
            waiting += made.report(task, None if task in broken else tables)
    assert not made.open
    return made


@given(st.integers(1, 700), st.sets(st.integers(0, 700)), st.integers(), st.sampled_from([0, 0.2]))
def test_each_report_is_merged_once_in_their_order(reports, broken, seed, lost) -> None:
    found = grown(reports, broken, seed, lost).parts
    assert b"".join(part["op"] for part in found).split() == [
        b"%d" % n for n in range(reports) if n not in broken
    ]
    assert len(found) <= FAN or lost


def test_what_is_merged_does_not_depend_on_who_ends_first() -> None:
    assert grown(300, {1, 2}, 1).parts == grown(300, {1, 2}, 2).parts


def test_without_tables_nothing_is_merged() -> None:
    made = Tree(100, [])
    assert not [merge for n in range(100) for merge in made.report(n, {"op": b""})]
    assert made.parts == ()


class Deadly:
    """Ends the process that it is sent to."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return exit, (1,)


@pytest.mark.slow
def test_a_merge_that_takes_its_workers_down_leaves_its_parts() -> None:
    parts: tuple[Part, ...] = ({"op": Deadly()}, {"op": b""})  # type: ignore[dict-item]
    [found] = pool.in_processes(deque([Merge(1, 0, parts)]), 1)
    assert found == Merged(1, 0, parts)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_tree_of_two_children_each_says_the_same(workers, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tree, "FAN", 2)
    paths, views = several(tmp_path, 5), ("op", "op-kernel", "op,kernel", "memcpy", "shape,op")
    found = []
    for merged in ((), mergeable(views)):
        work = Work(tuple(whole_tables(views)), AttributionOptions(), merged=merged)
        found.append(run(tasks_of(paths, work), Workers(workers), lambda _: None))
    assert [len(one.merged) for one in found] == [0, 2]
    for by in views:
        assert found[1].by(by).to_csv() == found[0].by(by).to_csv()
