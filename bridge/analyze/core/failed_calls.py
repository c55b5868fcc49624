"""Find the API calls that failed: which errors count, what came before the first one, and what followed it.

No failure is a value that answers what a call was asked (`cuda_errors.toml`), what only repeats the error of a call
before, and a call inside of another one whose return value is known: the program sees that of the outer call. An
error is overcome, and does not count, if the same function returns success later, on the same thread and in the same
op. Launches of kernels and graphs, memory that runs out, and errors that end all work of the process always count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.analyze.core.kinds import LAUNCHING, calls_matching
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, outer_first_order
from bridge.join.attributed import AttributedCapture, once
from bridge.knowledge import cuda_errors

SUCCESS = 0


@record
class FailedGroup:
    """The calls of one function that returned one error.

    ``rows`` are rows of the API calls in order of time; ``is_launch`` tells that these launch. ``followed`` is the
    number of later calls of the same processes that returned the same error, where it is one that ends all work;
    ``after`` is the last launch before the first row that did not fail, or NONE.
    """

    call: str
    number: int
    rows: Ints
    is_launch: bool = False
    followed: int = 0
    after: int = NONE


def launching(attributed: AttributedCapture) -> Flags:
    """Return whether each API call launches kernels or a graph."""
    return calls_matching(attributed, LAUNCHING)


def results(attributed: AttributedCapture) -> Ints:
    """Return what each API call returned, -1 where it is not known."""
    return attributed.capture.launches.result


@once
def failed_rows(attributed: AttributedCapture) -> Ints:
    """Return the API calls whose errors count, in order of time."""
    failed = np.flatnonzero((results(attributed) > SUCCESS) & attributed.counted_launches)
    if not len(failed):
        return failed
    failed = failed[_is_error(attributed, failed)]
    failed = failed[~_is_inner(attributed, failed)]
    failed = failed[_always_counts(attributed, failed) | ~succeeded_later(attributed, failed)]
    start = attributed.capture.launches.start
    failed = failed[np.argsort(start[failed], kind="stable")]
    return failed[~_is_repeated(attributed, failed)]


def failed_groups(attributed: AttributedCapture) -> list[FailedGroup]:
    """Return the failed calls by function and error, that which failed first first."""
    rows = failed_rows(attributed)
    follower = _followers(attributed, rows)
    followers, first = rows[follower], rows[~follower]
    calls = attributed.capture.launches
    call, number = calls.name.codes, results(attributed)
    group, one_of = number_groups(call[first], number[first])
    result = [_group(attributed, first[group == code], followers) for code in range(len(one_of))]
    start = calls.start
    return sorted(result, key=lambda found: int(start[found.rows[0]]))


def _group(attributed: AttributedCapture, rows: Ints, followers: Ints) -> FailedGroup:
    calls = attributed.capture.launches
    number = int(results(attributed)[rows[0]])
    is_own = results(attributed)[followers] == number
    homes = _homes(attributed)
    is_own &= np.isin(homes[followers], homes[rows])
    return FailedGroup(
        call=calls.name[rows[0]],
        number=number,
        rows=rows,
        is_launch=bool(launching(attributed)[rows[0]]),
        followed=int(is_own.sum()) if cuda_errors.is_sticky(number) else 0,
        after=_last_launch_before(attributed, int(rows[0])),
    )


def _pairs(attributed: AttributedCapture, rows: Ints) -> Iterator[tuple[str, int, Flags]]:
    """Yield function, returned value and mask of each combination of these among some calls."""
    named = attributed.capture.launches.name
    code, number = named.codes[rows], results(attributed)[rows]
    names = list(named.texts)
    group, first = number_groups(code, number)
    for at, row in enumerate(first.tolist()):
        yield names[code[row]] if code[row] != NONE else "", int(number[row]), group == at


def _is_error(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether the value that each of some calls returned is an error, and no answer."""
    result = np.ones(len(rows), bool)
    for call, number, mask in _pairs(attributed, rows):
        result[mask] = not cuda_errors.is_answer(call, number)
    return result


