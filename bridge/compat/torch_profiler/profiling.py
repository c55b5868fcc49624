"""PyTorch's profiler on `bridge.profile`: activities, schedules, and the `profile` object.

The session schedules steps and calls the user's function; this module has PyTorch's names and
errors. Host work is always recorded; GPU work only by an attached tool, in its own report.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self

from bridge.annotate.emit import SIGNS
from bridge.capture.session import schedule as steps
from bridge.capture.session.profile import profile as session_of
from bridge.capture.session.schedule import Action, action_at, every_step
from bridge.capture.session.schedule import Action as ProfilerAction
from bridge.compat.calls import recorded_events
from bridge.compat.torch_profiler.events import Averages, EventList, Events, events_of, export

# -- Activities


# -- Schedules


def schedule(**numbers: int) -> Callable[[int], Action]:
    """Return the function from the number of a step to its action, as `bridge.schedule`.

    Raises AssertionError for invalid numbers and for a negative step.
    """
    try:
        action_of = steps.schedule(**numbers)
    except ValueError as problem:
        raise AssertionError(f"Invalid profiler schedule arguments: {problem}") from None

    def asserted(step: int) -> Action:
        try:
            return action_of(step)
        except ValueError as problem:
            raise AssertionError(str(problem)) from None

    return asserted


# -- TensorBoard


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Return a function for `on_trace_ready` that writes ``<worker>.<ns>.pt.trace.json[.gz]``.

    A worker is named after host and process by default. Raises RuntimeError if the folder cannot
    be made.
    """

    def handle(profiler: Any) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RuntimeError(f"Can't create directory: {dir_name}") from problem
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".gz" if use_gzip else ""
        profiler.export_chrome_trace(
            str(folder / f"{worker}.{time.time_ns()}.pt.trace.json{ending}")
        )

    return handle


# -- Activities


