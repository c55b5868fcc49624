"""The walls of steps, what they were spent on one nanosecond after the other, and which are ordinary."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

ROLES = "kernel memcpy memset communication runtime dataloader cpu other".split()
LOADS = "enumerate(DataLoader)#"


@dataclass(frozen=True)
class Step:
    """A step on the host."""

    home: tuple[int, int]
    start: int
    end: int


@dataclass(frozen=True)
class Work:
    """What ran on a device: its role, its process, when, and the step that it was launched in (or -1).

    What has no launch is of no step; in a process without launches of the step that it ran in.
    """

    role: str
    home: tuple[int, int]
    start: int
    end: int
    step: int
    launched: bool = True


@dataclass(frozen=True)
class Host:
    """A range or a call on the host."""

    role: str
    home: tuple[int, int]
    start: int
    end: int


def walls(steps: list[Step], work: list[Work]) -> list[tuple[int, int, int]]:
    """Return when the step before ended, and start and end, of each; steps come by process and time."""
    found: list[tuple[int, int, int]] = []
    for nth, step in enumerate(steps):
        first = not nth or steps[nth - 1].home != step.home
        own = [one for one in work if one.step == nth]
        if first:
            before = step.start
            began = min((one.start for one in own), default=None)
            for one in work:
                mine = one.home == step.home and one.step < 0
                if mine and began is not None and one.end < began:
                    before = max(before, one.end)
        else:
            before = found[-1][2]
        start = max(before, step.start)
        found.append((before, start, max(start, step.end, *(one.end for one in own), start)))
    return found


def spent(step: Step, steps: list[Step], start: int, end: int, work: list[Work], host: list[Host]):
    """Return for each role how many of the instants from start to end are its."""
    mine = [one for one in steps if one.home == step.home]

    def counts(one: Work | Host) -> bool:
        around = one.role == "cpu" and any(one.start <= s.start and s.end <= one.end for s in mine)
        return one.home == step.home and not around

    there = [one for one in [*work, *host] if counts(one)]
    found = dict.fromkeys(ROLES, 0)
    for instant in range(start, end):
        going_on = {one.role for one in there if one.start <= instant < one.end}
        found[next(role for role in ROLES if role in going_on or role == "other")] += 1
    return found


def warm_up(lengths: list[int]) -> int:
    """Count the leading steps that are longer than 1.5 times the median of those after them.

    They are none where these are more than two and more than a quarter.
    """
    if len(lengths) < 3:
        return 0
    found = 0
    while True:
        usual = median(lengths[found:])
        leading = 0
        while lengths[leading] > 1.5 * usual:
            leading += 1
        if leading <= found:
            return found if found <= max(2, len(lengths) // 4) else 0
        found = leading


def states(wall: list[int], warm: int) -> list[str]:
    """Tell outliers after the warm-up."""
    rest = wall[warm:] or wall
    middle = median(rest)
    bound = max(5 * median(abs(v - middle) for v in rest), 0.1 * middle)
    found = ["outlier" if len(wall) > 3 and abs(v - middle) > bound else "" for v in wall[warm:]]
    return ["warm-up"] * warm + found
