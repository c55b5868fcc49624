"""How metrics of kernels are shown: a heading with the unit, unless each value says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bridge.render import units
from bridge.render.headings import known
from bridge.render.shown import Shown

GIGA = 1e9


def _hertz(value: float) -> str:
    return f"{value / GIGA:.2f} GHz"


def _rate(value: float) -> str:
    return units.rate(value / GIGA)


def _number(value: float | str) -> str:
    """Write a count whole, another number with two decimals, a text as it is."""
    if isinstance(value, str):
        return value
    return units.count(value) if value == int(value) else f"{value:.2f}"


SAYING: dict[str, Callable[[Any], str]] = {  # units that stand beside each value
    "%": units.of_hundred,
    "byte": units.size,
    "byte/block": units.size,
    "byte/s": _rate,
    "ns": units.time,
    "hz": _hertz,
}
UNSAID = frozenset(["", "register/thread", "inst", "cycle", "warp"])  # told by the metrics' names


def measured(column: str, unit: str) -> Shown:
    """Return how a metric is shown; one by a short name with blanks in it."""
    heading = column.replace("_", " ") if "__" not in column else column
    said = "" if unit in SAYING or unit in UNSAID else f", {unit}"
    return Shown(column, f"{heading}{said}", known(SAYING.get(unit, _number)))


def unknown(shown: Shown) -> Shown:
    """Return a column of times in which -1 says that it is not known."""
    if not shown.column.endswith("_ns") or isinstance(shown.text, partial):
        return shown
    return replace(shown, text=known(shown.text))
