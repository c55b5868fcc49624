"""Amounts in gates and budgets: times, counts, shares; read and written."""

from __future__ import annotations

import re
from decimal import Decimal

UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
AMOUNT = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)}|%)?")
SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def amount(text: str) -> tuple[Decimal, str]:
    """Return a number and its unit: "%", "ns" (times are returned in ns), or "" for a bare number.

    Raises ValueError for what is none.
    """
    found = AMOUNT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text.strip()!r} is no amount: write 5%, 3.2ms, 200us or 24")
    number, unit = Decimal(found[1]), found[2] or ""
    return (number * UNITS[unit], "ns") if unit in UNITS else (number, unit)


def written(value: Decimal | int, unit: str) -> str:
    """Return an amount for people: a time (of ``ns``) with its unit, else a plain number."""
    if unit != "ns":
        return f"{float(value):,.6g}".replace(",", " ")
    size = abs(float(value))
    scale, name = next((s for s in SCALES if size >= s[0]), SCALES[-1])
    return f"{float(value) / scale:.3f} {name}" if scale > 1 else f"{float(value):.0f} ns"
