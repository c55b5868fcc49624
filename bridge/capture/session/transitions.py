"""The state machine of a session: the transitions of PyTorch's profiler.

The calls of a transition depend only on the previous and the next action. All calls are made even
if one raises; the exception propagates once the machine is in the new step with its new action (or
at its end). There is one difference: if no recording follows a warm-up, PyTorch starts and stops;
here that is omitted, because it would capture nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from bridge.capture.session.schedule import Action, action_at, every_step


def call_all(*calls: Callable[[], object]) -> None:
    """Make all calls in order, even if some raise; then propagate the exception."""
    if calls:
        try:
            calls[0]()
        finally:
            call_all(*calls[1:])


NONE, WARMUP, RECORD, SAVE = Action
RECORDING = (RECORD, SAVE)

# (previous action, next action or None at the end): the calls, in order.
CALLS: dict[tuple[Action, Action | None], tuple[str, ...]] = {
    (NONE, WARMUP): ("prepare",),
    **{(NONE, now): ("prepare", "start") for now in RECORDING},
    **{(WARMUP, now): ("start",) for now in RECORDING},
    (RECORD, NONE): ("stop",),
    (RECORD, WARMUP): ("stop",),
    (RECORD, None): ("stop", "ready"),
    (SAVE, NONE): ("stop", "ready"),
    (SAVE, WARMUP): ("stop", "ready", "prepare"),
    **{(SAVE, now): ("stop", "ready", "prepare", "start") for now in RECORDING},
    (SAVE, None): ("stop", "ready"),
}
INCORRECT = {(WARMUP, NONE), (RECORD, NONE), (RECORD, WARMUP)}


class Phases(Protocol):
    """The calls that the machine makes."""

    def prepare(self) -> None:
        """Prepare to record: at the start of a warm-up, or of a recording without one."""

    def start(self) -> None:
        """Start recording."""

    def stop(self) -> None:
        """Stop recording."""

    def ready(self) -> None:
        """Deliver the recording to the user."""


class SessionRunsError(RuntimeError):
    """A session is already running in this process, or is between two steps."""


class Machine:
    """The state of a session: the number of the step and its action.

    `begin` may follow `end`; steps then count from 0 again.
    """

    def __init__(self, actions: Callable[[int], Any] | None, on: Phases) -> None:
        self.step_number = 0
        self.action = NONE
        self.running = False
        self._actions = actions or every_step
        self._on = on
        self.changing = False  # a transition is in progress

    def begin(self) -> None:
        """Start with step 0.

        Raises SessionRunsError if running, ValueError for an invalid schedule.
        """
        self.refuse_within("begin")
        if self.running:
            raise SessionRunsError(
                "the session is already running; stop it before starting it again"
            )
        action = action_at(0, self._actions)
        self.running, self.step_number = True, 0
        self._change(action)

    def step(self) -> None:
        """Proceed to the next step.

        Raises RuntimeError before `begin`, ValueError for an invalid schedule.

        If the schedule raises or returns an invalid action, the machine stays in its step.
        """
        self.refuse_within("step")
        if not self.running:
            raise RuntimeError("no session is running; start one before the first step")
        action = action_at(self.step_number + 1, self._actions)
        self.step_number += 1
        self._change(action)

    def end(self) -> None:
        """End the session and deliver its recording. Does nothing if it is not running."""
        self.refuse_within("end")
        if self.running:
            self.running = False
            self._change(None)

    def refuse_within(self, call: str) -> None:
        """Raise SessionRunsError during a transition, because transitions cannot nest."""
        if self.changing:
            raise SessionRunsError(
                f"the session is between two steps: do not {call} it from a callback"
            )

    def abandon(self) -> None:
        """End without any calls."""
        self.running, self.action = False, NONE

    def _change(self, now: Action | None) -> None:
        before, self.action = self.action, now or NONE
        calls = [getattr(self._on, name) for name in CALLS.get((before, now), ())]
        if now is not None and (before, now) in INCORRECT:
            calls.insert(0, partial(_warn, before, now))
        try:
            self.changing = True
            call_all(*calls)
        finally:
            self.changing = False


def _warn(before: Action, now: Action) -> None:
    message = f"bridge: incorrect schedule: {now.name} follows {before.name}; nothing is saved"
    # The program's call of the session's step: above _warn, call_all, _change, step and the
    # session.
    warnings.warn(message, RuntimeWarning, stacklevel=6)
