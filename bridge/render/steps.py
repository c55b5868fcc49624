"""What is said of steps as a whole, a line per process."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.analyze.steps.pace import Pace
from bridge.render import units

MATTERS = 0.05  # of a step: what passes between two steps is said from here on
ROLES = {
    "kernel": "kernels",
    "memcpy": "copies",
    "memset": "fills",
    "runtime": "API calls",
    "dataloader": "waiting for data",
    "cpu": "the CPU",
    "other": "nothing that is recorded",
}


def lines(paces: Iterable[Pace]) -> str:
    """Return a line per process, two where much time passes between its steps; '' for none."""
    found = [*paces]
    return "".join(f"{_line(pace, several=len(found) > 1)}\n" for pace in found)


def _line(pace: Pace, *, several: bool) -> str:
    pid, _, *file = pace.home
    whose = f" of process {pid}{''.join(f' in {name}' for name in file)}" if several else ""
    how = ", found by repetition" if pace.found == "repetition" else ""
    odd = f", {units.count(pace.outliers)} of them out of the ordinary" if pace.outliers else ""
    warm = f" ({units.count(pace.warm_up)} to warm up)" if pace.warm_up else ""
    by = f": {units.time(pace.excess_ns)} more of {ROLES.get(pace.slower_by, pace.slower_by)}"
    more = by if pace.excess_ns > 0 else ""
    if pace.steps == 1:
        return f"1 step{whose}{how}: {units.time(pace.slowest_ns)}"
    return (
        f"{units.count(pace.steps)} steps{whose}{how}{warm}: median {units.time(pace.median_ns)},"
        f" mean {units.time(pace.mean_ns)}, p95 {units.time(pace.p95_ns)},"
        f" varying by {units.percent(pace.variation)}{odd};"
        f" slowest is step {pace.slowest}, {units.time(pace.slowest_ns)}{more}{_between(pace)}"
    )


def _between(pace: Pace) -> str:
    if pace.between_ns <= MATTERS * pace.median_ns:
        return ""
    data = f", {units.percent(pace.between_dataloader)} of it waiting for data"
    said = data if pace.between_dataloader > 0 else ""
    return f"\n{units.time(pace.between_ns)} pass between two steps{said}"
