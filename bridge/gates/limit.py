"""One limit of a budget: ``3.2ms ± 5%``, ``<= 24``, ``3ms..4ms``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from bridge.gates.amounts import amount, written

PLUS_MINUS = re.compile(r"\s*(?:±|\+-|\+/-)\s*")
COMPARED = re.compile(r"\s*(<=|>=|<|>|=)?\s*(.*?)\s*")
GRAMMAR = "write 3.2ms, 3.2ms ± 5%, <= 24, >= 10%, = 24 or 3ms..4ms"


@dataclass(frozen=True)
class Limit:
    """What a value may be: between ``low`` and ``high`` (None: any), its ends included unless ``strict``.

    ``roomy`` is the value below which a budget could be lowered, None without a tolerance.
    """

    text: str
    unit: str
    low: Decimal | None = None
    high: Decimal | None = None
    strict: bool = False
    roomy: Decimal | None = None

    @classmethod
    def parsed(cls, said: object) -> Limit:
        """Read a limit; ValueError, in words for the user, for what is none."""
        if type(said) not in (str, int, float):  # above all no bool
            raise ValueError(f"a {type(said).__name__} is no limit: {GRAMMAR}")
        text = " ".join(str(said).split())
        if ".." in text:
            return _between(text)
        value, *tolerance = PLUS_MINUS.split(text, maxsplit=1)
        sign, number = COMPARED.fullmatch(value).groups()  # type: ignore[union-attr]
        found, unit = amount(number)
        if not tolerance:
            return _compared(text, sign, found, unit)
        if sign not in (None, "<", "<="):
            raise ValueError(f"{text!r}: a tolerance goes with a highest value alone; {GRAMMAR}")
        room = _room(found, unit, tolerance[0])
        return cls(text, unit, high=found + room, strict=sign == "<", roomy=found - room)

    def allows(self, value: Decimal) -> bool:
        """Tell whether a value, in ns or per cent where the limit is, is within."""
        if self.strict:
            return (self.low is None or value > self.low) and (
                self.high is None or value < self.high
            )
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def note(self, value: Decimal) -> str:
        """Return a word on a value that is below what was meant, '' otherwise."""
        low = self.roomy is not None and value < self.roomy
        return f"below {self.text}: the budget could be lowered" if low else ""

    def written(self, value: Decimal) -> str:
        """Return a value in the limit's unit."""
        return f"{float(value):.2f} %" if self.unit == "%" else written(value, self.unit)


def _between(text: str) -> Limit:
    low, _, high = text.partition("..")
    ends = amount(low), amount(high)
    if ends[0][1] != ends[1][1]:
        raise ValueError(f"{text!r}: one unit for both ends; {GRAMMAR}")
    if ends[0][0] > ends[1][0]:
        raise ValueError(f"{text!r}: the lower end goes first; {GRAMMAR}")
    return Limit(text, ends[0][1], low=ends[0][0], high=ends[1][0])


def _compared(text: str, sign: str | None, value: Decimal, unit: str) -> Limit:
    if sign == "=":
        return Limit(text, unit, low=value, high=value)
    if sign in (">", ">="):
        return Limit(text, unit, low=value, strict=sign == ">")
    return Limit(text, unit, high=value, strict=sign == "<")


def _room(value: Decimal, unit: str, tolerance: str) -> Decimal:
    room, of = amount(tolerance)
    if of == "%" and unit != "%":
        return value * room / 100
    if of != unit:
        raise ValueError(f"{tolerance!r}: a tolerance in %, or in the unit of the value")
    return room
