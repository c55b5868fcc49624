"""A schedule as text, for an option or an environment variable: `wait=1,warmup=1,active=3,repeat=2`.

The invariant: what `parse` gives, `bridge.schedule` takes.
"""

from __future__ import annotations

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
