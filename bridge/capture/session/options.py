"""Options of a session, checked when the session is created."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any

from bridge.annotate import mode
from bridge.annotate.details import DetailOptions
from bridge.annotate.memory.sampling import checked_rate
from bridge.annotate.recording.sink import ENDING
from bridge.capture.session.device import DEVICES, SUFFIX
from bridge.capture.session.schedule import SCHEDULE_VARIABLE, parse_schedule
from bridge.capture.session.schedule import schedule as schedule_of
from bridge.knowledge.suggestions import unknown_name

# Modules, optimizers and data loaders of frameworks; also their ops, API calls and garbage collections.
FRAMEWORKS, RUNTIME = LEVELS = (1, 2)


TRACES = (".json", ".json.gz")


@dataclass(frozen=True)
class Options:
    """The options of `profile`; raises TypeError or ValueError for invalid values."""

    schedule: Callable[[int], Any] | None = None
    on_trace_ready: Callable[[Any], Any] | None = None
    level: int = 1
    ops: bool = False
    record_shapes: bool = False
    profile_memory: bool = False
    sample_rate: int = 0
    with_flops: bool = False
    with_modules: bool = True
    api_calls: bool = False
    with_stack: bool | int = False
    acc_events: bool = False
    path: Path | None = None
    dump_period: float | None = None
    capture: str | None = "auto"
    device: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.level not in (0, *LEVELS):
            raise ValueError(f"profile: level is 0, 1 or 2, not {self.level!r}")
        for name in ("schedule", "on_trace_ready"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"profile: {name} is a function, not {getattr(self, name)!r}")
        checked_rate(self.sample_rate, minimum=0)
        if self.device not in (None, *DEVICES):
            raise ValueError(f"profile: {unknown_name('device', self.device, DEVICES)}")
        if self.path is not None and self.path.name.endswith(SUFFIX) and self.device is None:
            raise ValueError(f"profile: {self.path.name}: a report needs device='cupti'")
        if self.dump_period is not None:
            self._check_period(self.dump_period)

    def _check_period(self, seconds: float) -> None:
        if not isinstance(seconds, int | float) or not 0 < seconds <= TIMEOUT_MAX:
            raise ValueError(f"profile: dump_period is in seconds, more than 0, not {seconds!r}")
        if self.path is None or not self.path.name.endswith(ENDING):
            raise ValueError(f"profile: to dump while running takes a path that ends in {ENDING}")

    @property
    def records_ops(self) -> bool:
        """Whether every op of PyTorch has a range, also where only modes can record it."""
        of_ops = self.record_shapes or self.with_flops or self.with_stack or self.sample_rate
        return bool(self.level > 0 and (self.ops or of_ops)) or self.level >= RUNTIME

    @property
    def details(self) -> DetailOptions | None:
        """The details to record of every op, or None."""
        if not (self.record_shapes or self.with_flops):
            return None
        return DetailOptions(shapes=True, flops="auto" if self.with_flops else None)


def checked_options(options: Mapping[str, Any]) -> Options:
    """Return the options of `profile`; raises TypeError for an unknown one.

    What the program does not say is as BRIDGE_MODE selects it.
    """
    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            raise TypeError(f"profile: {unknown_name('option', name, known, 'docs/sessions.md')}")
    options = {**_kinds_of_environment(), **options}
    path = checked_path(options.get("path"))
    metadata = checked_metadata(options.get("metadata") or {})
    schedule = options.get("schedule") or _schedule_of_environment()
    return Options(**{**options, "path": path, "metadata": metadata, "schedule": schedule})


def _kinds_of_environment() -> dict[str, Any]:
    """Return the options that BRIDGE_MODE selects; raises ValueError for an invalid one."""
    kinds = mode.kinds_of_environment()
    if kinds is None:
        return {}
    return {
        "level": FRAMEWORKS if kinds & {mode.OPS, mode.MODULES, mode.SHAPES} else 0,
        "ops": mode.OPS in kinds,
        "api_calls": mode.API in kinds,
        "profile_memory": mode.MEMORY in kinds,
        "with_modules": mode.MODULES in kinds,
        "record_shapes": mode.SHAPES in kinds,
    }


def _schedule_of_environment() -> Callable[[int], Any] | None:
    """Return the schedule that `bridge run --schedule` set, or None.

    Raises ValueError for an invalid one.
    """
    text = os.environ.get(SCHEDULE_VARIABLE)
    return schedule_of(**parse_schedule(text)) if text else None


def checked_path(path: Any) -> Path | None:
    """Return the absolute path.

    Raises ValueError for an unknown suffix, TypeError for another type.
    """
    if path is None:
        return None
    if not Path(path).name.endswith((ENDING, SUFFIX, *TRACES)):
        raise ValueError(
            f"profile: {path}: a recording ends in {ENDING}, a trace in .json or .json.gz, a report in {SUFFIX}"
        )
    return Path(path).absolute()  # valid even if the program changes folders


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Return a copy of the metadata; raises TypeError unless it is a mapping of JSON values."""
    if not metadata:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"profile: metadata is a mapping, not {metadata!r}")
    from json import loads  # takes 5 ms, and most sessions have no metadata

    from bridge.annotate.recording.lines import encoded

    try:
        copy: dict[str, Any] = loads(encoded(dict(metadata), default=None))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"profile: metadata: {error}") from error
    return copy


def numbered_path(path: Path, numbers: Sequence[int]) -> Path:
    """Return a path with numbers before its suffix, for example `steps-2.json.gz`."""
    suffix = next(text for text in (ENDING, SUFFIX, *TRACES[::-1]) if path.name.endswith(text))
    name = "-".join([path.name.removesuffix(suffix), *map(str, numbers)])
    return path.with_name(name + suffix)
