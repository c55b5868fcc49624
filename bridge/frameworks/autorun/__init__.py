"""Switch annotations on in a program whose code stays as it is.

The invariant: a library is annotated when the program has imported it, and none is imported for it; what
cannot be annotated is said in one line, and the program runs on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bridge.annotate import emit
from bridge.frameworks.autorun import import_hooks
from bridge.frameworks.autorun.import_hooks import Options, parsed, written

AUTOSTART, GIVEN = "BRIDGE_AUTOSTART", "BRIDGE_AUTORUN_OPTIONS"
OFF = ("", "0")
OWN = 0  # the level of a session that adds no annotation to those that are there

__all__ = ["Options", "arm", "autostart", "recorded"]


def arm(options: Options | None = None) -> None:
    """Annotate PyTorch, JAX, CuPy and what is to be wrapped as soon as each is imported, or now if it is.

    Child processes inherit it by the environment. A second time, the later options count.
    """
    chosen = options or Options()
    os.environ[AUTOSTART], os.environ[GIVEN] = "1", written(chosen)
    for name, annotate in import_hooks.ALL.items():
        import_hooks.expect(name, annotate, chosen)
    for name, functions in chosen.wraps:
        import_hooks.expect(name, import_hooks.wrapping(name, functions), chosen)


def autostart() -> None:
    """Arm this process if BRIDGE_AUTOSTART in its environment says so, as its parent was armed."""
    if os.environ.get(AUTOSTART, "") in OFF:
        return
    options = Options()
    try:
        options, _ = parsed(os.environ.get(GIVEN, "").split())
    except ValueError as problem:
        import_hooks.say(f"{GIVEN}: {problem}")
    arm(options)


@contextmanager
def recorded(
    path: str | None, session: Callable[..., AbstractContextManager[Any]]
) -> Iterator[None]:
    """Record host times to a file in a block, by a ``session`` of `bridge.profile`, unless a tool listens."""
    emit.current()
    if path is None or not emit.state.idle:
        yield
        return
    with session(path=path, level=OWN):
        yield
