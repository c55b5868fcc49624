"""A trend: the median time per step of each op over a sequence of runs, and where it changed.

docs/trend.md defines every column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.compare.change_points import MIN_RUNS, ChangePoint, change_points
from bridge.analyze.compare.gates import (
    EVERYTHING,
    ITERATION,
    MIN_SHARE,
    NO_ITERATION,
    NO_OP,
    NO_TIME,
    OP,
    TOTAL,
    Change,
    Growth,
    Verdict,
    verdict_of,
)
from bridge.analyze.compare.overall import iteration_samples
from bridge.analyze.compare.parts import Parts
from bridge.analyze.compare.statistics import FASTER, NEW, SLOWER, VANISHED, confidence_bounds
from bridge.analyze.compare.steps import Samples, chunks
from bridge.analyze.core import no_timeline
from bridge.analyze.core.groups import Floats, texts
from bridge.analyze.core.table import Table
from bridge.analyze.run.account import RANGES, SYSTEM_CALLS, runs
from bridge.analyze.run.parts import iteration_times
from bridge.importers.arrays import factorize
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

# -- What a trend takes of a run


KINDS = ("op", "kernel", "step")  # of rows
LABELS = {"op": "op", "kernel": "kernel", "step": "loop"}  # the column that names a row
WHOLE = (ITERATION, TOTAL)  # the rows of `Trend.overall`
ALONE = "API calls"
NOT_TIMED = "Nsight Compute: no timeline"


@record
class RunTimes:
    """The median times of a run in ns, by name of its rows and of the `WHOLE`; 0 for none.

    ``steps`` is the number of steps without warm-up, of which times are medians; without steps times are totals.
    ``evidence`` says which kinds of events tell of the run: runs of unlike evidence are not compared.
    """

    label: str
    source: tuple[str, ...]
    evidence: str
    steps: int
    names: NDArray[np.object_]
    medians: Floats
    whole: Floats

    @classmethod
    def of(cls, attributed: AttributedCapture, by: str, label: str) -> RunTimes:
        """Return the times of a capture by one of `KINDS`."""
        source = attributed.capture.source
        if not no_timeline.has_timeline(attributed.capture):
            return cls.left_out(label, source, NOT_TIMED)
        dimension = "op" if by == "step" else by
        host = by != "kernel" and not attributed.counted.any()
        parts = Parts.of(attributed, [dimension], "readable", host=host)
        samples = Samples.of(parts, np.arange(len(parts)))
        names, medians = parts.labels[dimension], _medians(samples, len(parts))
        if by == "step":
            names, medians = _of_loops(attributed)
        total = _medians(samples.together(), 1)[0]
        return cls(
            label=label,
            source=tuple(source),
            evidence=evidence_of(attributed, len(samples)),
            steps=len(samples),
            names=names.astype(object),
            medians=medians,
            whole=np.array([_median(iteration_samples(attributed)), total]),
        )

    @classmethod
    def left_out(cls, label: str, source: Sequence[str], why: str) -> RunTimes:
        """Return a run without times, which is compared with none."""
        return cls(
            label=label,
            source=tuple(source),
            evidence=why,
            steps=NONE,
            names=texts(()),
            medians=np.zeros(0),
            whole=np.zeros(len(WHOLE)),
        )


def evidence_of(attributed: AttributedCapture, steps: int) -> str:
    """Return the kinds of events that tell of a run: ``GPU work, ranges, steps``."""
    of_account = {run.evidence for run in runs(attributed)}
    kinds = {
        "GPU work": bool(attributed.counted.any()),
        "ranges": RANGES in of_account or len(attributed.capture.ranges) > 0,
        "calls of the operating system": SYSTEM_CALLS in of_account,
        "steps": steps > 0,
    }
    return ", ".join(kind for kind, is_there in kinds.items() if is_there) or ALONE


def _medians(samples: Samples, rows: int) -> Floats:
    """Return the median time per step of each row, or its whole time without steps."""
    result = np.zeros(rows)
    if not len(samples):
        known = samples.row != NONE
        np.add.at(result, samples.row[known], samples.parts.ns[known])
        return result
    for chunk in chunks(np.arange(rows), len(samples)):
        result[chunk] = np.median(samples.times(chunk), axis=1)
    return result


def _of_loops(attributed: AttributedCapture) -> tuple[NDArray[np.object_], Floats]:
    """Return the names of the loops of iterations, and the median time of an iteration of each."""
    of_name: dict[str, list[NDArray[np.int64]]] = {}
    for loop, time in zip(attributed.loops.iterations, iteration_times(attributed), strict=True):
        of_name.setdefault(loop.name, []).append(time.samples)
    return texts(of_name), np.array([_median(np.concatenate(times)) for times in of_name.values()])


def _median(samples: NDArray[np.int64]) -> float:
    return float(np.median(samples)) if len(samples) else 0.0


# -- The trend


NO_CHANGE = "none"
LEVELS = ("first_ns", "last_ns", "before_ns", "after_ns")
UNCHANGED = {  # the figures of a sequence without a change, but for its level
    **dict.fromkeys(("diff_ns", "low_ns", "high_ns"), 0.0),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high", "p"), float(NONE)),
    **dict.fromkeys(("at", "earliest", "latest"), NONE),
    "run": "",
    "state": NO_CHANGE,
}
FIGURES = (
    *LEVELS,
    *("diff_ns", "ratio", "low_ns", "high_ns", "ratio_low", "ratio_high"),
    *("at", "earliest", "latest", "run", "p", "q", "state"),
)


@record
class Trend:
    """Runs in order, their median times, and the changes.

    Attributes:
        by: what a row is, one of `KINDS`.
        runs: the runs that are compared: those whose evidence most runs have.
        left_out: the other runs.
        names: the names of the sequences; ``medians`` has a row per name and a column per run.
        rows: a row per change, the largest first, then one per sequence without a change.
        overall: the same of the iteration time and of the time of all work.

    """

    by: str
    runs: Sequence[RunTimes]
    left_out: Sequence[RunTimes]
    names: NDArray[np.object_]
    medians: Floats
    rows: Table
    overall: Table

    @classmethod
    def of(cls, of_runs: Sequence[RunTimes], by: str, noise: float) -> Trend:
        """Compare runs in order; changes of at most ``noise``, a fraction of the larger side, count as none."""
        compared, left_out = _alike(of_runs)
        names, medians = _sequences(compared)
        labels = [run.label for run in compared]
        whole = np.array([run.whole for run in compared]).reshape(-1, len(WHOLE)).T
        known = whole.any(axis=1)
        return cls(
            by=by,
            runs=compared,
            left_out=left_out,
            names=names,
            medians=medians,
            rows=_rows(LABELS[by], names, medians, runs_=labels, noise=noise),
            overall=_rows("time", texts(WHOLE)[known], whole[known], runs_=labels, noise=noise),
        )

    @property
    def untested(self) -> str:
        """Why no change can be told, '' if it can."""
        if len(self.runs) >= MIN_RUNS:
            return ""
        return f"no change can be told: it takes {MIN_RUNS} runs that compare; there are {len(self.runs)}"

    @property
    def per_step(self) -> bool:
        """Whether times are medians per step."""
        return any(run.steps > 0 for run in self.runs)

    def judged(self, gates: Sequence[Growth]) -> list[Verdict]:
        """Judge the newest change of each time by limits of growth; of the ops those above `MIN_SHARE`.

        A gate fails if there is nothing to judge.
        """
        return [verdict for gate in gates for verdict in self._judged(gate)]

    def _judged(self, gate: Growth) -> Iterator[Verdict]:
        has_iteration = ITERATION in self.overall["time"].tolist()
        if gate.scope in (EVERYTHING, TOTAL):
            yield self._of_whole(gate, TOTAL, NO_TIME)
        if gate.scope == ITERATION or (gate.scope == EVERYTHING and has_iteration):
            yield self._of_whole(gate, ITERATION, NO_ITERATION)
        if gate.scope == OP:
            yield from self._of_ops(gate)

    def _of_whole(self, gate: Growth, name: str, nothing: str) -> Verdict:
        rows = self.overall[self.overall["time"] == name]
        if not len(rows) or self.untested:
            return verdict_of(gate, SUBJECTS[name], None, self.untested or nothing)
        return self._newest(gate, SUBJECTS[name], rows)

    def _of_ops(self, gate: Growth) -> Iterator[Verdict]:
        total = self.overall[self.overall["time"] == TOTAL]
        most = np.max([self.rows[name] for name in LEVELS], axis=0)
        large = self.rows[most > MIN_SHARE * max(total[name].max(initial=0) for name in LEVELS)]
        if not len(large) or self.untested:
            yield verdict_of(gate, NO_OP[0], None, self.untested or NO_OP[1])
            return
        for op in dict.fromkeys(large["op"].tolist()):
            yield self._newest(gate, op, large[large["op"] == op])

    def _newest(self, gate: Growth, subject: str, rows: Table) -> Verdict:
        """Judge the newest of the changes of one time."""
        newest = rows.row(int(rows["at"].argmax()))
        if newest["at"] == NONE:
            line = f"{subject}: no change in {len(self.runs)} runs"
            return Verdict(f"--fail-over {gate.text}", subject, passed=True, line=line)
        change = Change(
            **{
                name: newest[name]
                for name in ("before_ns", "after_ns", "ratio_low", "ratio_high", "state")
            },
            steps_before=int(self.per_step),
        )
        return verdict_of(gate, f"{subject} at {newest['run']}", change)


SUBJECTS = {TOTAL: "total time", ITERATION: "iteration time"}


def check_gates(gates: Sequence[Growth], by: str) -> None:
    """Raise ValueError, with a message for the user, for a limit of what a trend by one of `KINDS` does not have."""
    scopes = (EVERYTHING, TOTAL, ITERATION, *((OP,) if by == "op" else ()))
    for gate in gates:
        if gate.scope not in scopes:
            raise ValueError(
                f"--fail-over {gate.text}: a trend judges 5%, total:5%, iteration:5%, and by op op:5%"
            )


def _alike(of_runs: Sequence[RunTimes]) -> tuple[list[RunTimes], list[RunTimes]]:
    """Return the runs whose evidence most have (of several, that of the newest run), and the others."""
    timed = [run.evidence for run in of_runs if run.steps != NONE]
    most = max(reversed(timed), key=Counter(timed).__getitem__, default="")
    parts: tuple[list[RunTimes], list[RunTimes]] = ([], [])
    for run in of_runs:
        parts[run.steps == NONE or run.evidence != most].append(run)
    return parts


def _sequences(compared: Sequence[RunTimes]) -> tuple[NDArray[np.object_], Floats]:
    """Return the names of all runs that have time in any, and the time of each in each run, 0 where it is missing."""
    code, names = factorize(np.concatenate([texts(()), *(run.names for run in compared)]))
    medians = np.zeros((len(names), len(compared)))
    column = np.repeat(np.arange(len(compared)), [len(run.names) for run in compared])
    medians[code, column] = np.concatenate([np.zeros(0), *(run.medians for run in compared)])
    has_time = medians.any(axis=1)
    return names[has_time], medians[has_time]


def _rows(
    label: str,
    names: NDArray[np.object_],
    medians: Floats,
    runs_: Sequence[str],
    noise: float,
) -> Table:
    """Return a row per change that is more than noise, and one per sequence without any; the largest change first."""
    q, changes = change_points(medians)
    q = q if len(runs_) >= MIN_RUNS else np.full(len(q), float(NONE))
    records = []
    for name, sequence, of_name, of_q in zip(names, medians, changes, q, strict=True):
        figures = [_figures(sequence, change, runs_[change.at]) for change in of_name]
        large = [
            one
            for one in figures
            if abs(one["diff_ns"]) > noise * max(one["before_ns"], one["after_ns"])
        ]
        own = {label: name, "first_ns": sequence[0], "last_ns": sequence[-1], "q": of_q}
        level = float(sequence.mean())
        records += [
            own | one for one in large or [{**UNCHANGED, "before_ns": level, "after_ns": level}]
        ]
    table = Table({column: [one[column] for one in records] for column in (label, *FIGURES)})
    most = np.max([table[level] for level in LEVELS], axis=0)
    return table[np.lexsort((-most, -np.abs(table["diff_ns"])))]


def _figures(sequence: Floats, change: ChangePoint, run: str) -> dict[str, Any]:
    """Return the figures of a change: the mean level before and after it, and its interval as that of a comparison."""
    sides = (
        sequence[np.newaxis, change.start : change.at],
        sequence[np.newaxis, change.at : change.end],
    )
    before, after = (float(side.mean()) for side in sides)
    low, high = (float(bound[0]) for bound in confidence_bounds(*sides))
    ratios = [max(0.0, 1 + ns / before) if before else NONE for ns in (after - before, low, high)]
    return {
        "before_ns": before,
        "after_ns": after,
        "diff_ns": after - before,
        "ratio": ratios[0],
        "low_ns": low,
        "high_ns": high,
        "ratio_low": ratios[1],
        "ratio_high": ratios[2],
        "at": change.at,
        "earliest": change.first,
        "latest": change.last,
        "run": run,
        "p": change.p,
        "state": _state(before, after),
    }


def _state(before: float, after: float) -> str:
    if not before or not after:
        return VANISHED if before else NEW
    return SLOWER if after > before else FASTER
