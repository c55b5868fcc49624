"""Amounts in texts of users, such as ``3.2ms`` or ``5%``, and times as text for people."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

NS, PERCENT = "ns", "%"
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
AMOUNT = re.compile(rf"(-?\d+(?:\.\d+)?)\s*({'|'.join(UNITS)}|%)?")
BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
LARGE_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))  # in ns, largest first


class Amount(NamedTuple):
    """A number, and its unit: `PERCENT`, `NS` for times, or "" for a bare number."""

    number: Decimal
    unit: str


def parse_amount(text: str, *, signed: bool = False) -> Amount:
    """Return the amount that a text says, times in ns.

    Raises ValueError for other text, and for an amount below 0 that is not to be ``signed``.
    """
    match = AMOUNT.fullmatch(text.strip())
    if not match or (match[1].startswith("-") and not signed):
        raise ValueError(f"{text.strip()!r} is no amount: write 5%, 3.2ms, 200us or 24")
    number, unit = Decimal(match[1]), match[2] or ""
    return Amount(number * UNITS[unit], NS) if unit in UNITS else Amount(number, unit)


def parse_time_ns(text: str) -> int:
    """Return a time in ns; only 0 needs no unit. Raises ValueError for other text."""
    match = AMOUNT.fullmatch(text.strip())
    if not match or match[2] == PERCENT or match[1].startswith("-"):
        raise ValueError(f"{text!r} is no time: write 1.5s, 20ms, 300us or 400ns")
    number, unit = parse_amount(text)
    if not unit and number:
        units = ", ".join(f"{match[1]}{unit}" for unit in ("s", "ms", "us"))
        raise ValueError(f"{text!r} has no unit: write {units} or {match[1]}ns")
    return round(number)


def parse_bytes(text: str) -> int:
    """Return an amount of memory in bytes: ``2GB``, ``512MiB``, ``1.5G``. Raises ValueError for other texts."""
    match = BYTES.fullmatch(text.strip())
    if match and (match[2] or not match[3]):
        unit = (1024 if match[3] else 1000) ** POWERS[match[2].upper()]
        if amount := int(float(match[1]) * unit):
            return amount
    raise ValueError(f"{text!r} is no amount of memory: write 2GB, 512MiB or 1.5G")


def time_text(ns: float) -> str:
    """Return a time with its unit: ``1.234 ms``."""
    for scale, unit in LARGE_UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.3f} {unit}"
    return f"{ns:.0f} ns" if ns == int(ns) else f"{ns:.1f} ns"
