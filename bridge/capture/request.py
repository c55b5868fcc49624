"""What the user asks of a profiler, whichever it is, and how its command line grows from that.

The invariant: an option that the installed version lacks is never passed to it. It is left out and told
of, or an error where the user asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bridge.capture.tool import CaptureError, Tool

# -- Why a program was not profiled: one line for the user, and the exit status that goes with it


# -- A schedule as text, for an option or an environment variable: `wait=1,warmup=1,active=3,repeat=2`


VARIABLE = "BRIDGE_SCHEDULE"
NAMES = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
LEAST = {"active": 1}
DEFAULTS = {"wait": 0, "warmup": 0}


def parse(text: str) -> dict[str, int]:
    """Read the numbers of a schedule, in steps; `wait` and `warmup` are 0 unless given.

    Raises ValueError for an unknown name, one given twice, what is no whole number, and without `active`.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name not in NAMES or not equals:
            raise ValueError(
                f"schedule: {part.strip()!r} is none of {', '.join(NAMES)} with =NUMBER"
            )
        if name in found:
            raise ValueError(f"schedule: {name} is given twice")
        found[name] = _steps(name, number)
    if "active" not in found:
        raise ValueError("schedule: active=NUMBER is missing, the steps to record")
    return DEFAULTS | found


def _steps(name: str, number: str) -> int:
    least = LEAST.get(name, 0)
    if not (number.isascii() and number.isdigit()) or int(number) < least:
        raise ValueError(f"schedule: {name} is a whole number of at least {least}, not {number!r}")
    return int(number)


# -- What the user asks of a profiler, whichever it is, and how its command line grows from that


@dataclass(frozen=True)
class Request:
    """The options of `bridge run` that become options of the profiler; None or empty: not given."""

    preset: str | None = None
    schedule: Mapping[str, int] = field(default_factory=dict)
    capture: str | None = None
    kill: bool = False
    graphs: str | None = None
    memory: bool = False
    backtrace: bool = False
    force: bool = False
    ops: tuple[str, ...] = ()
    replay: str | None = None
    section_set: str | None = None
    metrics: str | None = None
    no_clock_control: bool = False

    def given(self, *names: str) -> list[str]:
        """Return which of these options were given, as the user writes them."""
        written = {"ops": "--op", "section_set": "--set"}
        return [written.get(n, f"--{n.replace('_', '-')}") for n in names if getattr(self, n)]


class Wish(NamedTuple):
    """An option of the profiler that is wanted."""

    option: str
    value: str | None = None
    without: str = ""  # what becomes of it if the version lacks the option
    asked: str = ""  # the option of `bridge run` that it stands for, if the user gave it


class Line(NamedTuple):
    """Options that the installed version knows, and a line for each that it does not."""

    words: list[str]
    notes: list[str]


def line(tool: Tool, wishes: Iterable[Wish]) -> Line:
    """Write the wishes as options of the tool; raises CaptureError for one that the user asked for."""
    found = Line([], [])
    for wish in wishes:
        value, lacking = _known(tool, wish)
        if lacking and wish.asked:
            raise CaptureError(f"{wish.asked}: {tool.named()} has no {lacking}")
        if lacking:
            found.notes.append(f"{tool.named()} has no {lacking}: {wish.without}")
        if value is not None:
            found.words.append(f"{wish.option}={value}" if value else wish.option)
    return found


def _known(tool: Tool, wish: Wish) -> tuple[str | None, str]:
    """Return as much of a value as the tool knows, None if not even the option, and what it lacks."""
    if wish.option not in tool.options:
        return None, wish.option
    if wish.value is None:
        return "", ""
    values = wish.value.split(",") if wish.option == "--trace" else [wish.value]
    taken = [value for value in values if tool.takes(wish.option, value)]
    lacking = ",".join(value for value in values if value not in taken)
    return ",".join(taken) or None, lacking and f"{wish.option}={lacking}"


def escaped(report: Path) -> str:
    """Write a file's name so that the profilers take it literally: % begins their placeholders."""
    return str(report).replace("%", "%%")
