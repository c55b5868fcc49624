"""Diagnosis: what is installed, whether annotations are recorded, and which known problems exist.

Findings are observed on this machine or in the self-test. They are derived from version numbers
only where the text says so.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bridge.annotate.emitter import version_of
from bridge.capture.cupti.self_test import CuptiTest
from bridge.capture.tool import CaptureError, find_program, tool_output

LOG = logging.getLogger("bridge.capture")

# -- What is installed on this machine


PACKAGES = (
    "nvtx", "nvidia-nvtx", "nvidia-nvtx-cu12", "nvidia-nvtx-cu13", "cuda-bindings", "torch", "jax",
    "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
DRIVER = Path("/proc/driver/nvidia/version")
VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Program:
    """A program on the PATH."""

    path: Path
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, for comparisons; () if unknown."""
        return tuple(map(int, self.version.split("."))) if self.version else ()


@dataclass(frozen=True)
class Machine:
    """Facts about the machine that the checks need."""

    python: str
    nsys: Program | None
    ncu: Program | None
    driver: str  # its version, "" without one
    packages: dict[str, str]  # versions of those of PACKAGES that are installed
    paranoid: int | None  # kernel.perf_event_paranoid
    backend: str  # $BRIDGE_NVTX
    cupti: CuptiTest | None = None  # the capture by CUPTI, tried


def inspect_machine() -> Machine:
    """Return what is installed on this machine."""
    versions = {name: version_of(name) for name in PACKAGES}
    return Machine(
        python=f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}",
        nsys=program("nsys"),
        ncu=program("ncu"),
        driver=_driver(),
        packages={name: version for name, version in versions.items() if version},
        paranoid=_paranoid(),
        backend=os.environ.get("BRIDGE_NVTX", ""),
    )


def program(name: str) -> Program | None:
    """Return the path and version of a program on the PATH, or None."""
    result = find_program(name)
    if result is None:
        return None
    text = ""
    with suppress(CaptureError):
        text = tool_output(result, "--version")
    versions = VERSION.findall(text)
    return Program(Path(result), versions[0] if versions else "")


def _driver() -> str:
    with suppress(OSError):
        match = VERSION.search(DRIVER.read_text(encoding="utf-8", errors="replace"))
        return match[0] if match else ""
    return ""


def _paranoid() -> int | None:
    with suppress(OSError, ValueError):
        return int(PARANOID.read_text(encoding="ascii"))
    return None


# -- Self-test: profile a decorated function with the installed nsys, and count its ranges


CALLS = 3
NAME = "bridge doctor"
SAID = "backend="
TIME_LIMIT_S = 120
PROGRAM = f"""
import bridge
op = bridge.nvtx_op({NAME!r})(lambda: None)
for _ in range({CALLS}):
    op()
print({SAID!r} + str(bridge.backend()))
"""
QUIET = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none")  # minimal tracing


@dataclass(frozen=True)
class SelfTest:
    """The result of the self-test."""

    backend: str = ""  # the back end that emitted the ranges, and why
    recorded: int = 0  # ranges in the report
    unfinished: bool = False  # nsys left a raw capture without a report
    problem: str = ""  # the step that failed, and its message

    @property
    def passed(self) -> bool:
        """Whether all annotated calls were recorded."""
        return self.recorded == CALLS


def run_self_test(nsys: Program) -> SelfTest:
    """Profile an annotated program, load the report, and count its ranges."""
    with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as folder:
        report = Path(folder, "report.nsys-rep")
        command = [
            str(nsys.path),
            "profile",
            *QUIET,
            "-o",
            str(report.with_suffix("")),
            sys.executable,
        ]
        done = _run_nsys([*command, "-c", PROGRAM], Path(folder))
        lines = [line for line in done.stdout.splitlines() if line.startswith(SAID)]
        backend = lines[0].removeprefix(SAID) if lines else ""
        if not report.exists():
            unfinished = any(Path(folder).rglob("*.qdstrm")) or ".qdstrm" in done.stdout
            return SelfTest(
                backend, 0, unfinished, f"nsys profile made no report: {_last_message(done)}"
            )
        return _count_ranges(report, backend)


def _count_ranges(report: Path, backend: str) -> SelfTest:
    from bridge import importers  # loads pandas, so only when there is a report
    from bridge.importers.errors import NothingRecorded

    try:
        ranges = importers.load(report, details=False).ranges
    except NothingRecorded:
        return SelfTest(backend)
    except importers.ReportError as error:
        LOG.debug("the report of the self-test cannot be read", exc_info=True)
        return SelfTest(backend, problem=str(error))
    return SelfTest(backend, int(ranges.name.among(NAME).sum()))


