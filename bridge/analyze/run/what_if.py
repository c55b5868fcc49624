"""How long a run would have been with ops, calls or kernels that take less time.

All changes that are asked for are made in one draft of the graph of the run, which is retimed as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.filters import wildcard_pattern
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.core.time_range import named_ranges
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import KINDS, Retimed, Run
from bridge.analyze.run.interventions import (
    hidden,
    host_points,
    system_points,
    together,
    without_calls,
    work_places,
)
from bridge.analyze.run.parts import Times, first_work_at, iteration_times
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import nearest
from bridge.knowledge.suggestions import unknown_name

Floats = NDArray[np.float64]
OP, WITHOUT, HIDE, GPU = "--op", "--without", "--hide", "--gpu-faster"
COMMUNICATION = ("nccl", "communication")  # names of all of it
MOST_BOUNDS = 3
UNKNOWN = -1  # ns
WHOLE = 100  # per cent
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
TIMES = re.compile(r"(\d+(?:\.\d+)?)\s*x?")
NOTHING_ASKED = "name a change: --op with --faster, --without, --hide or --gpu-faster"


# -- What is asked


@record
class Question:
    """What would be changed in a program.

    ``faster`` are names of ops, each with the part of its time that is left; ``kernels`` is that of all kernels.
    ``without`` are names of calls that go, ``hide`` those of work that computation hides; names may hold ``*``
    and ``?``. ``iterations`` is for how many the answer is, 0 for those of the run.
    """

    faster: tuple[tuple[str, float], ...] = ()
    without: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    kernels: float = 1.0
    iterations: int = 0

    @classmethod
    def of(
        cls,
        op: Sequence[str] = (),
        faster: Sequence[str] = (),
        without: Sequence[str] = (),
        hide: Sequence[str] = (),
        gpu_faster: str = "",
        iterations: int = 0,
    ) -> Question:
        """Read a question. Raises ValueError with a message for the user for what makes none."""
        if iterations < 0:
            raise ValueError(f"--iterations {iterations}: write a number from 1 on")
        kernels = part_left(gpu_faster, GPU) if gpu_faster else 1.0
        result = cls(
            faster=_pairs(op, faster),
            without=tuple(without),
            hide=tuple(hide),
            kernels=kernels,
            iterations=iterations,
        )
        if not (op or without or hide or gpu_faster):
            raise ValueError(NOTHING_ASKED)
        return result


def _pairs(op: Sequence[str], faster: Sequence[str]) -> tuple[tuple[str, float], ...]:
    if faster and not op:
        raise ValueError("--faster goes with --op; --gpu-faster is for all kernels")
    if op and not faster:
        raise ValueError("--op needs --faster: how much less time the op takes, as 30% or 2x")
    if len(faster) not in (0, 1, len(op)):
        raise ValueError("give --faster once for all ops, or once for each --op")
    parts = [part_left(text, "--faster") for text in faster]
    return tuple(zip(op, parts * len(op) if len(parts) == 1 else parts, strict=True))


def part_left(text: str, option: str) -> float:
    """Return the part of a time that is left: 0.7 for ``30%`` (less), 0.5 for ``2x``; with --gpu-faster for ``2``, too.

    Raises ValueError with a message for the user for other texts.
    """
    share = PERCENT.fullmatch(text.strip())
    if share and float(share[1]) <= WHOLE:
        return 1 - float(share[1]) / WHOLE
    times = TIMES.fullmatch(text.strip())
    is_plain = times is not None and not text.strip().endswith("x")
    if times is None or float(times[1]) < 1 or (is_plain and option != GPU):
        raise ValueError(f"{option} {text!r}: write how much less time it takes, as 30% or 2x")
    return 1 / float(times[1])


# -- What is changed


@record
class Changed:
    """A change: its option, the name as asked, the part of its time that is left, how many it is about, and their time.

    Of an op the time is that of its code and of its work on GPUs.
    """

    option: str
    name: str
    part: float
    count: int
    time_ns: int


@dataclass
class _Changes:
    """Collects the changes of a question: how much of the delay before each point is left, and edits of the draft."""

    run: Run
    host: Floats
    work: Floats
    edits: list[Change]

    @classmethod
    def of(cls, run: Run) -> _Changes:
        return cls(run, np.ones(len(run.graph)), np.ones(len(run.work.row)), [])

    @property
    def change(self) -> Change:
        """All changes as one; of a part of the run, nothing before it changes."""
        run, ends = self.run, self.run.device.end
        points, places = np.flatnonzero(self.host != 1), np.flatnonzero(self.work != 1)

        def scale(draft: Draft) -> None:
            draft.scale(points, self.host[points])
            draft.scale(ends[places], self.work[places])

        change = together((scale, *self.edits))
        return change if run.work.attributed.selection is None else _within(run, change)

    def op(self, name: str, part: float) -> Changed:
        """Let an op and all under it, as in its total, take a part of their time.

        Raises ValueError for an unknown name.
        """
        run = self.run
        attributed = run.work.attributed
        nesting = attributed.attribution.nesting
        ranges = named_ranges(attributed, name)
        nodes = np.isin(nesting.range, ranges)
        if not nodes.any():
            raise ValueError(
                f"{name!r} is a phase, which holds the work of all threads: name one of its ops"
            )
        inside = np.append(nearest(attributed.hierarchy.parent, nodes) != NONE, False)
        points = host_points(run, inside)
        places = work_places(run, inside[attributed.attribution.node])
        self.host[points] = np.minimum(self.host[points], part)
        self.work[places] = np.minimum(self.work[places], part)
        time = run.graph.delay[points].sum() + self._length(places)
        return Changed(option=OP, name=name, part=part, count=len(ranges), time_ns=int(time))

    def kernels(self, part: float) -> Changed:
        """Let all kernels but those that communicate take a part of the time that other changes leave."""
        places = work_places(self.run, self.run.computing)
        self.work[places] *= part
        return Changed(
            option=GPU, name="", part=part, count=len(places), time_ns=self._length(places)
        )

    def without(self, name: str) -> Changed:
        """Let calls of CUDA and of the operating system go. Raises ValueError for an unknown name."""
        run, capture = self.run, self.run.work.attributed.capture
        matches = wildcard_pattern(name).fullmatch
        api, system = (
            table.name.matching(matches) for table in (capture.launches, capture.system_calls)
        )
        if not (api.any() or system.any()):
            raise ValueError(self._no_call(name))
        api &= ~_first_calls(run.work.attributed)
        self.edits.append(without_calls(run, api))
        points = system_points(run, system)

        def change(draft: Draft) -> None:
            draft.remove(points)
            draft.cut(points)

        self.edits.append(change)
        time = (call_ends(run.work.attributed) - capture.launches.start)[api].sum()
        calls = capture.system_calls
        time += (calls.end - calls.start)[system].sum()
        return Changed(
            option=WITHOUT,
            name=name,
            part=0.0,
            count=int(api.sum() + system.sum()),
            time_ns=int(time),
        )

    def _no_call(self, name: str) -> str:
        attributed = self.run.work.attributed
        if name in attributed.ops:
            return f"no call {name!r}, but an op: --op {name!r} --faster 100% is the run without it"
        tables = attributed.capture.launches, attributed.capture.system_calls
        known = [name for table in tables for name in table.name.used]
        return _no_such("call", name, known, "bridge report REPORT --by api")

    def hide(self, name: str) -> Changed:
        """Let work cost nothing while its GPU computes. Raises ValueError for an unknown name."""
        attributed = self.run.work.attributed
        named = attributed.activity_name
        if name.lower() in COMMUNICATION:
            rows = is_communication(attributed)
        else:
            rows = named.matching(wildcard_pattern(name).fullmatch)
            rows |= attributed.capture.activities.name.matching(wildcard_pattern(name).fullmatch)
        if not rows.any():
            if name.lower() in COMMUNICATION:
                raise ValueError("no communication in the report")
            known = [COMMUNICATION[0], *named.used]
            by_kernel = "bridge report REPORT --by kernel"
            raise ValueError(_no_such("kernel or copy", name, known, by_kernel))
        self.edits.append(hidden(self.run, rows))
        places = work_places(self.run, rows)
        return Changed(
            option=HIDE, name=name, part=0.0, count=len(places), time_ns=self._length(places)
        )

    def _length(self, places: Ints) -> int:
        return int((self.run.work.end - self.run.work.start)[places].sum())


def _first_calls(attributed: AttributedCapture) -> Flags:
    """Return whether each API call is the first of its process: CUDA begins in it, whichever call it is."""
    calls = attributed.capture.launches
    process, _ = number_groups(calls.report, calls.process)
    order = order_by(process, calls.start)
    result = np.zeros(len(calls), bool)
    result[order[run_edges(process[order])[:-1]]] = True
    return result


def _no_such(what: str, name: str, known: Sequence[str], listed_by: str) -> str:
    """Return the message for a name that is not known; of a part of a name it says how to write that."""
    parts = [other for other in dict.fromkeys(known) if name in other]
    if not parts:
        return unknown_name(what, name, known, listed_by)
    several = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return f"no {what} {name!r}; '*{name}*' is {parts[0]}{several}"


def _within(run: Run, change: Change) -> Change:
    """Let a change be one of the selected part of the run alone: what is before it keeps its delays."""
    time, first = run.graph.time, run.first
    early = time <= first

    def limited(draft: Draft) -> None:
        delay, cross = draft.delay.copy(), draft.cross
        change(draft)
        before = np.maximum(delay - (time - first), 0)  # the part of a delay that passed before
        draft.delay[:] = np.where(early, delay, np.maximum(draft.delay, np.minimum(before, delay)))
        points = np.flatnonzero(early & (draft.cross != cross))
        draft.link(points, cross[points])

    return limited


# -- The answer


@record
class RunTime:
    """The length of a run in ns, and the median time of its iterations on the GPU that bounds it.

    That is -1 of a part of a run, and without iterations.
    """

    run_ns: int
    iteration_ns: int


@record
class Bound:
    """What a run waits for: the time on its critical path of an op (else a kernel or call, or "") and a kind."""

    op: str
    kind: str
    time_ns: int
    share: float


@dataclass(frozen=True)
class WhatIf:
    """The run that would have been beside the recorded one.

    ``would_be`` is the longer of ``lasting_waits`` and ``paced_waits``: in the first one, waits that something
    unrecorded ended last as long as they did, in the second one they end at their pace. ``saving_ns`` is of the run,
    ``share`` the part of it. ``iterations`` are those of the recorded run, 0 for none; ``asked_iterations`` those of
    the run that all lengths are about, 0 for the recorded ones. ``bound`` is the critical path of the recorded run as
    it would be.
    """

    changes: tuple[Changed, ...]
    iterations: int
    asked_iterations: int
    is_part: bool
    recorded: RunTime
    would_be: RunTime
    saving_ns: int
    share: float
    lasting_waits: RunTime
    paced_waits: RunTime
    bound: tuple[Bound, ...]


def what_if(attributed: AttributedCapture, question: Question) -> WhatIf:
    """Return how long a run would have been.

    Raises ValueError with a message for the user for names that match nothing, if the clocks of several files differ,
    and for a number of iterations where there are none.
    """
    run = Run.of(attributed)
    changes = _Changes.of(run)
    changed = tuple(_changed(changes, question))
    iterations = _Iterations.of(attributed)
    iterations.check(question.iterations, attributed)
    both = run.retimed(changes.change)
    recorded = iterations.extended(run.span, iterations.recorded, question.iterations)
    lasting, paced = (
        iterations.extended(one.span, iterations.time_in(run, one), question.iterations)
        for one in both
    )
    longer = int(paced.run_ns > lasting.run_ns)
    would_be = (lasting, paced)[longer]
    saving = recorded.run_ns - would_be.run_ns
    return WhatIf(
        changes=changed,
        iterations=iterations.count,
        asked_iterations=question.iterations,
        is_part=attributed.selection is not None,
        recorded=recorded,
        would_be=would_be,
        saving_ns=saving,
        share=saving / max(1, recorded.run_ns),
        lasting_waits=lasting,
        paced_waits=paced,
        bound=_bound(run, both[longer]),
    )


def _changed(changes: _Changes, question: Question) -> Iterator[Changed]:
    for name, part in question.faster:
        yield changes.op(name, part)
    for name in question.without:
        yield changes.without(name)
    for name in question.hide:
        yield changes.hide(name)
    if question.kernels != 1:
        yield changes.kernels(question.kernels)


@record
class _Iterations:
    """The loop with most time: its number, how many iterations it has, and their median time in ns (-1 without any)."""

    attributed: AttributedCapture
    loop: int
    count: int
    recorded: float

    @classmethod
    def of(cls, attributed: AttributedCapture) -> _Iterations:
        of_part = attributed.selection is not None
        totals = [0 if of_part else int(one.device.sum()) for one in iteration_times(attributed)]
        if not any(totals):
            return cls(attributed, NONE, 0, UNKNOWN)
        loop = int(np.argmax(totals))
        count = attributed.loops.iterations[loop].count
        return cls(attributed, loop, count, iteration_times(attributed)[loop].ns)

    def check(self, asked: int, attributed: AttributedCapture) -> None:
        """Raise ValueError if the run cannot be told for as many iterations."""
        if asked and attributed.selection is not None:
            raise ValueError("--iterations goes with the whole run, not with a part of it")
        if asked and not self.count:
            raise ValueError(
                "--iterations needs iterations with work on a GPU: the report has none"
            )

    def time_in(self, run: Run, retimed: Retimed) -> float:
        """Return the median time of an iteration in another run."""
        if self.loop == NONE:
            return UNKNOWN
        starts = run.device.start
        shift = np.zeros(len(self.attributed.capture.activities), np.int64)
        shift[run.work.row] = retimed.graph.time[starts] - run.graph.time[starts]
        begun = first_work_at(self.attributed, Times.of(self.attributed).work_start + shift)
        return iteration_times(self.attributed, begun=begun)[self.loop].ns

    def extended(self, span: int, iteration: float, asked: int) -> RunTime:
        """Return the times of a run of as many iterations: what is paid once stays."""
        more = asked - self.count if asked else 0
        return RunTime(max(0, round(span + more * iteration)), round(iteration))


def _bound(run: Run, retimed: Retimed) -> tuple[Bound, ...]:
    """Return what has most time on the critical path of another run."""
    if not len(run):
        return ()
    graph = retimed.graph
    points = graph.path(retimed.last)
    time = np.minimum(graph.delay[points], graph.time[points] - run.first)
    points, time = points[time > 0], time[time > 0]
    releases = run.releases
    waiting = np.arange(len(graph))
    waiting[releases.released] = releases.waits  # what released a wait is shown as the wait
    points = waiting[points]
    then = replace(run, graph=graph)
    ops = run.work.attributed.ops
    names = [*folded_ops(ops), *run.names[len(ops) :]]
    texts, code = np.unique(np.array(names), return_inverse=True)
    kind, name = then.kind_of(points), code[then.name_of(points)]
    group, first = number_groups(kind, name)
    total = sums(group, time, len(first))
    rows = sorted(zip((-total).tolist(), kind[first].tolist(), name[first].tolist(), strict=True))
    return tuple(
        Bound(str(texts[name]), KINDS[kind], -negative, -negative / max(1, retimed.span))
        for negative, kind, name in rows[:MOST_BOUNDS]
    )
