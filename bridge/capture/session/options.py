"""What a session is told: all of it checked when the session is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any

from bridge.annotate.details import Wanted
from bridge.annotate.memory.sampling import checked_rate
from bridge.annotate.recording.sink import ENDING
from bridge.capture.request import VARIABLE, parse
from bridge.capture.session.automatic import LEVELS
from bridge.capture.session.schedule import schedule as schedule_of

TRACES = (".json", ".json.gz")


@dataclass(frozen=True)
class Options:
    """The options of `profile`; raises TypeError or ValueError for what makes no sense."""

    schedule: Callable[[int], Any] | None = None
    on_trace_ready: Callable[[Any], Any] | None = None
    level: int = 1
    record_shapes: bool = False
    profile_memory: bool = False
    sample_rate: int = 0
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
        checked_rate(self.sample_rate, least=0)
        if self.dump_period is not None:
            self._check_period(self.dump_period)

    def _check_period(self, seconds: float) -> None:
        if not isinstance(seconds, int | float) or not 0 < seconds <= TIMEOUT_MAX:
            raise ValueError(f"profile: dump_period is in seconds, more than 0, not {seconds!r}")
        if self.path is None or not self.path.name.endswith(ENDING):
            raise ValueError(f"profile: to dump while running takes a path that ends in {ENDING}")

    @property
    def details(self) -> Wanted | None:
        """The details that every op is asked for."""
        if not (self.record_shapes or self.with_flops):
            return None
        return Wanted(shapes=True, flops="auto" if self.with_flops else None)


def checked_options(given: Mapping[str, Any]) -> Options:
    """Make options of what `profile` was given; raises TypeError for one that there is not."""
    known = [one.name for one in fields(Options)]
    unknown = ", ".join(repr(name) for name in given if name not in known)
    if unknown:
        raise TypeError(f"profile: no option {unknown}; there are {', '.join(known)}")
    path = checked_path(given.get("path"))
    metadata = checked_metadata(given.get("metadata") or {})
    schedule = given.get("schedule") or _schedule_of_environment()
    return Options(**{**given, "path": path, "metadata": metadata, "schedule": schedule})


def _schedule_of_environment() -> Callable[[int], Any] | None:
    """Return the schedule that `bridge run --schedule` asks for; raises ValueError for nonsense."""
    text = os.environ.get(VARIABLE)
    return schedule_of(**parse(text)) if text else None


def checked_path(path: Any) -> Path | None:
    """Refuse a file that nothing could be written to; raises ValueError, TypeError for what is no path."""
    if path is None:
        return None
    if not Path(path).name.endswith((ENDING, *TRACES)):
        raise ValueError(
            f"profile: {path}: a recording ends in {ENDING}, a trace in .json or .json.gz"
        )
    return Path(path).absolute()  # wherever the program goes


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Refuse what is no mapping, or what JSON cannot say: raises TypeError; return it as it is now."""
    if not metadata:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"profile: metadata is a mapping, not {metadata!r}")
    from json import loads  # 5 ms, and most sessions say nothing

    from bridge.annotate.recording.writer import encoded

    try:
        said: dict[str, Any] = loads(encoded(dict(metadata), default=None))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"profile: metadata: {error}") from None
    return said


def numbered(path: Path, numbers: Sequence[int]) -> Path:
    """Return a path with numbers before its suffix: `steps.json.gz` becomes `steps-2.json.gz`."""
    suffix = next(one for one in (ENDING, *TRACES[::-1]) if path.name.endswith(one))
    name = "-".join([path.name.removesuffix(suffix), *map(str, numbers)])
    return path.with_name(name + suffix)
