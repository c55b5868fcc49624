"""What is called when a step begins: the transitions of PyTorch's profiler.

One thing differs: where nothing follows a warm-up, PyTorch starts and stops; here that would be a
capture of nothing, and is left out. The invariant: what is called depends on the action before and the one that comes, and on nothing
else. All that a transition calls is called, even if something of it raises: the exception goes on
once the machine stands in the new step with its new action (or is at its end).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from bridge.capture.session.schedule import Action, action_at, every_step

# -- Calls of which each is made, whatever the others raise


def call_all(*calls: Callable[[], object]) -> None:
    """Call these in their order; what they raise goes on once all have been called."""
    if calls:
        try:
            calls[0]()
        finally:
            call_all(*calls[1:])


# -- What is called when a step begins: the transitions of PyTorch's profiler


NONE, WARMUP, RECORD, SAVE = Action
RECORDING = (RECORD, SAVE)

# (the action before, the one that comes; None: the end) to what is called, in order.
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
    """What a session does; the machine decides when."""

    def prepare(self) -> None:
        """Get ready to record: a warm-up begins, or recording does without one."""

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> None:
        """Record no more."""

    def ready(self) -> None:
        """Give what was recorded to the user."""


class Machine:
    """The state of one session: the number of the step, and what is done with it.

    `begin` may follow `end`: the steps then count from 0 again.
    """

    def __init__(self, actions: Callable[[int], Any] | None, on: Phases) -> None:
        self.step_number = 0
        self.action = NONE
        self.running = False
        self._actions = actions or every_step
        self._on = on
        self.changing = False  # a transition is under way

    def begin(self) -> None:
        """Begin with step 0. Raises RuntimeError while running, ValueError for a bad schedule."""
        self.refuse_within("begin")
        if self.running:
            raise RuntimeError("the session runs already: end it before it begins again")
        action = action_at(0, self._actions)
        self.running, self.step_number = True, 0
        self._change(action)

    def step(self) -> None:
        """Go on to the next step. Raises RuntimeError before `begin`, ValueError as it does.

        If the schedule raises, or gives nonsense, the machine stays in the step where it was.
        """
        self.refuse_within("step")
        if not self.running:
            raise RuntimeError("no session runs: begin one before the first step")
        action = action_at(self.step_number + 1, self._actions)
        self.step_number += 1
        self._change(action)

    def end(self) -> None:
        """End the session: what is being recorded becomes ready. If none runs, do nothing."""
        self.refuse_within("end")
        if self.running:
            self.running = False
            self._change(None)

    def refuse_within(self, call: str) -> None:
        """Raise RuntimeError within a transition, which is called to its end before another begins."""
        if self.changing:
            raise RuntimeError(
                f"the session is between two steps: do not {call} it from a callback"
            )

    def abandon(self) -> None:
        """End without a call of anything."""
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
    # Of the program that called the session's step: _warn, call_all, _change, step and the session lie between.
    warnings.warn(message, RuntimeWarning, stacklevel=6)
