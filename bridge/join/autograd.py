"""Backward ranges, and the forward ranges that they differentiate, by PyTorch's sequence number.

PyTorch numbers the nodes of its graph per process; the backward call of a node carries the number that the
forward call was given, and runs on a thread of its own. Numbers recur: under ``create_graph``, with
several forward threads, after a fork.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.arrays import NONE, Flags, Ints, by, number
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting
from importers import frames
from importers.percall import SEQ, numbers
from importers.report import Report

# -- Which ranges run in the backward pass, and which forward range each of them belongs to


ENGINE = "autograd::engine::evaluate_function: "  # around each backward call, without its number


@dataclass(frozen=True)
class Directions:
    """Per node: whether it is backward, its forward range (a row, or NONE), whether several threads had one.

    ``ranges`` tells of every range, also of those without a node, whether it is backward.
    """

    backward: Flags
    forward: Ints
    ambiguous: Flags
    ranges: Flags

    @classmethod
    def of(cls, report: Report, nesting: Nesting) -> Directions:
        """Find directions by name and by nesting, forward ranges by sequence number."""
        names = list(report.ranges["name"].cat.categories)
        code = frames.codes(report.ranges["name"])
        named = np.array([parse(name).backward for name in names], bool)[code]
        own = named[nesting.range]
        backward = inherited(nesting, np.where(own, 1, NONE)) == 1
        first = nesting.first_nodes(len(named))
        ranges = np.where(first == NONE, named, np.append(backward, False)[first])
        link, ambiguous = _links(report, first, ranges)
        engine = np.array([name.startswith(ENGINE) for name in names], bool)[code[nesting.range]]
        link, ambiguous = _engines_too(
            nesting, engine, link[nesting.range], ambiguous[nesting.range]
        )
        nearest = inherited(nesting, np.where(link == NONE, NONE, np.arange(len(link))))
        has = (nearest != NONE) & backward
        forward = np.where(has, np.append(link, NONE)[nearest], NONE)
        return cls(backward, forward, has & np.append(ambiguous, False)[nearest], ranges)


def _links(report: Report, first: Ints, backward: Flags) -> tuple[Ints, Flags]:
    """Return the forward range of each range, and whether it is one of several threads'."""
    forward, ambiguous = np.full(len(first), NONE), np.zeros(len(first), bool)
    seq = numbers(report.texts, SEQ)[frames.ints(report.ranges, "text")]
    rows = np.flatnonzero((first != NONE) & (seq != NONE))
    if len(rows):
        columns = ("report", "process", "thread", "start", "end")
        of, process, *own = (frames.ints(report.ranges, c)[rows] for c in columns)
        calls = Calls(number(of, process)[0], own[0], own[1], own[2], seq[rows])
        links = linked(calls, backward[rows])
        forward[rows] = np.append(rows, NONE)[links.forward]
        ambiguous[rows] = links.ambiguous
    return forward, ambiguous


def _engines_too(
    nesting: Nesting, engine: Flags, link: Ints, ambiguous: Flags
) -> tuple[Ints, Flags]:
    """Let the engine's range around a backward call belong where that call does."""
    parent = nesting.parent
    inner = np.flatnonzero((link != NONE) & (parent != NONE))
    inner = inner[engine[parent[inner]] & (link[parent[inner]] == NONE)]
    link, ambiguous = link.copy(), ambiguous.copy()
    link[parent[inner]], ambiguous[parent[inner]] = link[inner], ambiguous[inner]
    return link, ambiguous


# -- Backward ranges, and the forward ranges that they differentiate, by PyTorch's sequence number


@dataclass(frozen=True)
class Links:
    """Per row: the row of its forward range (NONE without), and whether several threads offered one."""

    forward: Ints
    ambiguous: Flags


@dataclass(frozen=True)
class Calls:
    """Ranges with a sequence number."""

    process: Ints
    thread: Ints
    start: Ints
    end: Ints
    seq: Ints


