"""Ranges that a program names itself.

The invariant: what is recorded is an op of the category `user_annotation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from bridge.annotate import nvtx_op

F = TypeVar("F", bound=Callable[..., Any])

USER = "user_annotation"


class record_function:  # noqa: N801 - theirs
    """Surround a block, or decorate a function; ``args`` is a text that is kept with the call."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._op = nvtx_op(name, category=USER, args={} if args is None else {"args": args})
        self._entered = 0

    def __enter__(self) -> Self:
        self._entered += 1
        self._op.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._entered:
            raise AssertionError("record_function was left, but not entered")
        self._entered -= 1
        self._op.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Decorate a function, a coroutine function, a generator function."""
        return nvtx_op(self.name, category=USER)(function)
