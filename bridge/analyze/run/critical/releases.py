"""Waits of threads in calls of the operating system, and who or what ended each.

A report does not say who let a thread go on. Where another recorded thread did the same thing right before most waits
of one kind ended, such as the end of an op, and seldom does in the middle of them, that thread is taken for it. Of all
other waits nobody knows: a loader in another process, a request. If the run were shorter before, such a wait may last
as long as it did, or end at the pace at which they ended.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from bridge.analyze.core.groups import highest, quantiles
from bridge.analyze.core.kinds import is_data_loading
from bridge.analyze.run.critical.graph import Graph
from bridge.analyze.run.critical.host import HostPoints
from bridge.analyze.run.critical.retiming import Draft
from bridge.analyze.run.critical.work import Work
from bridge.importers.arrays import lookup, scatter
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges

WAITING = re.compile(
    r"p?poll|p?select|epoll_p?wait\d?|sem_(?:timed|clock)?wait|pthread_cond_\w*wait|pthread_mutex_\w*lock|pthread_join"
    r"|pthread_rwlock_\w*lock|futex|recv\w*|accept4?|sigwait\w*|wait(?:pid|id|3|4)?"
)
SERVING = re.compile(r"recv\w*|accept4?|epoll_p?wait\d?")  # of them, those for a request
PRIVATE = re.compile(r"pthread_\w+")  # of them, those for threads of the same process
LOCKING = re.compile(r"pthread_(?:mutex|rwlock|spin)_\w*lock")
OF_PYTHON = "pthread_cond_timedwait"
SWITCH_NS = (
    5_000_000  # for which CPython waits for its lock before it asks for it: sys.getswitchinterval()
)
AT_ONCE_NS = 20_000
MIN_WAIT_NS = 10_000  # shorter ones end before anybody notices
MIN_PACED_NS = (
    50_000  # of a wait for something that is not recorded; shorter ones are those of a call itself
)
MIN_PACED = 4  # waits of a site that come at a pace
FAR = 4  # times the usual time between two waits: another part of the program
WAKE_NS = 50_000  # a thread runs again at most so long after what it waited for
MIN_SIGNALLED = 0.7  # of the waits of a kind, that end right after another thread did one thing
MAX_BY_CHANCE = 0.3  # of the same share, that does so in the middle of them
# Of the times that a thread does what ends waits of a kind; what it does far more often ends none.
MIN_TELLING, MIN_TELLING_OF_CALLS = 0.02, 0.2
MAX_LOOKUPS = 20_000_000  # of waits and threads


Pairs = tuple[Ints, Ints]


@record
class HostWaits:
    """Points at which threads return from waits of `MIN_WAIT_NS` or more, and the ``site`` of each, a number.

    A site is a call in an op on a thread of a ``process``; ``is_private`` is whether it waits for that alone. Points
    are those of `HostPoints`, sorted by site and time. A wait that goes on at once in the same call is one wait:
    ``begin`` is the point at which it began. ``is_lock`` is whether it is one for a lock, and ``python`` are the points
    at which calls return that wait for Python's lock.
    """

    point: Ints
    site: Ints
    begin: Ints
    process: Ints
    is_private: Flags
    is_lock: Flags
    python: Ints

    @classmethod
    def of(cls, work: Work, host: HostPoints) -> HostWaits:
        """Return the waits of the threads of a run."""
        names = work.attributed.capture.system_calls.name
        rows = np.flatnonzero(names.at(host.system).matching(WAITING.fullmatch))
        rows = rows[host.chained[rows] & (host.call[rows] == NONE)]
        rows = rows[host.time[rows] - host.time[rows - 1] >= MIN_WAIT_NS]
        name = names[host.system[rows]]
        op = lookup(work.attributed.node_op, host.node[rows])
        locks = name.matching(LOCKING.fullmatch)
        site, _ = number_groups(host.threads(rows), name.codes, op)
        order = order_by(site, host.time[rows])
        rows, site, locks = rows[order], site[order], locks[order]
        goes_on = np.zeros(len(rows), bool)  # from the wait before
        goes_on[1:] = (site[1:] == site[:-1]) & (
            host.time[rows[1:] - 1] - host.time[rows[:-1]] <= AT_ONCE_NS
        )
        first = np.flatnonzero(~goes_on)
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        lasting = host.time[rows] - host.time[rows - 1]
        of_python = goes_on[1:] & (np.abs(lasting[:-1] - SWITCH_NS) <= SWITCH_NS // 20)
        is_lock = np.zeros(int(site.max(initial=NONE)) + 2, bool)
        is_lock[site[1:][of_python]] = True
        longest = highest(site, lasting, len(is_lock), empty=0)
        may_be = _may_be_python(work, host, rows) & (longest[site] <= SWITCH_NS * 21 // 20)
        is_lock[site[may_be]] = True
        python = rows[is_lock[site]]
        is_lock[site[locks]] = True
        is_private = names[host.system[rows[last]]].matching(PRIVATE.fullmatch)
        process = work.process_of_stacks[host.stack[rows[last]]]
        begin = rows[first] - 1
        return cls(
            point=rows[last],
            site=site[last],
            begin=begin,
            process=process,
            is_private=is_private,
            is_lock=is_lock[site[last]],
            python=python,
        )

    def take(self, rows: Flags | Ints) -> HostWaits:
        """Return some of the waits."""
        kept = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "python"}
        return replace(self, **kept)

    @property
    def inner(self) -> Ints:
        """The points within waits, but for their ends."""
        size = self.point - self.begin - 1
        inner: Ints = np.repeat(self.begin + 1 - (np.cumsum(size) - size), size) + np.arange(
            size.sum()
        )
        return inner


def _may_be_python(work: Work, host: HostPoints, rows: Ints) -> Flags:
    """Return whether threads of Python wait in ops in the call with which CPython waits for its lock.

    Its other locks are semaphores. Loaders of data wait in this call, too. No such call lasts longer than `SWITCH_NS`.
    """
    names = work.attributed.capture.system_calls.name
    op = lookup(work.own_op, host.node[rows])
    process = work.process_of_stacks[host.stack[rows]]
    result: Flags = names[host.system[rows]].among(OF_PYTHON) & (op != NONE)
    result &= ~is_data_loading(work.attributed)[op]
    return result & np.isin(process, work.python_processes)


# -- Who ended a wait


def signals(work: Work, host: HostPoints, waits: HostWaits) -> Ints:
    """Return the point of another thread that ended each wait, NONE where nobody did that is known."""
    result = np.full(len(waits.point), NONE)
    looks = len(waits.point) * len(host.stacks)
    if not looks or len(host.stacks) == 1 or looks > MAX_LOOKUPS:
        return result
    label, thread = _labels(work, host), host.stack.astype(np.int64)
    end, begin = host.time[waits.point], host.time[waits.begin]
    process = work.process_of_stacks[host.stacks]
    wait, point = _right_before(host, process, waits=waits, time=end, least=begin)
    by_chance, other = _right_before(
        host, process, waits=waits, time=(begin + end) // 2, least=begin - WAKE_NS
    )
    calls = work.attributed.capture.system_calls.name.codes
    call = lookup(calls, host.system)
    woken = call[point] == call[waits.point[wait]]  # at once, by the same thing
    wait, point = (rows[~woken | waits.is_private[wait]] for rows in (wait, point))
    # What one thread does says more than what any of them does.
    by_thread, by_any = (
        _telling(
            waits,
            (wait, point),
            by_chance=(by_chance, other),
            name=name,
            call=call,
            in_calls=_in_calls(host),
        )
        for name in (label * (int(thread.max()) + 1) + thread, label)
    )
    has_thread = np.isin(waits.site, waits.site[wait[by_thread]])
    rows = np.flatnonzero(by_thread | (by_any & ~has_thread[wait]))
    rows = rows[order_by(wait[rows], host.time[point[rows]])]
    result[wait[rows]] = point[rows]  # the last one stays
    return result


def _in_calls(host: HostPoints) -> Flags:
    """Return whether each point lies in an API call or at an edge of one: such as there are wherever work is issued."""
    call = np.append(host.call, np.int32(NONE))
    result: Flags = (call[:-1] != NONE) | (call[1:] != NONE)
    return result


def _telling(
    waits: HostWaits, ended: Pairs, by_chance: Pairs, name: Ints, call: Ints, in_calls: Flags
) -> Flags:
    """Return which rows of ``ended`` are of what ends the waits of their site, where anything does.

    Rows are waits and points right before they ended, and of ``by_chance`` waits and points in the middle of them.
    ``name`` is what is done at each point, and ``call`` the call of the system in which it is.
    """
    (wait, point), (chance_wait, other) = ended, by_chance
    counts = np.bincount(waits.site, minlength=int(waits.site.max(initial=NONE)) + 1)
    site = waits.site[wait]
    group, first = number_groups(site, name[point])
    share = _distinct(group, wait, len(first)) / counts[site[first]]
    pairs, _ = number_groups(
        np.concatenate((site, waits.site[chance_wait])), name[np.concatenate((point, other))]
    )
    chance = _distinct(pairs[len(site) :], chance_wait, int(pairs.max(initial=0)) + 1)
    chance_of = chance[pairs[: len(site)][first]] / counts[site[first]]
    fits = (share >= MIN_SIGNALLED) & (chance_of <= MAX_BY_CHANCE * share)
    alike, _ = number_groups(call[waits.point[wait[first]]], name[point[first]])
    matched = np.bincount(alike, share * counts[site[first]])[alike]  # of all threads that wait so
    least = np.where(in_calls[point[first]], MIN_TELLING_OF_CALLS, MIN_TELLING)
    fits &= matched >= least * _occurrences(name, name[point[first]])
    best = order_by(site[first], (~fits).astype(np.int64), np.rint(-1e6 * share).astype(np.int64))
    best = best[run_edges(site[first][best])[:-1]]
    is_best = np.zeros(len(first), bool)
    is_best[best[fits[best]]] = True
    result: Flags = is_best[group]
    return result


def _labels(work: Work, host: HostPoints) -> Ints:
    """Return a number for what begins and what ends at each point: by op, API call and call of the system."""
    capture = work.attributed.capture
    state, _ = number_groups(
        lookup(work.own_op, host.node),
        lookup(capture.launches.name.codes, host.call),
        lookup(capture.system_calls.name.codes, host.system),
    )
    size = int(state.max(initial=0)) + 2
    following = np.append(state[1:], size - 1)
    following[:-1][~host.chained[1:]] = size - 1
    label: Ints = state * size + following
    return label


def _occurrences(label: Ints, wanted: Ints) -> Ints:
    """Return how often each wanted label occurs among all."""
    known = np.unique(wanted)
    at = np.minimum(np.searchsorted(known, label), max(len(known) - 1, 0))
    count = np.bincount(at[known[at] == label] if len(known) else at[:0], minlength=len(known))
    result: Ints = count[np.searchsorted(known, wanted)]
    return result


def _right_before(
    host: HostPoints, process: Ints, waits: HostWaits, time: Ints, least: Ints
) -> tuple[Ints, Ints]:
    """Return which waits, by place, come at a time of each right after a point of another thread, and these points.

    ``process`` is that of each thread.
    """
    rows, points = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    edges = np.append(np.flatnonzero(~host.chained), len(host.time))
    for thread, (first, last) in enumerate(pairwise(edges.tolist())):  # one iteration per thread
        at = first + np.searchsorted(host.time[first:last], time, side="left") - 1
        age = time - host.time[np.maximum(at, first)]
        near = (at >= first) & (age <= WAKE_NS) & (time - age >= least)
        near &= (waits.point < first) | (waits.point >= last)
        near &= ~waits.is_private | (waits.process == process[thread])
        rows.append(np.flatnonzero(near))
        points.append(at[near])
    return np.concatenate(rows), np.concatenate(points)


def _distinct(group: Ints, wait: Ints, size: int) -> Ints:
    """Return the number of distinct waits in each group."""
    _, first = number_groups(group, wait)
    result: Ints = np.bincount(group[first], minlength=size)
    return result


def _begun(work: Work, host: HostPoints, waits: HostWaits, signal: Ints) -> Pairs:
    """Return the first point of each thread that another one made, and the last point of that one before it.

    The first thread of a process is taken for the one that made the others, and for the one that made processes whose
    work is done for it: their threads end its waits, or no other process issues as many kinds of work.
    """
    first = np.flatnonzero(~host.chained)
    nothing = np.empty(0, np.int64)
    if len(first) <= 1:
        return nothing, nothing
    last = np.append(first[1:], len(host.time))
    process = work.process_of_stacks[host.stacks]
    order = order_by(process, host.time[first])
    main = order[run_edges(process[order])[:-1]]  # the first thread of each process
    leader = scatter(main, process[main], int(process.max()) + 1)
    maker = leader[process]
    maker[main] = leader[
        _served(work, host, waits=waits, signal=signal, process=process)[process[main]]
    ]
    threads = np.flatnonzero(maker != np.arange(len(first)))
    begun, by = [nothing], [nothing]
    for one in np.unique(maker[threads]).tolist():  # one iteration per thread that made others
        others = threads[maker[threads] == one]
        times = host.time[first[one] : last[one]]
        at = np.searchsorted(times, host.time[first[others]], side="left") - 1
        begun.append(first[others][at >= 0])
        by.append(first[one] + at[at >= 0])
    return np.concatenate(begun), np.concatenate(by)


def _served(work: Work, host: HostPoints, waits: HostWaits, signal: Ints, process: Ints) -> Ints:
    """Return the process that each one works for, by their codes: the one whose waits its threads end.

    Where that is not known, it is the only one that issues work, if there is only one, else the process itself.
    """
    size = int(process.max()) + 1
    served = np.arange(size)
    leads = np.zeros(size, bool)
    leads[work.leading_processes] = True
    known = np.flatnonzero(signal != NONE)
    helper, user = process[host.threads(signal[known]) - 1], waits.process[known]
    helper, user = helper[helper != user], user[helper != user]
    pair, first = number_groups(helper, user)
    order = first[order_by(np.bincount(pair, minlength=len(first)))]
    served[helper[order]] = user[order]  # the one that it served most often stays
    if leads.sum() == 1:
        served[served == np.arange(size)] = np.flatnonzero(leads)[0]
    served[leads] = np.flatnonzero(leads)
    return served


# -- Waits that nobody recorded the end of


@record
class Releases:
    """Points at the ends of such ``waits``, and the points that stand for what ``released`` each, after all others.

    ``within`` are the points within these waits, and ``elastic`` those within waits that a known thread ended: time
    that passes only as long as the wait lasts. ``python`` are the points at which waits for Python's lock return,
    ``locked`` those of waits for other locks, which another thread held up to its points ``unlocked``. No edge stands
    for them: who holds a lock when a thread comes to it is chance, and another time it waits about as long.
    """

    waits: Ints
    released: Ints
    within: Ints
    elastic: Ints
    python: Ints
    locked: Ints
    unlocked: Ints

    @classmethod
    def of(cls, work: Work, host: HostPoints, graph: Graph, hosts: int) -> tuple[Graph, Releases]:
        """Add signals between threads to a graph; return it with the points of releases.

        Points of the host begin with ``hosts``. Waits of a site are released one after the other.
        """
        of_host = HostWaits.of(work, host)
        signal = signals(work, host, of_host)
        is_lock = of_host.is_lock
        held = np.flatnonzero(is_lock & (signal != NONE) & ~np.isin(of_host.point, of_host.python))
        locked, unlocked = hosts + of_host.point[held], hosts + signal[held]
        of_host, signal = of_host.take(~is_lock), signal[~is_lock]
        cross = graph.cross
        known = (signal != NONE) & (cross[hosts + of_host.point] == NONE)
        cross[hosts + of_host.point[known]] = hosts + signal[known]
        begun, by = _begun(work, host, of_host, signal)
        free = cross[hosts + begun] == NONE
        cross[hosts + begun[free]] = hosts + by[free]
        long = host.time[of_host.point] - host.time[of_host.begin] >= MIN_PACED_NS
        unknown = of_host.take((signal == NONE) & long)
        often = np.append(np.bincount(unknown.site), 0) >= MIN_PACED
        unknown = unknown.take(often[unknown.site])
        waits, site, begin = hosts + unknown.point, unknown.site, hosts + unknown.begin
        is_first = _begins_anew(site, graph.time[waits])
        released = len(graph.time) + np.arange(len(waits))
        if len(waits):
            graph = Graph(
                np.concatenate((graph.time, graph.time[waits])),
                np.concatenate((graph.chained, ~is_first)),
                np.concatenate((cross, np.where(is_first, begin, NONE)), dtype=np.int32),
            )
        within, elastic = (hosts + waiting.inner for waiting in (unknown, of_host.take(known)))
        python = hosts + of_host.python
        return graph, cls(
            waits=waits,
            released=released,
            within=within,
            elastic=elastic,
            python=python,
            locked=locked,
            unlocked=unlocked,
        )

    @property
    def points(self) -> Ints:
        """The points that a draft links."""
        return np.concatenate((self.waits, self.released))

    def draft(self, graph: Graph, *, paced: bool) -> Draft:
        """Return the graph of the recorded run; ``paced``: these waits end at their pace, else they last as long."""
        draft = Draft.of(graph)
        draft.remove(self.elastic)
        if paced:
            draft.remove(self.within)
            draft.remove(self.waits)
            draft.link(self.waits, self.released)
        return draft


def _begins_anew(site: Ints, time: Ints) -> Flags:
    """Return which waits have another site than the one before, or come far later than others of their site do."""
    begins = np.ones(len(site), bool)
    begins[1:] = site[1:] != site[:-1]
    apart = np.diff(time, prepend=0)
    inner = np.flatnonzero(~begins)
    if len(inner):
        group, first = number_groups(site[inner])
        (usual,) = quantiles(group, apart[inner], len(first), 0.5)
        begins[inner] = apart[inner] > FAR * usual[group]
    return begins
