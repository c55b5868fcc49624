"""What would be changed in a program: delays of its graph that go or shrink, waits that are cut, work that moves.

Each function returns a `Change`, which edits a draft of the graph of a run (`bridge.analyze.run.critical`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import numpy as np

from bridge.analyze.run.critical.order import NULL, stream_kinds
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import Run
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges, search_groups
from bridge.join.forest import nearest

NODE_GAP_NS = 1_000  # between two kernels of a CUDA graph that follow each other
PREPARING_NS = 500_000  # of host code before a launch, at most: longer code does something else
NODE_LAUNCH_NS = 50  # of the launch of a graph, per node


def together(changes: Iterable[Change]) -> Change:
    """Return all changes as one."""
    changes = list(changes)

    def change(draft: Draft) -> None:
        for one in changes:
            one(draft)

    return change


def nothing(_draft: Draft) -> None:
    """Leave everything as it was."""


# -- The host


def host_points(run: Run, nodes: Flags) -> Ints:
    """Return the points before which a thread is in one of some nodes of the nesting, and in none inside of them.

    The time of API calls is not that of the node. The last of ``nodes`` is for code in no range.
    """
    host = run.host
    here = np.append(nodes[:-1], nodes[-1])[host.node] & (host.call == NONE)
    return run.hosts + np.flatnonzero(here)


def under(run: Run, nodes: Flags) -> Flags:
    """Return which nodes are one of these or inside one, with False for no node as the last entry."""
    parent = run.work.attributed.attribution.nesting.parent
    return np.append(nearest(parent, nodes) != NONE, False)


def faster_code(points: Ints, factor: float = 0.0) -> Change:
    """Let the code before some points of the host take ``factor`` of its time."""
    return lambda draft: draft.scale(points, factor)


def call_points(run: Run, calls: Flags) -> Ints:
    """Return the points within some API calls."""
    return run.hosts + np.flatnonzero(lookup(calls, run.host.call, False))


def without_calls(run: Run, calls: Flags) -> Change:
    """Let some API calls take no time and wait for nothing; what they issue begins as soon.

    What a thread launches after a wait finds the device at work, and follows other work as fast as that does.
    """
    points, starts = call_points(run, calls), _launched_next(run, calls & run.waits.waits)
    faster = max(run.usual_latency - run.usual_gap, 0)

    def change(draft: Draft) -> None:
        draft.remove(points)
        draft.cut(points)
        draft.shorten(starts, np.full(len(starts), faster))

    return change


def _launched_next(run: Run, calls: Flags) -> Ints:
    """Return the points at which the first work begins that is issued after each of some API calls of a thread."""
    work, stack = run.work, run.work.attributed.attribution.stack
    rows, issuing = np.flatnonzero(calls), work.issuing
    if not len(rows):
        return rows
    place = search_groups(
        stack[issuing], work.call_start[issuing], stack[rows], work.call_end[rows], side="left"
    )
    following = lookup(issuing, place)
    following = following[(following != NONE) & (lookup(stack, following) == stack[rows])]
    is_next = np.zeros(len(stack) + 1, bool)
    is_next[following] = True
    places = np.flatnonzero(is_next[work.launch])
    places = places[order_by(work.launch[places], work.rank[work.row[places]])]
    first = run_edges(work.launch[places])[:-1]  # of several in one call
    return run.device.start[places[first]]


def system_points(run: Run, calls: Flags) -> Ints:
    """Return the points within some calls of the operating system, rows of `system_calls`."""
    in_call = lookup(calls, run.host.system, False) & (run.host.call == NONE)
    return run.hosts + np.flatnonzero(in_call)


# -- Work


def without_process(run: Run, places: Ints) -> Change:
    """Let the work of a process take no time, and no other work on its GPU wait for it."""
    is_gone = np.zeros(len(run.work.row) + 1, bool)
    is_gone[places] = True
    points = run.device.ruled
    waiting, awaited = run.device.activity[points], run.device.activity[run.graph.cross[points]]
    process = np.append(run.work.column("process"), NONE)
    waits = (process[waiting] != process[awaited]) & (is_gone[waiting] | is_gone[awaited])
    points = points[waits]
    gone, apart = without_work(run, places), free(run, points)
    starts = run.device.start[run.device.activity[points]]
    delay = run.graph.delay_of(starts)

    def change(draft: Draft) -> None:
        gone(draft)
        apart(draft)
        draft.remove(points)
        draft.limit(starts, delay)

    return change


def work_places(run: Run, activities: Flags) -> Ints:
    """Return the places in `Work` of some activities with valid times."""
    return np.flatnonzero(activities[run.work.row])


def faster_work(run: Run, places: Ints, factor: float) -> Change:
    """Let some activities take ``factor`` of their time."""
    ends = run.device.end[places]
    return lambda draft: draft.scale(ends, factor)


def shorter_work(run: Run, places: Ints, ns: Ints) -> Change:
    """Let some activities take at most so long."""
    ends = run.device.end[places]
    return lambda draft: draft.limit(ends, ns)


def without_work(run: Run, places: Ints) -> Change:
    """Let some activities not run: the gap before each goes, too."""
    ends, starts = run.device.end[places], run.device.start[places]

    def change(draft: Draft) -> None:
        draft.remove(ends)
        draft.remove(starts)

    return change


def without_default_stream(run: Run) -> tuple[Change, Ints]:
    """Let work in the legacy default stream and in blocking ones no longer wait for each other; return what waited."""
    is_null = np.append(stream_kinds(run.work) == NULL, False)
    points = run.device.ruled
    waiting, awaited = run.device.activity[points], run.device.activity[run.graph.cross[points]]
    crosses = is_null[waiting] != is_null[awaited]
    return free(run, points[crosses]), waiting[crosses]


def free(run: Run, points: Ints) -> Change:
    """Let waits of work for other work go; the first work of a stream then waits for its launch alone."""
    issued = run.issued(points)
    chained = points[run.graph.chained[points]]
    first, issued = points[issued != NONE], issued[issued != NONE]

    def change(draft: Draft) -> None:
        draft.cut(chained)
        draft.link(first, issued)

    return change


def as_graph(run: Run, places: Ints) -> Change:
    """Let activities be nodes of a CUDA graph: their launches cost next to nothing, and gaps are short."""
    starts = run.device.start[places]
    launches = np.zeros(len(run.work.call_start), bool)
    launches[run.work.launch[places][run.work.launch[places] != NONE]] = True
    points = call_points(run, launches)
    code = code_between(run, launches)
    usual = 2 * int(np.median(run.graph.delay[points])) if len(points) else 0
    gone = np.minimum(run.graph.delay[points], usual) - NODE_LAUNCH_NS

    def change(draft: Draft) -> None:
        draft.shorten(points, np.maximum(gone, 0))
        draft.remove(code)
        draft.limit(starts, NODE_GAP_NS)

    return change


def code_between(run: Run, launches: Flags) -> Ints:
    """Return the points of host code that prepares some launches.

    It is short, and in ops whose own calls are all such launches, or right before one of them.
    """
    attributed, host = run.work.attributed, run.host
    nodes = len(attributed.attribution.nesting)
    of_call = attributed.launch_node
    launching, others = np.zeros(nodes + 1, bool), np.zeros(nodes + 1, bool)
    launching[of_call[launches]] = True
    others[of_call[~launches]] = True
    inside = launching & ~others
    inside[NONE] = False
    is_code = (host.call == NONE) & (host.system == NONE)
    is_code &= run.host_delay <= PREPARING_NS
    return run.hosts + np.flatnonzero(is_code & (inside[host.node] | prepares(run, launches)))


def prepares(run: Run, launches: Flags) -> Flags:
    """Return whether the code before each point of the host is short, and one of some launches follows it."""
    host = run.host
    delay = run.host_delay
    follows = np.zeros(len(host.time), bool)
    follows[:-1] = lookup(launches, host.call[1:], False) & host.chained[1:]
    result: Flags = follows & (delay <= PREPARING_NS)
    return result


def hidden(run: Run, activities: Flags) -> Change:
    """Let work, such as communication, cost nothing while its GPU computes; what cannot be hidden keeps its time."""
    places = work_places(run, activities)
    lane_of = run.gpu_of_place
    computing = np.zeros(len(run.work.row), bool)
    computing[work_places(run, run.computing)] = True
    computing[places] = False
    length = run.work.end - run.work.start
    gpus = int(lane_of.max(initial=0)) + 1
    room = np.bincount(lane_of[computing], length[computing], gpus)
    need = np.bincount(lane_of[places], length[places], gpus)
    left = np.clip(1 - room / np.maximum(need, 1), 0, 1)
    ends = run.device.end[places]
    factor = left[lane_of[places]]

    def change(draft: Draft) -> None:
        draft.scale(ends, factor)
        draft.remove(run.device.start[places])

    return change


def beside(run: Run, copies: Flags, change: Change) -> Change:
    """Add to a change that some copies run in a stream of their own, one after the other, as soon as they are issued.

    Of each is left what the work behind it would still wait for.
    """
    places = work_places(run, copies & (run.work.attributed.attribution.launch != NONE))
    places = places[run.host.launch[run.work.launch[places]] != NONE]
    starts, ends = run.device.start[places], run.device.end[places]
    length = (run.work.end - run.work.start)[places]

    def apart(draft: Draft) -> None:
        change(draft)
        draft.remove(starts)
        draft.remove(ends)

    @cache
    def left() -> Ints:
        time = run.retimed(apart)[0].graph.time
        issued = time[run.hosts + run.host.launch[run.work.launch[places]]] + run.usual_latency
        gpu = run.gpu_of_place[places]
        order = order_by(gpu, issued)
        done = np.empty(len(order), np.int64)
        for first, last in pairwise(run_edges(gpu[order]).tolist()):  # one iteration per GPU
            rows = order[first:last]
            passed = np.cumsum(length[rows])
            done[rows] = np.maximum.accumulate(issued[rows] + length[rows] - passed) + passed
        waited: Ints = np.clip(done - time[starts], 0, length)
        return waited

    def in_own_stream(draft: Draft) -> None:
        apart(draft)
        draft.set(ends, left())

    return in_own_stream


__all__ = [
    "as_graph",
    "beside",
    "call_points",
    "code_between",
    "faster_code",
    "faster_work",
    "free",
    "hidden",
    "host_points",
    "nothing",
    "prepares",
    "shorter_work",
    "system_points",
    "together",
    "under",
    "without_calls",
    "without_default_stream",
    "without_process",
    "without_work",
    "work_places",
]
