"""What a session is told: all of it checked when the session is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.annotate.details import Wanted
from bridge.recording.sink import ENDING
from bridge.session.automatic import LEVELS

TRACES = (".json", ".json.gz")


@dataclass(frozen=True)
class Options:
    """The options of `profile`."""

    schedule: Callable[[int], Any] | None = None
    on_trace_ready: Callable[[Any], Any] | None = None
    level: int = 1
    record_shapes: bool = False
    profile_memory: bool = False
    with_flops: bool = False
    with_modules: bool = False
    acc_events: bool = False
    path: Path | None = None
    dump_period: float | None = None
    capture: str | None = "auto"
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.level not in (0, *LEVELS):
            raise ValueError(f"profile: level is 0, 1 or 2, not {self.level!r}")
        for name in ("schedule", "on_trace_ready"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"profile: {name} is a function, not {getattr(self, name)!r}")
        if self.dump_period is not None:
            self._check_period(self.dump_period)

    def _check_period(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"profile: dump_period is in seconds, more than 0, not {seconds!r}")
        if self.path is None or not self.path.name.endswith(ENDING):
            raise ValueError(f"profile: to dump while running takes a path that ends in {ENDING}")

    @property
    def details(self) -> Wanted | None:
        """The details that every op is asked for."""
        if not (self.record_shapes or self.with_flops):
            return None
        return Wanted(shapes=True, flops="auto" if self.with_flops else None)

    def file(self, cycle: int) -> Path | None:
        """Return the file of a cycle, counted from 0: those after the first have a number."""
        if self.path is None or not cycle:
            return self.path
        suffix = next(one for one in (ENDING, *TRACES[::-1]) if self.path.name.endswith(one))
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}-{cycle + 1}{suffix}")


def checked_path(path: Any) -> Path | None:
    """Refuse a file that nothing could be written to."""
    if path is None:
        return None
    if not Path(path).name.endswith((ENDING, *TRACES)):
        raise ValueError(
            f"profile: {path}: a recording ends in {ENDING}, a trace in .json or .json.gz"
        )
    return Path(path)