def _run_nsys(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run nsys with its temporary files in ``folder``."""
    variables = {"TMPDIR": str(folder), "BRIDGE_SIDECAR": "off", "BRIDGE_AUTOSTART": "0"}
    LOG.debug("running %s", command)
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_message(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "ailed" in line or "not found" in line]
    return (errors or lines or ["no message"])[-1][:300]


# -- Checks for known problems: each returns a finding with a remedy, or None


FINE, NOTE, LOST = "ok", "note", "lost"
SAMPLING = 2  # the highest kernel.perf_event_paranoid with which nsys samples the CPU
INSTALL_NSYS = "install Nsight Systems, or put the folder of its nsys on the PATH"
SILENT = "off"  # the name of the back end that emits nothing


class Finding(NamedTuple):
    """A finding: "ok", "note" or "lost" (annotations are lost), what was found, and a remedy."""

    kind: str
    what: str
    remedy: str = ""


Check = Callable[[Machine, SelfTest | None], Finding | None]


def findings(machine: Machine, test: SelfTest | None) -> Iterator[Finding]:
    """Yield the verdict of the self-test, then the findings of the checks."""
    yield _verdict(machine, test)
    for check in CHECKS:
        finding = check(machine, test)
        if finding is not None:
            yield finding


def _verdict(machine: Machine, test: SelfTest | None) -> Finding:
    if machine.nsys is None or test is None:
        return Finding(LOST, "no nsys on the PATH: nothing can record annotations", INSTALL_NSYS)
    if test.passed:
        version = machine.nsys.version
        return Finding(
            FINE, f"nsys {version} recorded all {CALLS} annotated calls, through {test.backend}"
        )
    if test.problem:
        return Finding(LOST, f"the self-test failed: {test.problem}")
    through = test.backend or "nothing: the program did not run"
    return Finding(
        LOST, f"nsys recorded {test.recorded} of {CALLS} annotated calls, through {through}"
    )


def switched_off(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Check whether the environment disables annotations."""
    if machine.backend.lower() != "off":
        return None
    return Finding(LOST, "BRIDGE_NVTX=off: no annotation is emitted", "unset BRIDGE_NVTX")


def nvtx_unheard(_: Machine, test: SelfTest | None) -> Finding | None:
    """Check the nvtx package: from 0.2.12 on it does not recognize nsys up to 2024.2 as a tool."""
    if test is None or "DummyDomain" not in test.backend:
        return None
    if not test.backend.startswith(SILENT):
        what = (
            "this nsys does not record ranges of the nvtx package;"
            " it records those of @nvtx_op, which use another library"
        )
        return Finding(NOTE, what, "pip install 'nvtx<0.2.12', or install a newer nsys")
    return Finding(
        LOST,
        "this nsys does not record the nvtx package, and no other library was found",
        "pip install nvidia-nvtx, or pip install 'nvtx<0.2.12', or install a newer nsys",
    )


def no_importer(machine: Machine, test: SelfTest | None) -> Finding | None:
    """Check Debian's package, which lacks a link: nsys captures, but writes no report."""
    if machine.nsys is None or test is None or not test.unfinished:
        return None
    path = machine.nsys.path.resolve().parent.parent / "host-linux-x64"
    importer = next((p for p in IMPORTERS if p.is_dir()), None)
    remedy = (
        f"ln -s {importer} {path}"
        if importer and not path.exists()
        else "install all of Nsight Systems"
    )
    return Finding(
        LOST, f"nsys finds no importer in {path}: it leaves a .qdstrm and no report", remedy
    )


def no_sampling(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Check whether the kernel forbids nsys to sample the CPU."""
    if machine.paranoid is None or machine.paranoid <= SAMPLING:
        return None
    return Finding(
        NOTE,
        f"kernel.perf_event_paranoid is {machine.paranoid}: nsys cannot sample the CPU",
        f"use nsys profile --sample=none, or set sysctl kernel.perf_event_paranoid={SAMPLING}",
    )


def no_driver(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Check for a driver, without which the CUDA profiler cannot be started."""
    if machine.driver:
        return None
    return Finding(
        NOTE,
        "no NVIDIA driver: reports have no kernels, and nsys profile -c cudaProfilerApi captures nothing",
        "to capture a part of a program: nsys profile -c nvtx -p capture@nsight-bridge",
    )


def forked(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Check whether Python forks workers.

    Ranges of a forked child are not recorded until it runs another program.
    """
    if machine.nsys is None or multiprocessing.get_start_method(allow_none=True) not in (
        None,
        "fork",
    ):
        return None
    if multiprocessing.get_all_start_methods()[0] != "fork":
        return None
    return Finding(
        NOTE,
        "multiprocessing forks its workers: nsys does not trace a forked process by default, and"
        " loses its last ranges, because workers of multiprocessing end without exit handlers",
        "use the start method 'spawn', and call close() and join() before the program ends;"
        " for other forked processes: nsys profile --trace-fork-before-exec=true",
    )


def cupti(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Check the capture by CUPTI in the process, which needs neither nsys nor root."""
    test = machine.cupti
    if test is None:
        return None
    if not test.path:
        return Finding(NOTE, f"bridge run --tool cupti cannot record: {test.problem}")
    place = f"libcupti {test.version} ({test.path})"
    if test.is_attributed:
        return Finding(FINE, f"{place} recorded a kernel inside an annotated call")
    if test.has_gpu:
        return Finding(NOTE, f"{place} cannot record: {test.problem}", "use bridge run --tool nsys")
    return Finding(NOTE, f"{place} was found; without a GPU it records nothing")


CHECKS: tuple[Check, ...] = (
    cupti,
    switched_off,
    nvtx_unheard,
    no_importer,
    no_sampling,
    no_driver,
    forked,
)
IMPORTERS = (  # in Debian's package
    Path("/usr/lib/nsight-systems/host-linux-x64"),
    Path("/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64"),
)
