"""How often adoption is right: held to every report whose sequence numbers tell who called the backward pass.

``python -m join.adoption_confidence REPORT...`` (in tests/) prints the table of docs/attribution.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bridge import importers
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import BY_ADOPTION
from bridge.join.grammar import parse
from bridge.join.nesting import inherited

LIBRARY_KINDS = ("operator", "communication")
NOBODY = -2
MODES = "name", "pattern"  # threads are called as PyTorch calls autograd's, or have no name at all


@dataclass(frozen=True)
class Confidence:
    """Times in ns: ``known`` has a caller by sequence number, ``adopted`` a caller by adoption, ``right`` the same."""

    known: int
    adopted: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.adopted if self.adopted else float("nan")

    @property
    def recall(self) -> float:
        return self.right / self.known if self.known else float("nan")

    def __add__(self, other: Confidence) -> Confidence:
        return Confidence(
            self.known + other.known, self.adopted + other.adopted, self.right + other.right
        )


def confidence(capture: Capture, mode: str) -> Confidence:
    """Hide the ranges of autograd's threads, adopt, and compare with who waited by sequence number."""
    whole = AttributedCapture.of(capture)
    truth = callers(whole)
    hidden, kept = without_ranges_of(capture, autograd_threads(whole), mode)
    found = AttributedCapture.of(hidden).attribution
    is_known = truth >= 0
    adopted = (truth != NONE) & (found.rule == BY_ADOPTION)
    right = adopted & (np.append(kept, NONE)[found.range] == truth)
    return Confidence(*(int(whole.duration[mask].sum()) for mask in (is_known, adopted, right)))


def callers(whole: AttributedCapture) -> Ints:
    """Return the range that waits for each activity of the backward pass: on the thread of its forward call.

    It is the innermost one that no library wrote. The result is NONE for an activity without a sequence number, for
    one that was launched on the thread of its forward call, and NOBODY where no such range is open.
    """
    found, capture = whole.attribution, whole.capture
    forward = np.append(whole.directions.forward, NONE)[found.node]
    thread, report = capture.ranges.thread, capture.ranges.report
    calling = np.append(capture.launches.thread, NONE)[found.launch]
    rows = np.flatnonzero((forward != NONE) & (thread[forward] != calling))
    stack_of = {}
    for node in np.unique(found.nesting.stack, return_index=True)[1].tolist():
        row = found.nesting.range[node]
        stack_of[int(report[row]), int(thread[row])] = int(found.nesting.stack[node])
    stack = [stack_of[int(report[row]), int(thread[row])] for row in forward[rows].tolist()]
    when = capture.launches.start[found.launch[rows]]
    node = found.nesting.innermost(np.array(stack, np.int64), when)
    names = [parse(name).kind for name in capture.ranges.name.texts]
    is_own = np.array([kind not in LIBRARY_KINDS for kind in names], bool)
    own = is_own[capture.ranges.name.codes[found.nesting.range]]
    nearest = np.append(inherited(found.nesting, np.where(own, np.arange(len(own)), NONE)), NONE)
    result = np.full(len(found.node), NONE)
    row = np.append(found.nesting.range, NONE)[nearest[node]]
    result[rows] = np.where(row == NONE, NOBODY, row)
    return result


def autograd_threads(whole: AttributedCapture) -> Flags:
    """Return which ranges are on a thread that runs backward calls of another thread's forward calls."""
    capture, nesting, forward = whole.capture, whole.attribution.nesting, whole.directions.forward
    report, thread = capture.ranges.report, capture.ranges.thread
    node = np.flatnonzero(forward != NONE)
    row, of = nesting.range[node], forward[node]
    row = row[thread[row] != thread[of]]
    pairs = {(int(r), int(t)) for r, t in zip(report[row], thread[row], strict=True)}
    return np.array([(int(r), int(t)) in pairs for r, t in zip(report, thread, strict=True)], bool)


def without_ranges_of(capture: Capture, is_hidden: Flags, mode: str) -> tuple[Capture, Ints]:
    """Return a capture without these ranges, and the rows that it keeps; threads are called as ``mode`` says."""
    ranges = capture.ranges
    keys = ranges.to_pandas().loc[is_hidden, ["thread", "process", "report"]].drop_duplicates()
    named = {c: keys[c].to_numpy() for c in keys} if mode == "name" else {}
    if named:
        named["name"] = frames.Names(
            np.arange(len(keys)), [f"pt_autograd_{number}" for number in range(len(keys))]
        )
    kept = ranges.take(~is_hidden)
    threads = frames.Threads(named)
    return replace(capture, ranges=kept, threads=threads), np.flatnonzero(~is_hidden)


def table(paths: list[Path]) -> list[str]:
    """Return the rows of the table: per file what is known, and precision and recall in both modes."""
    lines, totals = [], {mode: Confidence(0, 0, 0) for mode in MODES}
    for path in paths:
        capture = importers.load(path)
        of = {mode: confidence(capture, mode) for mode in MODES}
        if not of["name"].known:
            continue
        totals = {mode: totals[mode] + of[mode] for mode in MODES}
        lines.append(line(path.name.partition(".")[0], of))
    return [*lines, line("all", totals)]


def line(name: str, of: dict[str, Confidence]) -> str:
    cells = [name, f"{of['name'].known / 1e6:.1f} ms"]
    for mode in MODES:
        cells += [_percent(of[mode].precision), _percent(of[mode].recall)]
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return "–" if share != share else f"{100 * share:.1f} %"  # noqa: PLR0124 - not a number


if __name__ == "__main__":
    for row in table([Path(argument) for argument in sys.argv[1:]]):
        print(row)  # noqa: T201 - a script