@dataclass(frozen=True)
class _Keyed:
    """Calls by key, a number per process and sequence number; those offered are sorted, inner ones last."""

    key: Ints
    thread: Ints
    start: Ints


def linked(calls: Calls, backward: Flags) -> Links:
    """Link each backward call to the forward call with the same number.

    Of those in the process that started before it, on another thread if there is any, the one that
    started last: calls around the one that made the node carry its number as well.
    """
    key, _ = number(calls.process, calls.seq)
    asking, offered = np.flatnonzero(backward), np.flatnonzero(~backward)
    offered = offered[by(key[offered], calls.start[offered], -calls.end[offered])]
    ours, theirs = (
        _Keyed(key[rows], calls.thread[rows], calls.start[rows]) for rows in (asking, offered)
    )
    forward, ambiguous = np.full(len(key), NONE), np.zeros(len(key), bool)
    if len(asking) and len(offered):
        forward[asking] = np.append(offered, NONE)[_latest(ours, theirs)]
        ambiguous[asking] = _threads_before(ours, theirs) > 1
    return Links(forward, ambiguous)


def inherited(nesting: Nesting, own: Ints) -> Ints:
    """Return each node's own value, or that of the nearest node around it that has one."""
    value = own.copy()
    above = nesting.parent.copy()
    left = np.flatnonzero((value == NONE) & (above != NONE))
    while len(left):
        value[left] = own[above[left]]
        above[left] = nesting.parent[above[left]]
        left = left[(value[left] == NONE) & (above[left] != NONE)]
    return value


def _latest(asked: _Keyed, offered: _Keyed) -> Ints:
    """Return the place of the last one offered before, on another thread if there is any, or NONE."""
    last = _before(asked.key, asked.start, offered.key, offered.start)
    foreign = _on_another_thread(last, asked.thread, offered.key, offered.thread)
    return np.where(foreign == NONE, last, foreign)


def _before(key: Ints, time: Ints, keys: Ints, times: Ints) -> Ints:
    """Return the last place of (keys, times), sorted, with the same key and an earlier time."""
    offered = np.concatenate((np.zeros(len(key), np.int64), np.ones(len(keys), np.int64)))
    # Those who ask sort before what is offered at the same time, so that only earlier ones precede.
    order = by(np.concatenate((key, keys)), np.concatenate((time, times)), offered)
    seen = np.cumsum(offered[order]) - 1
    place = np.full(len(key), NONE)
    asking = order < len(key)
    place[order[asking]] = seen[asking]
    same = (place != NONE) & (keys[np.maximum(place, 0)] == key)
    return np.where(same, place, NONE)


def _on_another_thread(place: Ints, thread: Ints, keys: Ints, threads: Ints) -> Ints:
    """Step back from each place to one of another thread, within the same key."""
    new = np.ones(len(keys), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (threads[1:] != threads[:-1])
    first = np.maximum.accumulate(
        np.where(new, np.arange(len(keys)), 0)
    )  # of its thread's in a row
    own = (place != NONE) & (threads[place] == thread)
    before = np.where(own, first[place] - 1, place)
    other_key = keys[np.maximum(before, 0)] != keys[np.maximum(place, 0)]
    return np.where((before < 0) | other_key, NONE, before)


def _threads_before(asked: _Keyed, offered: _Keyed) -> Ints:
    """Return how many threads but the asking one offered the same key earlier."""
    _, rows = number(offered.key, offered.thread)  # the earliest of each key and thread
    rows = rows[by(offered.key[rows], offered.start[rows])]
    keys, firsts = offered.key[rows], offered.start[rows]
    place = _before(asked.key, asked.start, keys, firsts)
    count = np.where(place == NONE, 0, place + 1 - np.searchsorted(keys, asked.key))
    both = (np.concatenate((keys, asked.key)), np.concatenate((offered.thread[rows], asked.thread)))
    pair, _ = number(*both)
    first = np.full(int(pair.max(initial=0)) + 1, np.iinfo(np.int64).max)
    first[pair[: len(keys)]] = firsts
    own = first[pair[len(keys) :]] < asked.start
    return count - own
