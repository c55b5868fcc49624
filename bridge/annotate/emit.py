"""Choice of the library that emits NVTX ranges, made once, at the first use.

`state.idle` is true only if nothing is to be emitted. Hot paths check nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, NamedTuple

from bridge.annotate.emitter import Emitter, NullEmitter, warn
from bridge.annotate.guard import Guard

# Set in the profiled process by nsys (the first and the last), by `ncu --nvtx` (the first, seen
# with 2022.3; without --nvtx it records no ranges), and by any other tool that is injected.
NSYS = "NSYS_PROFILING_SESSION_ID"
SIGNS = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH", NSYS)
SOURCE_VARIABLE = "BRIDGE_SOURCE"  # records the place of every op, as with nvtx_op(source=True)
INSTALL = "`pip install nvidia-nvtx` installs a library that every tool supports"


class Backend(NamedTuple):
    """The library that emits the ranges (`off`, `nvtx` or `interop`), and why it was chosen."""

    name: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{f'{self.name} {self.version}'.strip()}: {self.reason}"


class State:
    """The chosen back end; `emitter` is None until the first use."""

    __slots__ = ("attached", "details", "emitter", "idle", "reason", "sources", "writer")

    def __init__(self) -> None:
        self.idle = False
        self.emitter: Emitter | None = None
        self.reason = ""
        self.attached = (
            False  # a tool is attached: details are written to the sidecar of its report
        )
        self.writer: Any = None  # writer of the running session, whose recording gets details
        self.details: Any = None  # the `DetailOptions` of the running session
        self.sources = os.environ.get(SOURCE_VARIABLE, "").lower() in {"1", "on", "true"}


state = State()
# Called when a tool is found attached: here nothing is known of what is recorded beside its report.
when_attached: list[Callable[[], None]] = []
_choosing = RLock()  # a program may have an nvtx.py of its own, which annotates at its import


def backend() -> Backend:
    """Return which library emits the ranges of this process, and why."""
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
                for call in when_attached if state.attached else ():
                    call()
    return state.emitter  # type: ignore[return-value]  # `use` has set it


def use(emitter: Emitter | None, reason: str = "chosen by the program") -> Emitter | None:
    """Use this back end from now on (None: choose again); return the previous one."""
    previous, state.emitter, state.reason = state.emitter, emitter, reason
    state.idle = isinstance(emitter, NullEmitter)
    emission.broken = False
    return previous


def _end_ranges() -> None:
    use(NullEmitter(), "the back end failed")
    emission.broken = True


# Guards all that emits: after an error of a back end nothing is emitted until another one is in use.
emission = Guard("ranges", _end_ranges)


def choose(environ: Mapping[str, str]) -> tuple[Emitter, str]:
    """Return the back end for an environment, and the reason for the choice."""
    name = environ.get("BRIDGE_NVTX", "").lower() or "auto"
    if name == "off":
        return NullEmitter(), "BRIDGE_NVTX=off"
    if name in CHAIN:
        return _connect({name: CHAIN[name]}, f"BRIDGE_NVTX={name}")
    if name != "auto":
        warn(f"BRIDGE_NVTX={name} is not one of auto, off, nvtx, interop; auto is used", 1)
    if not any(environ.get(sign) for sign in SIGNS):
        return NullEmitter(), "no tool attached"
    if environ.get(NSYS) and _is_forked():
        problem = "nsys ends a process that uses NVTX for the first time after a fork"
        warn(f"no NVTX range is recorded ({problem}); import bridge before the fork", 1)
        return NullEmitter(), problem
    return _connect(CHAIN, "a tool is attached")


def _is_forked() -> bool:
    """Return whether this process goes on with the program of its parent: it was forked and has executed none."""
    try:
        # Where the system put the program into memory, by chance, for each that is executed.
        return _auxiliary_vector("self") == _auxiliary_vector(str(os.getppid()))
    except OSError:
        return False


def _auxiliary_vector(process: str) -> bytes:
    from pathlib import Path  # slow to import, and needed under nsys alone

    return Path("/proc", process, "auxv").read_bytes()


def _connect(chain: Mapping[str, Callable[[], Emitter | str]], reason: str) -> tuple[Emitter, str]:
    """Return the first back end that works; warns if none does."""
    problems: list[str] = []
    for connect in chain.values():
        emitter = connect()
        if not isinstance(emitter, str):
            return emitter, problems[0] if problems else reason
        problems.append(emitter)
    problem = "; ".join(problems)
    remedy = INSTALL if _interop in chain.values() else "leave BRIDGE_NVTX at auto"
    warn(f"no NVTX range is recorded ({problem}); {remedy}", 1)
    return NullEmitter(), problem


def _before_fork() -> None:
    """Choose the back end before a fork.

    Initializing NVTX in a forked child kills it (nsys 2022.4.2).
    """
    if any(os.environ.get(sign) for sign in SIGNS):
        current()


os.register_at_fork(before=_before_fork)


def _nvtx() -> Emitter | str:
    from bridge.annotate import backends  # loading nvtx takes 70 ms, needed only with a tool

    return backends.connect_nvtx()


def _interop() -> Emitter | str:
    from bridge.annotate import backends  # as above

    return backends.connect_interop()


CHAIN: dict[str, Callable[[], Emitter | str]] = {"nvtx": _nvtx, "interop": _interop}


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 (no pathlib)
    except OSError:  # deleted
        return os.sep


# The folder in which nsys writes its report, even if the program changes folders.
FOLDER_AT_START = _folder()
