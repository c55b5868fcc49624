"""A second run of a program under ncu, after one under nsys: what it may take, and what came of it.

An estimate is what it says: the passes are those seen in reports, and what a pass takes beside its kernel is assumed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.annotate.recording.recorder import FOLDER
from bridge.capture import ncu
from bridge.capture.plan import SIGNAL_STATUS, Limit, Plan
from bridge.capture.tool import CaptureError, LaunchFilter, MisuseError, Request

# -- The time that a second run may take


DEFAULT_BUDGET = "10m"
TIME = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3_600}
OVERRUN = 2  # times the budget, after which ncu is ended
NS = 1e9
# Passes of a launch: of ncu's default set 8, of the set full 40 to 49, in reports of 2024 and 2025.
PASSES, ALL_PASSES = 8, 49
FEW = (None, "default", "basic")  # sets with few metrics
PASS_S = 0.05  # assumed: of each pass, for ncu itself
START_S = 10.0  # assumed: for ncu to start and to write its report
RESTORED_PER_S = 10e9  # assumed: bytes that are saved or restored


def parse_budget(text: str) -> float:
    """Return a time as 90s, 5m or 1h in seconds; raises ValueError for other text."""
    match = TIME.fullmatch(text.strip())
    seconds = float(match[1]) * SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise ValueError(f"{text!r} is no time above 0: write 90s, 5m or 1h")
    return seconds


def passes_of(section_set: str | None) -> int:
    """Return the passes of a launch that are assumed for a set of sections."""
    return PASSES if section_set in FEW else ALL_PASSES


@dataclass(frozen=True)
class Cost:
    """What a run under ncu is estimated to take, in seconds.

    ``run_s`` is what the run under nsys took. Each of the ``passes`` of a launch takes the time of its kernel, that of
    ncu, and that of restoring ``memory`` bytes, the most that the program used; 0 if that is not known.
    """

    run_s: float
    passes: int
    memory: int = 0

    @property
    def bare_s(self) -> float:
        """The time of a run in which nothing is measured."""
        return self.run_s + START_S

    def measuring_s(self, launches: int, ns: int) -> float:
        """Return the time of measuring so many launches, of which all together take ``ns``."""
        each = PASS_S + self.memory / RESTORED_PER_S
        return self.passes * (launches * each + ns / NS)

    def total_s(self, launches: int, ns: int) -> float:
        """Return the time of a run in which so many launches are measured."""
        return self.bare_s + self.measuring_s(launches, ns)


# -- The requests of both runs


UNKNOWN = LaunchFilter("::regex:^(KERNELS)$:^(NUMBERS)$", "mangled")  # before the first run


def split(request: Request) -> tuple[Request, Request]:
    """Return what is asked of nsys, and of ncu; raises MisuseError for what does not go with two runs."""
    for option in request.given_options("schedule", "capture", "kill"):
        text = f"{option}: --deep counts the launches of the whole program, which the first run must record"
        raise MisuseError(text)
    if request.replay not in {None, "kernel"}:
        raise MisuseError(f"--replay {request.replay}: --deep measures single kernels")
    if request.graphs == "graph":
        raise MisuseError("--graphs graph: --deep chooses among the kernels of CUDA graphs")
    if request.witness or request.live:
        raise MisuseError(f"{request.given_options('witness', 'live')[0]} goes with --tool cupti")
    for name in request.ops:
        ncu.filters(name)  # refuses what is no name
    first = replace(
        request,
        ops=(),
        replay=None,
        section_set=None,
        metrics=None,
        no_clock_control=False,
    )
    second = Request(
        section_set=request.section_set,
        metrics=request.metrics,
        no_clock_control=request.no_clock_control,
        force=request.force,
        launches=UNKNOWN,
    )
    return first, second


def without_recordings(plan: Plan) -> Plan:
    """Return a plan whose program writes no recordings: those beside the report are of the first run."""
    return replace(plan, added={**plan.added, FOLDER: "off"})


# -- The second run


PROFILED = re.compile(r"^==PROF== Profiling ", re.MULTILINE)
NO_PERMISSION, NONE_PROFILED = "ERR_NVGPUCTRPERM", "No kernels were profiled"
FAILURE = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
MOST_LOG = 1 << 20  # bytes at the end of what ncu says that are read
REMEDIES = {
    NO_PERMISSION: "ncu may not read the counters of the GPU (ERR_NVGPUCTRPERM): run this as root, or let every user"
    " read them, https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    NONE_PROFILED: "ncu met none of the chosen launches: make the program do the same in each run, or choose by op:"
    " bridge run --tool ncu --op NAME",
}


@dataclass(frozen=True)
class Outcome:
    """What came of a run under ncu: its report, None without one, and in a line why there is none, or not all.

    ``took_s`` is how long it ran, ``status`` 128 + n if a signal n came meanwhile.
    """

    report: Path | None
    took_s: float
    reason: str = ""
    status: int = 0


@contextmanager
def workplace(report: Path) -> Iterator[Path]:
    """Give a folder beside a report in which ncu writes its own, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix=".bridge-deep-", dir=report.parent) as folder:
        yield Path(folder)


def measure(plan: Plan, report: Path, log: Path, budget_s: float) -> Outcome:
    """Run a program under ncu, which writes its report in a `workplace`, and move a whole one to its place.

    It is ended after `OVERRUN` times the budget.
    """
    heard: list[int] = []
    limit, begun = Limit(OVERRUN * budget_s, plan.program), time.monotonic()
    try:
        ended = plan.run(heard, limit)
        failure = ended.failure()
    except CaptureError as error:
        failure = str(error)
    took_s = time.monotonic() - begun
    cause = _cause(failure, log, took_s if limit.is_over else 0.0)
    if heard:
        cause = f"{signal.Signals(heard[0]).name} ended the run under ncu"
    damage = _damage(plan.report) if plan.report.exists() else ""
    whole = plan.report.exists() and not damage
    if whole:
        shutil.move(plan.report, report)
    return Outcome(
        report=report if whole else None,
        took_s=took_s,
        reason=cause or damage or ("" if whole else "ncu wrote no report"),
        status=SIGNAL_STATUS + heard[0] if heard else 0,
    )


def _cause(failure: str, log: Path, overrun_s: float) -> str:
    """Return in a line why a run failed, from what ncu says in its log; "" if it did not."""
    said = _end_of(log)
    known = next((text for word, text in REMEDIES.items() if word in said), "")
    if overrun_s:
        done = len(PROFILED.findall(said))
        return f"ncu was ended after {overrun_s:.0f} s, {OVERRUN} times the budget, with {done} launches begun"
    if known or not failure:
        return known
    errors = FAILURE.findall(said)
    return f"ncu: {errors[0].strip()}" if errors else failure


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_LOG))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _damage(report: Path) -> str:
    """Return in a line why a report of ncu is not whole, "" if it is."""
    from bridge.importers.errors import ReportError
    from bridge.importers.ncu.rep import processes

    try:
        return "" if processes(report) else REMEDIES[NONE_PROFILED]
    except ReportError as error:
        return str(error)
