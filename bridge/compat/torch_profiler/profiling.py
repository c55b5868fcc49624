"""The session of PyTorch's profiler, over `bridge.profile`.

The invariant: steps are scheduled, and the user's function is called, as the session does it; here are
only PyTorch's names and errors.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from bridge.capture.session.profile import profile as session_of
from bridge.capture.session.schedule import Action, action_at, every_step
from bridge.compat.calls import happened
from bridge.compat.torch_profiler.activities import ProfilerActivity, checked
from bridge.compat.torch_profiler.events import (
    Averages,
    EventList,
    Events,
    events_of,
    export,
)

# -- The session of PyTorch's profiler, over `bridge.profile`


SILENT = {  # what is asked for in vain, by the argument
    "with_stack": "no stacks are recorded",
    "experimental_config": "it has no meaning here",
    "execution_trace_observer": "no graph of the execution is recorded",
}


class profile:  # noqa: N801 - theirs
    """Record a block, or from `start` to `stop`; with a schedule some of its steps."""

    step_num = 0
    current_action = Action.NONE
    _initialized = False
    _trace_id = ""

    def __init__(  # noqa: PLR0913 - theirs
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
        _warn_of(with_stack, experimental_config, execution_trace_observer)
        self.activities = checked(_with_cuda(activities, use_cuda))
        self.schedule = schedule or every_step
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.with_flops = record_shapes or with_flops, with_flops
        self.profile_memory, self.with_modules = profile_memory, with_modules
        self.custom_trace_id_callback = custom_trace_id_callback
        self._stepping = schedule is not None
        self._about: dict[str, Any] = {}
        self._session = session_of(
            schedule=self._action if self._stepping else None,
            on_trace_ready=self._ready,
            record_shapes=self.record_shapes,
            profile_memory=profile_memory,
            with_flops=with_flops,
            with_modules=with_modules,
            acc_events=acc_events,
        )

    def start(self) -> None:
        """Begin with step 0; raises RuntimeError while a session runs."""
        self.step_num = 0
        self._session.start()
        if not self._stepping:
            self._note(Action.RECORD)

    def stop(self) -> None:
        """End; what was recorded is ready. Raises AssertionError before anything was begun."""
        self._assert_initialized("stopping trace")
        self.__exit__(None, None, None)

    def step(self) -> None:
        """Go on to the next step of the schedule; without one only count."""
        self.step_num += 1
        if self._stepping:
            self._session.step()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._session.stop()
        self.current_action = Action.NONE

    def events(self) -> Events:
        """Return all calls of the last cycle; raises AssertionError before there was one."""
        self._assert_initialized("accessing events")
        recorded = happened(self._session)
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
        """Write a timeline of the last cycle, replacing the file; through gzip if its name ends in .gz."""
        self._assert_initialized("exporting chrome trace")
        recorded = happened(self._session)
        flags = {
            name: int(getattr(self, name))
            for name in ("record_shapes", "profile_memory", "with_flops", "with_modules")
        }
        about = {**flags, "trace_id": self.get_trace_id(), **self._about}
        export(path, events_of(recorded), recorded, about)

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Record host work no more, or again; of a GPU nothing is recorded here."""
        if any(getattr(one, "name", "") == ProfilerActivity.CPU.name for one in activities):
            (self._session.resume if enable else self._session.pause)()

    def add_metadata(self, key: str, value: str) -> None:
        """Say something of the run, a text."""
        self._session.add_metadata(key, value)
        self._about[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Say something of the run, written as JSON; raises ValueError for what is none."""
        self._session.add_metadata(key, json.loads(value))
        self._about[key] = json.loads(value)

    preset_metadata_json = add_metadata_json  # before the start or after it is the same here

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Have the next cycle's id come from a function."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """Return the id of the last cycle, None before there was one."""
        return self._trace_id or None

    def _action(self, step: int) -> Action:
        """Ask the user's schedule; the session asks once for each step, in order."""
        action = action_at(step, self.schedule)
        self._note(action)
        return action

    def _note(self, action: Action) -> None:
        before, self.current_action = self.current_action, action
        self._initialized |= action is not Action.NONE
        if action is not Action.NONE and before in {Action.NONE, Action.RECORD_AND_SAVE}:
            given = self.custom_trace_id_callback
            self._trace_id = given() if given else uuid.uuid4().hex.upper()

    def _ready(self, _: object) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _assert_initialized(self, doing: str) -> None:
        if not self._initialized:
            raise AssertionError(f"Profiler must be initialized before {doing}")


def _with_cuda(activities: Iterable[Any] | None, use_cuda: bool | None) -> Iterable[Any] | None:
    """Read the argument that activities took the place of."""
    if use_cuda is None:
        return activities
    said = "`use_cuda` is deprecated, use `activities` argument instead"
    warnings.warn(said, FutureWarning, stacklevel=3)
    wanted = list(activities or [ProfilerActivity.CPU])
    has = any(getattr(one, "name", "") == ProfilerActivity.CUDA.name for one in wanted)
    return [*wanted, ProfilerActivity.CUDA] if use_cuda and not has else wanted


def _warn_of(*asked: Any) -> None:
    for (name, reason), value in zip(SILENT.items(), asked, strict=True):
        if value:
            warnings.warn(f"bridge: {name}: {reason}", UserWarning, stacklevel=3)
