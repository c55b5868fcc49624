"""How a benchmark is run: its options, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from bridge.bench.errors import BenchError

MANY = 10_000_000  # calls in a run


@dataclass(frozen=True)
class Options:
    """``warmup`` calls that are not timed, then ``repeat`` series of ``runs``, each timed by itself, of ``number`` calls.

    Without a ``number`` it is as large as the clock needs. ``cold``: the caches are written over before each run;
    ``graph``: the calls are captured as a CUDA graph, and a run replays it; ``backward``: the backward pass alone is timed.
    """

    warmup: int = 10
    runs: int = 10
    repeat: int = 1
    number: int | None = None
    cold: bool = False
    graph: bool = False
    backward: bool = False

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("runs", 1), ("repeat", 1), ("number", 1)):
            value = getattr(self, name)
            if name == "number" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BenchError(f"{name} is an integer of at least {least}, not {value!r}")
        if self.cold and self.number not in {None, 1}:
            raise BenchError("cold runs are of one call each: no number beside cold")
        if self.graph and self.backward:  # PyTorch runs it on the streams of the forward pass
            raise BenchError(
                "a backward pass cannot be captured as a graph: no graph beside backward"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Check options by name; TypeError, with what there is, for others."""
        known = [one.name for one in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise TypeError(
                f"{unknown[0]}: no option of a benchmark, which has {', '.join(known)};"
                " what the function gets by name goes into kwargs={…}"
            )
        return cls(**given)

    @property
    def times(self) -> int:
        """How many runs are timed."""
        return self.runs * self.repeat