def _is_inner(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether each of some calls ran inside of another one whose return value is known."""
    calls = attributed.capture.launches
    if not len(rows):
        return np.zeros(0, bool)
    report, thread, start, end = calls.report, calls.thread, calls.start, calls.end
    end = np.maximum(start, end)
    track, _ = number_groups(report, thread)
    order = outer_first_order(track, start, end)
    outermost = _latest_end(track[order], end[order])
    outer = np.empty(len(calls), np.int64)
    outer[order] = order[outermost]
    own = outer[rows]
    is_inside = (own != rows) & (end[own] >= end[rows]) & (thread[rows] != NONE)
    flags: Flags = is_inside & (results(attributed)[own] != NONE)
    return flags


def _latest_end(track: Ints, end: Ints) -> Ints:
    """Return of each row the row of its track, up to itself, that ends last; the first of several.

    Rows are sorted by track and start. As calls nest, it is the outermost one that is still open, or the row itself.
    """
    _, rank = np.unique(end, return_inverse=True)
    key = track * (len(end) + 1) + rank  # ends of a track are compared with one another alone
    latest = np.maximum.accumulate(key)
    is_new = np.append(True, latest[1:] > latest[:-1])
    return np.maximum.accumulate(np.where(is_new, np.arange(len(end)), 0))


def _always_counts(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether each of some failed calls counts whatever follows."""
    counts = launching(attributed)[rows]
    for _, number, mask in _pairs(attributed, rows):
        counts[mask] |= cuda_errors.always_counts(number)
    return counts


def succeeded_later(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether the same function succeeded after each of some failed calls, on its thread and in its op."""
    calls = attributed.capture.launches
    name, start = calls.name.codes, calls.start
    tried = np.flatnonzero(np.isin(name, name[rows]))
    keys = (calls.report, calls.thread, name, _ops(attributed))
    group = np.full(len(calls), NONE)
    group[tried], first = number_groups(*(key[tried] for key in keys))
    worked = tried[results(attributed)[tried] == SUCCESS]
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(last, group[worked], start[worked])
    flags: Flags = last[group[rows]] > start[rows]
    return flags


def _is_repeated(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether each of some failed calls, in order of time, only tells the error of one before it."""
    _, first = number_groups(_homes(attributed)[rows], results(attributed)[rows])
    result = np.zeros(len(rows), bool)
    for call, _, mask in _pairs(attributed, rows):
        result[mask] = cuda_errors.repeats_error(call)
    result[first] = False
    return result


def _followers(attributed: AttributedCapture, rows: Ints) -> Flags:
    """Return whether each of some failed calls, in order of time, repeats an error that ended all work before."""
    group, first = number_groups(_homes(attributed)[rows], results(attributed)[rows])
    result = np.zeros(len(rows), bool)
    for at, row in enumerate(first.tolist()):
        if cuda_errors.is_sticky(int(results(attributed)[rows[row]])):
            result |= group == at
            result[row] = False  # the first: groups are numbered in order of rows
    return result


@once
def _homes(attributed: AttributedCapture) -> Ints:
    """Return a number of the report and process of each API call."""
    calls = attributed.capture.launches
    return number_groups(calls.report, calls.process)[0]


def _ops(attributed: AttributedCapture) -> Ints:
    """Return the op in which each API call was made, NONE for none."""
    return lookup(attributed.node_op, attributed.launch_node)


def _last_launch_before(attributed: AttributedCapture, row: int) -> int:
    """Return the last launch of the process of a call before it that did not fail, or NONE."""
    start, home = attributed.capture.launches.start, _homes(attributed)
    worked = launching(attributed) & (results(attributed) <= SUCCESS)
    before = np.flatnonzero(worked & (home == home[row]) & (start < start[row]))
    return int(before[np.argmax(start[before])]) if len(before) else NONE


def all_launches_failed(attributed: AttributedCapture) -> bool:
    """Return whether kernels or graphs were launched, and every launch failed."""
    launches = launching(attributed) & attributed.counted_launches
    return bool(launches.any() and (results(attributed)[launches] > SUCCESS).all())
