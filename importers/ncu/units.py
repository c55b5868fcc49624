"""Values of Nsight Compute in base units, exactly: it prints ``1.60 usecond`` or ``5.12 cycle/nsecond`` as fits.

Base units are those that reports hold: ns, byte, hz, and of rates ``/s``. Every scale is a power of ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from functools import lru_cache

PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
SECONDS = {"second": 0, "s": 0, "sec": 0, "msecond": -3, "ms": -3, "usecond": -6, "us": -6}
SECONDS |= {"nsecond": -9, "ns": -9}
LONGER = {"minute": 60, "hour": 3_600}  # seconds
PREFIXED = re.compile(r"([KMGTP]?)([a-z]{2,}|B)")
NANO = 9
LARGEST_POWER = 400  # of ten: what is beyond is damage, and no float in any unit
DECIMAL_COMMA = re.compile(r"[-+]?(?:\d{1,3}(\.\d{3})*,\d+|\d+,\d+)")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
SPACES = str.maketrans("", "", " \u00a0\u202f'’_")


@lru_cache(maxsize=4096)
def base(unit: str) -> tuple[str, int]:
    """Return the base unit of a unit, and the power of ten that values are multiplied by."""
    above, *below = unit.split("/")
    if not below and above in SECONDS:
        return "ns", SECONDS[above] + NANO
    found = PREFIXED.fullmatch(above)
    power, word = (PREFIXES[found[1]], found[2]) if found else (0, above)
    divided = []
    for one in below:
        seconds = SECONDS.get(one)
        power -= seconds or 0
        divided.append("s" if seconds is not None else one)
    if (word, divided) == ("cycle", ["s"]):
        return "hz", power
    return "/".join([word, *divided]), power


def scaled(value: Decimal, unit: str) -> tuple[Decimal, str]:
    """Return a value in its base unit."""
    if unit in LONGER:
        return scaled(value * LONGER[unit], "second")
    word, power = base(unit)
    return value.scaleb(power), word


def decimal_comma(cells: Iterable[str]) -> bool:
    """Tell whether metrics are written ``1.234,5``: some number of them can be read in no other way."""
    return any(DECIMAL_COMMA.fullmatch(cell) and not THOUSANDS.fullmatch(cell) for cell in cells)


def number(cell: str, *, comma: bool) -> Decimal | None:
    """Return the number in a cell, its thousands set apart or not; None for what is none."""
    text = cell.strip().translate(SPACES)
    text = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    if not text or text[0] not in "-+.0123456789":
        return None
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() and abs(found.adjusted()) <= LARGEST_POWER else None
