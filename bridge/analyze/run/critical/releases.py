"""Waits that something ended which no one recorded: a loader in another process, a request, another program.

A thread waits in a call of the operating system, and the report does not say who let it go on. If the run were shorter
before, the wait may last as long as it did, or end at the pace at which such waits ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from bridge.analyze.run.critical.graph import Graph
from bridge.analyze.run.critical.host import HostPoints
from bridge.analyze.run.critical.work import Work
from bridge.importers import frames
from bridge.join.arrays import NONE, Ints, number_groups, order_by

WAITING = re.compile(
    r"p?poll|p?select|epoll_p?wait\d?|sem_(?:timed|clock)?wait|pthread_cond_\w*wait|pthread_mutex_\w*lock|pthread_join"
    r"|futex|recv\w*|accept4?|sigwait\w*|wait(?:pid|id|3|4)?"
)
MIN_WAIT_NS = 10_000  # shorter ones end before anybody notices


@dataclass(frozen=True)
class Releases:
    """Points at the ends of such ``waits``, and the points that stand for what ``released`` each, after all others."""

    waits: Ints
    released: Ints

    @classmethod
    def of(cls, work: Work, host: HostPoints, graph: Graph, hosts: int) -> tuple[Graph, Releases]:
        """Return a graph with the points of releases; points of the host begin with ``hosts``.

        Waits in the same call in the same op of a thread are released one after the other.
        """
        names = work.attributed.capture.system_calls["name"]
        is_wait = np.array([*(WAITING.fullmatch(n) is not None for n in names.cat.categories), False], bool)
        name = np.append(frames.codes(names), NONE)[host.system]
        rows = np.flatnonzero(is_wait[name] & host.chained)
        rows = rows[(host.call[rows] == NONE) & (host.time[rows] - host.time[rows - 1] >= MIN_WAIT_NS)]
        thread = np.cumsum(~host.chained)[rows]
        op = np.append(work.attributed.node_op, NONE)[host.node[rows]]
        site, _ = number_groups(thread, name[rows], op)
        order = order_by(site, host.time[rows])
        waits, site = hosts + rows[order], site[order]
        is_first = np.ones(len(waits), bool)
        is_first[1:] = site[1:] != site[:-1]
        released = len(graph.time) + np.arange(len(waits))
        extended = Graph(
            np.concatenate((graph.time, graph.time[waits])),
            np.concatenate((graph.chained, ~is_first)),
            np.concatenate((graph.cross, np.where(is_first, waits - 1, NONE))),
        )
        return extended, cls(waits, released)
