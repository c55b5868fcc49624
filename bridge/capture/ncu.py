"""The options of `ncu`: which kernels, replayed how, and what is measured of them.

The invariant: names are taken literally; what has a meaning in ncu's filters is escaped. A filter says
whether a range is push/pop (the slash after its name) or start/end (none): an op is asked for as both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bridge.capture.request import Request, Wish, escaped
from bridge.capture.session.capture import CUDA, DOMAIN, NAME
from bridge.capture.tool import MisuseError

SUFFIX = ".ncu-rep"
REPLAYS = ("kernel", "application", "range")
NSYS_ONLY = ("preset", "kill", "memory")

MEANING = re.compile(r"[\\@,\[\]/*+$]")


def wishes(request: Request, report: Path) -> Iterator[Wish]:
    """Yield the options for a report to be written; raises MisuseError for what goes with nsys alone."""
    if given := request.given(*NSYS_ONLY):
        raise MisuseError(f"{given[0]} goes with --tool nsys")
    yield Wish("--target-processes", "all", "child processes are as the version has them")
    yield from _filters(request)
    yield from _measured(request)
    if request.force:
        yield Wish("--force-overwrite", asked="--force")
    yield Wish("--export", escaped(report), asked="-o")


def _filters(request: Request) -> Iterator[Wish]:
    included = [one for op in request.ops for one in filters(op)]
    if request.capture == CUDA:
        yield Wish("--profile-from-start", "off", asked="--capture")
    elif request.capture or request.schedule:
        if included:
            raise MisuseError("with --op, ncu captures steps by --capture cudaProfilerApi only")
        included = [f"{DOMAIN}@{NAME}"]
    if included:
        yield Wish("--nvtx", asked="--op")
    yield from (Wish("--nvtx-include", one, asked="--op") for one in included)


def _measured(request: Request) -> Iterator[Wish]:
    wanted = {
        "--replay-mode": ("--replay", request.replay),
        "--set": ("--set", request.section_set),
        "--metrics": ("--metrics", request.metrics),
        "--graph-profiling": ("--graphs", request.graphs),
        "--clock-control": ("--no-clock-control", "none" if request.no_clock_control else None),
    }
    for option, (asked, value) in wanted.items():
        if value:
            yield Wish(option, value, asked=asked)
    if request.backtrace:
        yield Wish("--call-stack", asked="--backtrace")


def filters(op: str) -> list[str]:
    """Return ncu's filters for the ranges `NAME` or `NAME@DOMAIN`, of either kind.

    Raises MisuseError for a range without a name, which ncu does not know.
    """
    name, at, domain = op.rpartition("@") if "@" in op else (op, "", "")
    if not name or (at and not domain):
        raise MisuseError(f"--op {op}: NAME or NAME@DOMAIN")
    place = f"{_literal(domain)}@" if domain else ""
    return [f"{place}{_literal(name)}/", f"{place}{_literal(name)}"]


def _literal(name: str) -> str:
    return MEANING.sub(lambda found: f"\\{found[0]}", name)


def missed(request: Request) -> str:
    """Return why nothing was captured, "" if nothing was chosen."""
    if request.ops:
        return f"no kernel ran in {', '.join(request.ops)}"
    if request.capture or request.schedule:
        return "no kernel ran in the active steps of a bridge.profile()"
    return ""
