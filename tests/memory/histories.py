"""Reports with allocations that hypothesis makes up: addresses and times are so few that collisions are the rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from join.programs import Program, elsewhere, instants, programs, report_of, threads
from witness.memory import Event, Replay

from bridge.analyze.cost.memory import MemoryUsage
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.attributed import AttributedCapture


@dataclass(frozen=True)
class History:
    """A program and the allocations of it."""

    program: Program
    events: list[Event]

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.events, self.program.ranges, self.program.calls)

    @cached_property
    def capture(self) -> Capture:
        return replace(report_of(self.program), memory=memory_of(self.events))

    @cached_property
    def held(self) -> MemoryUsage:
        return MemoryUsage.of(AttributedCapture.of(self.capture))


def memory_of(events):
    names = "report process device address bytes time correlation thread pool reserved allocated"
    columns = {n: np.array([getattr(e, n) for e in events], np.int64) for n in names.split()}
    kinds = np.array([event.kind for event in events], np.int64)
    return frames.Memory(
        columns
        | {
            "kind": frames.Names(kinds, frames.MEMORY_KINDS),
            "operation": np.array([event.is_release for event in events], np.int64),
        }
    )


@st.composite
def histories(draw) -> History:
    program = draw(programs())
    several = st.lists(_events(program), min_size=1, max_size=25)
    return History(program, draw(several))


@st.composite
def _events(draw, program: Program) -> Event:
    home = draw(threads)
    if program.calls and draw(st.integers(0, 2)):
        call = draw(st.sampled_from(program.calls))
        home = {"report": call.report, "process": call.process, "thread": call.thread}
    if home["process"] < 0:  # its pid is that of another, which tables could not tell apart
        home = elsewhere[0]
        home = dict(
            zip(("report", "process", "thread"), (*home[:2], home[1] | home[2]), strict=True)
        )
    of_pool = draw(st.sampled_from([False, False, True]))
    of_allocator = not of_pool and draw(st.integers(0, 7)) == 0
    return Event(
        report=home["report"],
        process=home["process"],
        device=draw(st.sampled_from([0, 0, 0, 1])),
        kind=draw(st.sampled_from([2, 2, 2, 2, 1])),
        address=draw(st.sampled_from([16, 16, 32, 48])),
        bytes=draw(st.sampled_from([0, 1, 3, 10, 100])),
        is_release=draw(st.booleans()),
        time=draw(instants),
        correlation=draw(st.sampled_from([1, 1, 2, 3, -1, -1])),
        thread=draw(st.sampled_from([home["thread"], home["thread"], -1])),
        pool=draw(st.sampled_from([5, 6])) if of_pool else -1,
        reserved=draw(st.sampled_from([0, 50, 200, -1])) if of_pool else -1,
        allocated=draw(st.sampled_from([0, 7, 500])) if of_allocator else -1,
    )
