"""Numbers with units, as text for people."""

from __future__ import annotations

from bridge.knowledge import amounts

MIN_SHARE = 0.001
KILO = 1000
time = amounts.time_text  # ``1.234 ms``
SIZE = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def time_in(unit: str, ns: float) -> str:
    """Return a time in a unit (ns, us, ms, s), with three decimals; ns without decimals."""
    return f"{ns:.0f} ns" if unit == "ns" else f"{ns / amounts.UNITS[unit]:.3f} {unit}"


def size(count: float) -> str:
    """Return bytes with a binary unit: ``1.5 MiB``."""
    for scale, unit in SIZE:
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def count(number: float) -> str:
    """Return a count with blanks between thousands: ``10 000``."""
    return f"{number:,.0f}".replace(",", " ")


def percent(share: float) -> str:
    """Return a share of 1 in per cent; shares near 0 and 1 are not rounded to 0 and 100."""
    if 0 < share < MIN_SHARE:
        return f"<{100 * MIN_SHARE:.1f} %"
    if 1 - MIN_SHARE < share < 1:
        return f">{100 * (1 - MIN_SHARE):.1f} %"
    return f"{100 * share:.1f} %"


def of_hundred(share: float) -> str:
    """Return a share of 100 in per cent, as Nsight Compute gives it."""
    return f"{share:.1f} %"


def rate(gb_per_s: float) -> str:
    """Return a bandwidth in 10**9 bytes per second."""
    return f"{gb_per_s:.1f} GB/s"


def flop(number: float) -> str:
    """Return a number of floating-point operations: ``1.60 TFLOP``."""
    prefixes = ("", "k", "M", "G", "T", "P", "E", "Z")
    place = 0
    while abs(number) >= KILO and place + 1 < len(prefixes):
        number, place = number / KILO, place + 1
    return f"{number:.0f} FLOP" if not place else f"{number:.2f} {prefixes[place]}FLOP"


def figure(number: float) -> str:
    """Return a number without a unit, with four significant digits."""
    return f"{number:.4g}"


def tflops(tflop_per_s: float) -> str:
    """Return a speed in 10**12 FLOP per second, with four significant digits."""
    return f"{tflop_per_s:.4g} TFLOP/s"