__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(Enum):
    """The kinds of work, by PyTorch's names and numbers."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    """Return what is recorded: CPU, and CUDA if a tool is attached."""
    attached = any(os.environ.get(sign) for sign in SIGNS)
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if attached else [])}


def requested_activities(activities: Iterable[Any] | None) -> set[ProfilerActivity]:
    """Return the supported ones of the requested activities, which may be PyTorch's own objects.

    Raises ValueError for a repeated activity, TypeError for an unknown one, AssertionError if none
    is supported; warns of the others that are not supported.
    """
    supported = supported_activities()
    if activities is None:
        return supported
    requested: set[ProfilerActivity] = set()
    for activity in _flatten(activities):
        if activity in requested:
            raise ValueError(f"Activity {activity} specified more than once")
        requested.add(activity)
    missing = requested - supported
    if missing:
        names = ", ".join(sorted(activity.name for activity in missing))
        text = f"bridge: {names}: GPU times are in the report of a tool; run under nsys"
        warnings.warn(text, UserWarning, stacklevel=4)
    if not requested - missing:
        raise AssertionError("No valid profiler activities found")
    return requested - missing


def _flatten(activities: Iterable[Any]) -> Iterable[ProfilerActivity]:
    """Yield single activities; a mapping of options contributes its keys."""
    for item in activities:
        for activity in item if isinstance(item, dict) else [item]:
            name = getattr(activity, "name", "")
            if name not in ProfilerActivity.__members__:
                raise TypeError(f"Expected ProfilerActivity or dict, got {type(activity)}")
            yield ProfilerActivity[name]


# -- The profiler


# -- The profiler


IGNORED_ARGUMENTS = {  # arguments without effect, and why
    "with_stack": "no stacks are recorded",
    "experimental_config": "it has no meaning here",
    "execution_trace_observer": "no graph of the execution is recorded",
}


class profile:  # noqa: N801 - PyTorch's name
    """Record a block, or from `start` to `stop`; with a schedule some of its steps."""

    step_num = 0
    current_action = Action.NONE
    _initialized = False
    _trace_id = ""

    def __init__(  # noqa: PLR0913 - PyTorch's parameters
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:
        _warn_of_ignored(with_stack, experimental_config, execution_trace_observer)
        self.activities = requested_activities(_with_cuda_activity(activities, use_cuda))
        self.schedule = schedule or every_step
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.with_flops = record_shapes or with_flops, with_flops
        self.profile_memory, self.with_modules = profile_memory, with_modules
        self.custom_trace_id_callback = custom_trace_id_callback
        self._has_schedule = schedule is not None
        self._metadata: dict[str, Any] = {}
        self._session = session_of(
            schedule=self._action if self._has_schedule else None,
            on_trace_ready=self._on_ready,
            record_shapes=self.record_shapes,
            profile_memory=profile_memory,
            with_flops=with_flops,
            with_modules=with_modules,
            acc_events=acc_events,
        )

    def start(self) -> None:
        """Start with step 0; raises RuntimeError while a session runs."""
        self.step_num = 0
        self._session.start()
        if not self._has_schedule:
            self._set_action(Action.RECORD)

    def stop(self) -> None:
        """Stop; raises AssertionError if nothing was recorded."""
        self._assert_initialized("stopping trace")
        self.__exit__(None, None, None)

    def step(self) -> None:
        """Go on to the next step of the schedule; without a schedule only count."""
        self.step_num += 1
        if self._has_schedule:
            self._session.step()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._session.stop()
        self.current_action = Action.NONE

    def events(self) -> Events:
        """Return all calls of the last cycle; raises AssertionError before the first cycle."""
        self._assert_initialized("accessing events")
        recorded = recorded_events(self._session)
        return EventList(events_of(recorded), with_flops=self.with_flops, recorded=recorded)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> Averages:
        """Return one row per name, or per name and shapes, of the last cycle."""
        self._assert_initialized("getting key averages")
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a timeline of the last cycle, with gzip if the name ends in .gz."""
        self._assert_initialized("exporting chrome trace")
        recorded = recorded_events(self._session)
        flags = {
            name: int(getattr(self, name))
            for name in ("record_shapes", "profile_memory", "with_flops", "with_modules")
        }
        about = {**flags, "trace_id": self.get_trace_id(), **self._metadata}
        export(path, events_of(recorded), recorded, about)

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Pause or resume the recording of host work; GPU work is not recorded here."""
        if any(
            getattr(activity, "name", "") == ProfilerActivity.CPU.name for activity in activities
        ):
            (self._session.resume if enable else self._session.pause)()

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the metadata."""
        self._session.add_metadata(key, value)
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value as JSON to the metadata; raises ValueError for invalid JSON."""
        self._session.add_metadata(key, json.loads(value))
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Set the function that returns the id of the next cycle."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """Return the id of the last cycle, None before the first."""
        return self._trace_id or None

    def _action(self, step: int) -> Action:
        """Return the action of the user's schedule; the session asks once per step, in order."""
        action = action_at(step, self.schedule)
        self._set_action(action)
        return action

    def _set_action(self, action: Action) -> None:
        before, self.current_action = self.current_action, action
        self._initialized |= action is not Action.NONE
        if action is not Action.NONE and before in {Action.NONE, Action.RECORD_AND_SAVE}:
            callback = self.custom_trace_id_callback
            self._trace_id = callback() if callback else uuid.uuid4().hex.upper()

    def _on_ready(self, _: object) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _assert_initialized(self, doing: str) -> None:
        if not self._initialized:
            raise AssertionError(f"Profiler must be initialized before {doing}")


def _with_cuda_activity(
    activities: Iterable[Any] | None, use_cuda: bool | None
) -> Iterable[Any] | None:
    """Return the activities with CUDA if the deprecated `use_cuda` is set."""
    if use_cuda is None:
        return activities
    text = "`use_cuda` is deprecated, use `activities` argument instead"
    warnings.warn(text, FutureWarning, stacklevel=3)
    requested = list(activities or [ProfilerActivity.CPU])
    has_cuda = any(
        getattr(activity, "name", "") == ProfilerActivity.CUDA.name for activity in requested
    )
    return [*requested, ProfilerActivity.CUDA] if use_cuda and not has_cuda else requested


def _warn_of_ignored(*values: Any) -> None:
    for (name, reason), value in zip(IGNORED_ARGUMENTS.items(), values, strict=True):
        if value:
            warnings.warn(f"bridge: {name}: {reason}", UserWarning, stacklevel=3)
