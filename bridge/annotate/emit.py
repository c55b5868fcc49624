"""Choose the library that emits NVTX ranges, once, at the first use.

The invariant: `state.idle` is true only when nothing is to be emitted; hot paths check no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from bridge.annotate.emitter import Emitter, Silent
from bridge.annotate.warning import warn

# Set in the profiled process by nsys (the first and the last), by `ncu --nvtx` (the first: seen
# with 2022.3; without --nvtx it listens to no range), and by whoever injects a tool of his own.
SIGNS = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "NSYS_PROFILING_SESSION_ID")
INSTALL = "pip install nvidia-nvtx brings a library that every tool hears"


class Backend(NamedTuple):
    """Which library emits the ranges (`off`, `nvtx` or `interop`), and why that one."""

    name: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{f'{self.name} {self.version}'.strip()}: {self.reason}"


class State:
    """The choice that was made; `emitter` is None until the first use."""

    __slots__ = ("attached", "details", "emitter", "idle", "reason", "writer")

    def __init__(self) -> None:
        self.idle = False
        self.emitter: Emitter | None = None
        self.reason = ""
        self.attached = False  # a tool listens: details go beside its report
        self.writer: Any = None  # of the session that runs: details go into its recording
        self.details: Any = None  # what the session wants of every op (`details.Wanted`)


state = State()
_choosing = Lock()


def backend() -> Backend:
    """Tell which library emits the ranges of this process, and why."""
    emitter = current()
    return Backend(emitter.name, emitter.version, state.reason)


def current() -> Emitter:
    """Return the emitter in use, choosing it at the first call."""
    if state.emitter is None:
        with _choosing:
            if state.emitter is None:
                use(*choose(os.environ))
                tool = any(os.environ.get(sign) for sign in SIGNS)
                state.attached = tool and not state.idle
    return state.emitter  # type: ignore[return-value]  # `use` has set it


def use(emitter: Emitter | None, reason: str = "chosen by the program") -> Emitter | None:
    """Emit through this back end from now on (None: choose again); return the previous one."""
    previous, state.emitter, state.reason = state.emitter, emitter, reason
    state.idle = isinstance(emitter, Silent)
    return previous


def choose(environ: Mapping[str, str]) -> tuple[Emitter, str]:
    """Pick a back end for this environment, and say why."""
    wanted = environ.get("BRIDGE_NVTX", "").lower() or "auto"
    if wanted == "off":
        return Silent(), "BRIDGE_NVTX=off"
    if wanted in CHAIN:
        return _first({wanted: CHAIN[wanted]}, f"BRIDGE_NVTX={wanted}")
    if wanted != "auto":
        _warn(f"BRIDGE_NVTX={wanted} is none of auto, off, nvtx, interop: taken as auto")
    if not any(environ.get(sign) for sign in SIGNS):
        return Silent(), "no tool attached"
    return _first(CHAIN, "a tool is attached")


def _first(chain: Mapping[str, Callable[[], Emitter | str]], reason: str) -> tuple[Emitter, str]:
    """Take the first back end that works; a warning is due when none does."""
    problems: list[str] = []
    for connect in chain.values():
        made = connect()
        if not isinstance(made, str):
            return made, problems[0] if problems else reason
        problems.append(made)
    problem = "; ".join(problems)
    remedy = INSTALL if _interop in chain.values() else "leave BRIDGE_NVTX at auto"
    _warn(f"no NVTX range is recorded ({problem}); {remedy}")
    return Silent(), problem


def _warn(message: str) -> None:
    warn(message)


def _before_fork() -> None:
    """Choose in the parent: NVTX begun in a forked child kills it (nsys 2022.4.2)."""
    if any(os.environ.get(sign) for sign in SIGNS):
        current()


os.register_at_fork(before=_before_fork)


def _nvtx() -> Emitter | str:
    from bridge.annotate import pypi  # nvtx costs 70 ms, paid only under a tool

    return pypi.connect()


def _interop() -> Emitter | str:
    from bridge.annotate import interop  # ctypes: as above

    return interop.connect()


CHAIN: dict[str, Callable[[], Emitter | str]] = {"nvtx": _nvtx, "interop": _interop}


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 (no pathlib)
    except OSError:  # deleted
        return os.sep


# Where nsys puts its report, wherever the program goes later.
FOLDER_AT_START = _folder()
