"""The judge of a mutant: it is opened in a child process, with limits of time and memory, and must behave.

A mutant may be read, and then its accounting adds up; or refused, in one line for the user. Nothing else: no other
exception, no signal, no hang, no memory beyond the limit, nothing changed or written beside it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

LIMIT_S = 30
GROWTH = 1 << 30  # bytes of memory that a mutant may ask for, used or not
LONGEST_LINE = 2_001
READ, REFUSED = "read", "refused"
HOME = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant: `READ`, `REFUSED`, or what is wrong; ``said`` is the message or the traceback."""

    what: str
    said: str = ""
    peak_mib: int = 0

    @property
    def wrong(self) -> bool:
        """Whether it is a bug."""
        return self.what not in {READ, REFUSED}


def judged(path: Path, opened: Callable[[Path], None], *, growth: int = GROWTH) -> Verdict:
    """Open a mutant, alone in its folder, in a child process; ``opened`` raises what is not allowed as it comes."""
    before = _listed(path)
    pa.allocate_buffer(64)  # Arrow asks for a GiB of addresses at once: not in the child
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        _child(path, opened, into, growth)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Verdict("hang" if number in {signal.SIGALRM, signal.SIGXCPU} else f"signal {number}")
    if _listed(path) != before:
        return Verdict("changed or written beside")
    return Verdict(**json.loads(said)) if said else Verdict("died without a word")


def _listed(path: Path) -> list[tuple[str, int, int]]:
    stats = ((one.name, one.stat()) for one in sorted(path.parent.iterdir()))
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _child(path: Path, opened: Callable[[Path], None], into: int, growth: int) -> None:
    """Open it under limits, say what came of it, and end without any clean-up of the parent's."""
    try:
        limit = _data() + growth
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        warnings.simplefilter("ignore")  # as users have it; pytest makes errors of them
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        found = outcome(path, opened)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        os.write(into, json.dumps({**found, "peak_mib": peak}).encode())
    finally:
        os._exit(0)


def _data() -> int:
    """Return the bytes of memory that this process may write to, used yet or not."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmData:")[2].split()[0]) << 10


def outcome(path: Path, opened: Callable[[Path], None]) -> dict[str, Any]:
    try:
        opened(path)
    except BaseException as error:
        what = _refusal(error)
        said = str(error) if what == REFUSED else "".join(traceback.format_exception(error))
        return {"what": what, "said": said[-8_000:].encode(errors="replace").decode()}
    return {"what": READ}


def _refusal(error: BaseException) -> str:
    """Tell whether an exception is a line for the user, raised as such by a line of ours."""
    from bridge.importers.errors import ReportError

    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = frame.filename.startswith(HOME) and (frame.line or "").lstrip().startswith("raise ")
    if not (isinstance(error, ReportError) or (type(error) is ValueError and ours)):
        return type(error).__name__
    line = str(error)
    if not line.isprintable() or len(line) > LONGEST_LINE:
        return "a message that is no line"
    return REFUSED
