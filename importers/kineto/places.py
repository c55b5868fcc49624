"""Processes and threads by number, as Nsight Systems numbers them: 24 bits each, the process above the thread.

A trace names them by whatever its writer had: a pid, a thread's number, a pthread's address, a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.kineto.clean import clean
from importers.kineto.events import Events
from importers.kineto.numbers import LONGEST
from importers.texts import Ints

BITS = 24
MOST = (1 << BITS) - 1
Where = tuple[Any, Any]


class Places:
    """The numbers of the processes and threads of the host that events are on."""

    def __init__(self, hosts: Sequence[Events]) -> None:
        where = [pair for events in hosts for pair in events.where]
        self.pids = _numbered(pid for pid, _ in where)
        self.tids = _numbered(tid for _, tid in where)
        self.used = {(_plain(pid), _plain(tid)) for pid, tid in where}

    def process(self, events: Events) -> Ints:
        """Return the process of each event."""
        return np.array([self.pids[_plain(pid)] for pid, _ in events.where], np.int64) << BITS

    def thread(self, events: Events) -> Ints:
        """Return the thread of each event."""
        own = np.array([self.tids[_plain(tid)] for _, tid in events.where], np.int64)
        return self.process(events) | own

    def threads(self, meta: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Return the named threads; of several names the last one counts."""
        said = {
            (_plain(event.get("pid")), _plain(event.get("tid"))): name
            for event, name in _names(meta, "thread_name")
        }
        known = [(pid, tid, name) for (pid, tid), name in said.items() if (pid, tid) in self.used]
        process = np.array([self.pids[pid] for pid, _, _ in known], np.int64) << BITS
        thread = process | np.array([self.tids[tid] for _, tid, _ in known], np.int64)
        name = frames.named([name for _, _, name in known])
        return frames.frame("threads", {"thread": thread, "process": process, "name": name})

    def processes(self, meta: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Return all processes, with their names where these are said."""
        said = {_plain(event.get("pid")): name for event, name in _names(meta, "process_name")}
        process = np.array(list(self.pids.values()), np.int64) << BITS
        name = frames.named([said.get(pid, "") for pid in self.pids])
        return frames.frame("processes", {"process": process, "name": name})


def _names(meta: Sequence[dict[str, Any]], what: str) -> Iterator[tuple[dict[str, Any], str]]:
    for event in meta:
        said = event.get("args")
        if event.get("name") == what and type(said) is dict and type(said.get("name")) is str:
            yield event, clean(said["name"]).strip()


def _plain(value: Any) -> int | str:
    """Return a number as such, also one in quotes; anything else as text."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= LONGEST and value.isdecimal():
        return int(value)
    return str(value)


def _numbered(values: Iterable[Any]) -> dict[int | str, int]:
    """Number distinct values: their own number where it fits, else a free one, from the top."""
    distinct = dict.fromkeys(map(_plain, values))
    own = {v: v for v in distinct if type(v) is int and 0 <= v <= MOST}
    free = (number for number in range(MOST, -1, -1) if number not in own)
    return {v: own[v] if v in own else next(free, 0) for v in distinct}
