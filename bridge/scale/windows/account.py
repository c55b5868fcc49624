"""The account of a run whose report is read in windows: exact, with the memory of one window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bridge.analyze.run.account import (
    COMMUNICATION,
    STATES,
    GpuAccount,
    Run,
    Span,
    collection,
    covered_times,
    in_order,
    named_states,
    run_of_processes,
    spans_of_processes,
    states_of_work,
)
from bridge.importers import frames
from bridge.importers.capture import Facts
from bridge.importers.nsys.windows import Window
from bridge.join.arrays import Ints, number_groups
from bridge.scale.windows.window import WindowCapture

Device = tuple[int, int]  # process and device
User = tuple[str, int]  # name of a GPU, and one of several processes that use it, or ALL
ALL = -1


class RunSums:
    """The account of a run, added up window by window.

    Work of a window that no later work can begin before is added at once; what runs on is carried to the next window.
    """

    def __init__(self, facts: Facts, events: Span, gpus: Mapping[Device, str]) -> None:
        self.facts, self.gpus = facts, gpus
        self.collected = collection(facts, events)
        self.processes: dict[int, Span] = {}
        self.has_ranges = False
        self.users = _users(gpus)
        self.covered = np.zeros((len(STATES) + 1, len(self.users)), np.int64)
        self.spans: dict[str, Span] = {}
        none = np.empty(0, np.int64)
        self.carried = none, none, none, none  # user, state, start and end

    def add(self, attributed: WindowCapture, window: Window) -> None:
        """Add the events of a window."""
        capture = attributed.capture
        for process, span in spans_of_processes(capture).items():
            self.processes[process] = self.processes.get(process, span) | span
        self.has_ranges |= bool(len(capture.ranges))
        user, state, start, end = (
            np.concatenate(pair) for pair in zip(self.carried, self._work(attributed), strict=True)
        )
        until = min(window.next_activity, self.collected.end)
        done = Span(self.collected.start, max(until, self.collected.start))
        parts = [done] * len(self.users)
        self.covered += covered_times(user, state, start=start, end=end, parts=parts)
        on = np.flatnonzero(end > until)
        self.carried = user[on], state[on], np.maximum(start[on], until), end[on]

    def _work(self, attributed: WindowCapture) -> tuple[Ints, Ints, Ints, Ints]:
        """Return user, state, start and end of all activities, once per user of their GPU."""
        table = attributed.capture.activities
        process, device, start = table.process, table.device, table.start
        end, state = attributed.end, states_of_work(attributed).astype(np.int64)
        group, first = number_groups(process, device)
        none = np.empty(0, np.int64)
        parts = [(none, none, none, none)]
        for number, row in enumerate(first.tolist()):  # one iteration per device of a process
            rows, key = np.flatnonzero(group == number), (int(process[row]), int(device[row]))
            name = self.gpus[key]
            span = Span(int(start[rows].min()), int(end[rows].max()))
            self.spans[name] = self.spans.get(name, span) | span
            for at, (gpu, user) in enumerate(self.users):
                if gpu == name:
                    own = state[rows] if user in (ALL, key[0]) else np.full(len(rows), len(STATES))
                    parts.append((np.full(len(rows), at), own, start[rows], end[rows]))
        users, states, starts, ends = (np.concatenate(c) for c in zip(*parts, strict=True))
        return users, states, starts, ends

    def run(self) -> Run | None:
        """Return the account of all windows; None without any event."""
        whole = run_of_processes(self.processes, self.facts, has_ranges=self.has_ranges)
        if whole is None:
            return None
        states = {
            user: named_states(self.covered[:, at], whole[0].length, is_partial=user[1] != ALL)
            for at, user in enumerate(self.users)
        }
        gpus = (
            GpuAccount(
                device=gpu,
                states=states[gpu, ALL],
                span_ns=span.length,
                exposed_ns=states[gpu, ALL][COMMUNICATION],
                processes={
                    int(frames.pid(np.array([process]))[0]): times
                    for (name, process), times in states.items()
                    if name == gpu and process != ALL
                },
            )
            for gpu, span in self.spans.items()
        )
        return Run(whole[0], whole[0], in_order(gpus), whole[1])


def _users(gpus: Mapping[Device, str]) -> list[User]:
    """Return each GPU, and each process of GPUs that several use."""
    result: list[User] = []
    for gpu in dict.fromkeys(gpus.values()):
        processes = sorted({process for (process, _), name in gpus.items() if name == gpu})
        result += [(gpu, ALL), *((gpu, p) for p in processes if len(processes) > 1)]
    return result
