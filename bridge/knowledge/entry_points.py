"""What other distributions add to bridge by entry points: loaded for lists, and for names that are not built in.

Rooms above `analyze` load it and hand the objects down. What is wrong with an entry point is a line on stderr.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

RULES, TABLES, READERS = "nsight_bridge.rules", "nsight_bridge.tables", "nsight_bridge.readers"
LOG = logging.getLogger("bridge.knowledge")


class AdditionError(ValueError):
    """What another distribution added has failed; the message is one line for the user that names it."""


@dataclass(frozen=True)
class Addition:
    """What a distribution adds: a name for people, and the value. As a context it makes a warning of an error."""

    distribution: str
    name: str
    value: object = None

    def warn(self, defect: str) -> None:
        """Say in one line what is wrong with it."""
        line = " ".join(defect.split())
        LOG.warning("warning: %s of %s: %s", self.name, self.distribution, line)

    def failure(self, error: BaseException) -> str:
        """Return in one line what it is, and how it failed."""
        line = " ".join(str(error).split())
        return f"{self.name} of {self.distribution}: {type(error).__name__}: {line}"

    def call(
        self, function: Callable[..., Any], *args: Any, own: tuple[type[Exception], ...] = ()
    ) -> Any:
        """Return what a function of it returns; raises `AdditionError` for any error but its ``own`` and of memory."""
        try:
            return function(*args)
        except (Exception, SystemExit) as error:
            if isinstance(error, (MemoryError, *own)):
                raise
            raise AdditionError(self.failure(error)) from error

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        is_its_fault = isinstance(error, (Exception, SystemExit))
        if is_its_fault:
            self.warn(f"{type(error).__name__}: {error}")
        return is_its_fault


def load_entry_points(group: str) -> list[Addition]:
    """Return what the entry points of a group stand for, without those that cannot be loaded."""
    from importlib.metadata import entry_points  # takes time that few commands need

    result = []
    for point in entry_points(group=group):
        distribution = getattr(point.dist, "name", None) or "?"  # of a broken install
        addition = Addition(distribution, f"entry point {point.name}")
        with addition:
            result.append(replace(addition, value=point.load()))
    return sorted(result, key=lambda one: (one.distribution, one.name))
