"""Names the loops whose steps a table shows: which ranges they are, or what work they begin with."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.analyze.steps import Pace
from bridge.render.table import clean

VERBS = {"repetition": "begin", "optimizer": "end"}


def loop_lines(paces: Iterable[Pace]) -> str:
    """Return a line per loop, each once; '' for steps without names."""
    lines = dict.fromkeys(_loop_line(pace) for pace in paces if pace.loop)
    return "".join(f"{line}\n" for line in lines)


def _loop_line(pace: Pace) -> str:
    if verb := VERBS.get(pace.found_by):
        return f"steps {verb} with {clean(pace.loop)}"
    first, last = (clean(name) for name in pace.names)
    return f"steps are the ranges {first}" + (f" … {last}" if last != first else "")
