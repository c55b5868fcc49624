"""The known traps: each a function that says whether it is set here, and how to get out of it.

The invariant: what is said was seen, on this machine or in the self-test; nothing is guessed from versions
but where the sentence says so.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bridge.annotate.emitter import version_of
from bridge.capture.tool import CaptureError, answer

# -- What is installed on this machine, as far as profiling goes


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
        """The version as numbers, to compare; () where it is unknown."""
        return tuple(map(int, self.version.split("."))) if self.version else ()


@dataclass(frozen=True)
class Machine:
    """Everything that the traps ask for."""

    python: str
    nsys: Program | None
    ncu: Program | None
    driver: str  # its version, "" without one
    packages: dict[str, str]  # versions of those of PACKAGES that are installed
    paranoid: int | None  # kernel.perf_event_paranoid
    chosen: str  # $BRIDGE_NVTX


def look() -> Machine:
    """Look around."""
    versions = {name: version_of(name) for name in PACKAGES}
    return Machine(
        python=f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}",
        nsys=program("nsys"),
        ncu=program("ncu"),
        driver=_driver(),
        packages={name: version for name, version in versions.items() if version},
        paranoid=_paranoid(),
        chosen=os.environ.get("BRIDGE_NVTX", ""),
    )


def program(name: str) -> Program | None:
    """Find a program and ask for its version."""
    found = shutil.which(name)
    if found is None:
        return None
    said = ""
    with suppress(CaptureError):
        said = answer(found, "--version")
    versions = VERSION.findall(said)
    return Program(Path(found), versions[0] if versions else "")


def _driver() -> str:
    with suppress(OSError):
        found = VERSION.search(DRIVER.read_text(encoding="utf-8", errors="replace"))
        return found[0] if found else ""
    return ""


def _paranoid() -> int | None:
    with suppress(OSError, ValueError):
        return int(PARANOID.read_text(encoding="ascii"))
    return None


# -- Profile a decorated function with the nsys that is installed, and look whether its range was recorded


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
QUIET = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none")  # the least that nsys can do


@dataclass(frozen=True)
class SelfTest:
    """What came of it."""

    backend: str = ""  # who emitted the ranges, and why that one
    recorded: int = 0  # ranges in the report
    unfinished: bool = False  # nsys left a capture that it did not make a report of
    problem: str = ""  # the step that failed, and what it said

    @property
    def passed(self) -> bool:
        """Whether all that was annotated was recorded."""
        return self.recorded == CALLS


def run(nsys: Program) -> SelfTest:
    """Profile, export, count."""
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
        done = _ran([*command, "-c", PROGRAM], Path(folder))
        said = [line for line in done.stdout.splitlines() if line.startswith(SAID)]
        backend = said[0].removeprefix(SAID) if said else ""
        if not report.exists():
            unfinished = any(Path(folder).rglob("*.qdstrm")) or ".qdstrm" in done.stdout
            return SelfTest(backend, 0, unfinished, f"nsys profile made no report: {_last(done)}")
        return _counted(report, backend)


def _counted(report: Path, backend: str) -> SelfTest:
    import importers  # pandas, only once there is something to read
    from importers.errors import NothingRecorded

    try:
        ranges = importers.load(report, details=False).ranges
    except NothingRecorded:
        return SelfTest(backend)
    except importers.ReportError as error:
        return SelfTest(backend, problem=str(error))
    return SelfTest(backend, int((ranges["name"] == NAME).sum()))


def _ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run nsys, its temporary files in the folder as well."""
    own = {"TMPDIR": str(folder), "BRIDGE_SIDECAR": "off", "BRIDGE_AUTOSTART": "0"}
    try:
        return subprocess.run(
            command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True,
            errors="replace", timeout=TIME_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "ailed" in line or "not found" in line]
    return (telling or lines or ["no message"])[-1][:300]


# -- The known traps: each a function that says whether it is set here, and how to get out of it


FINE, NOTE, LOST = "ok", "note", "lost"
SAMPLING = 2  # the highest kernel.perf_event_paranoid under which nsys samples the CPU
INSTALL_NSYS = "install Nsight Systems, or put the folder of its nsys on the PATH"
SILENT = "off"  # the back end when none is heard


class Finding(NamedTuple):
    """One thing that was found: ok, a note, or that annotations are lost; and what to do."""

    kind: str
    what: str
    remedy: str = ""


Trap = Callable[[Machine, SelfTest | None], Finding | None]


def findings(machine: Machine, test: SelfTest | None) -> Iterator[Finding]:
    """Return what the self-test says, then the traps that are set."""
    yield _verdict(machine, test)
    for trap in TRAPS:
        found = trap(machine, test)
        if found is not None:
            yield found


def _verdict(machine: Machine, test: SelfTest | None) -> Finding:
    if machine.nsys is None or test is None:
        return Finding(LOST, "no nsys on the PATH: nothing can record annotations", INSTALL_NSYS)
    if test.passed:
        version = machine.nsys.version
        return Finding(
            FINE, f"{CALLS} annotated calls were recorded by nsys {version}, through {test.backend}"
        )
    if test.problem:
        return Finding(LOST, f"the self-test failed: {test.problem}")
    through = test.backend or "nothing: the program did not run"
    return Finding(
        LOST, f"{test.recorded} of {CALLS} annotated calls were recorded, through {through}"
    )


def switched_off(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Annotations are switched off by the environment."""
    if machine.chosen.lower() != "off":
        return None
    return Finding(LOST, "BRIDGE_NVTX=off: no annotation is emitted", "unset BRIDGE_NVTX")


def nvtx_unheard(_: Machine, test: SelfTest | None) -> Finding | None:
    """The nvtx package from 0.2.12 on takes nsys up to 2024.2 for a tool that does not listen."""
    if test is None or "DummyDomain" not in test.backend:
        return None
    if not test.backend.startswith(SILENT):
        what = "the nvtx package is not heard by this nsys; what a program annotates through it is lost, @nvtx_op is not"
        return Finding(NOTE, what, "pip install 'nvtx<0.2.12', or a newer nsys")
    return Finding(
        LOST,
        "the nvtx package is not heard by this nsys, and no other library was found",
        "pip install nvidia-nvtx, or 'nvtx<0.2.12', or a newer nsys",
    )


def no_importer(machine: Machine, test: SelfTest | None) -> Finding | None:
    """Debian's package lacks a link: nsys captures, and makes no report of it."""
    if machine.nsys is None or test is None or not test.unfinished:
        return None
    wanted = machine.nsys.path.resolve().parent.parent / "host-linux-x64"
    there = next((p for p in IMPORTERS if p.is_dir()), None)
    remedy = (
        f"ln -s {there} {wanted}"
        if there and not wanted.exists()
        else "install Nsight Systems whole"
    )
    return Finding(
        LOST, f"nsys finds no importer in {wanted}: it leaves a .qdstrm and no report", remedy
    )


def no_sampling(machine: Machine, _: SelfTest | None) -> Finding | None:
    """The kernel forbids nsys to sample the CPU."""
    if machine.paranoid is None or machine.paranoid <= SAMPLING:
        return None
    return Finding(
        NOTE,
        f"kernel.perf_event_paranoid is {machine.paranoid}: nsys cannot sample the CPU",
        f"nsys profile --sample=none, or sysctl kernel.perf_event_paranoid={SAMPLING}",
    )


def no_driver(machine: Machine, _: SelfTest | None) -> Finding | None:
    """Without a driver the CUDA profiler cannot be started."""
    if machine.driver:
        return None
    return Finding(
        NOTE,
        "no NVIDIA driver: no kernels, and 'nsys profile -c cudaProfilerApi' would capture nothing",
        "nsys profile -c nvtx -p capture@nsight-bridge",
    )


def forked(machine: Machine, _: SelfTest | None) -> Finding | None:
    """What a forked child annotates is not recorded, until it runs another program."""
    if machine.nsys is None or multiprocessing.get_start_method(allow_none=True) not in (
        None,
        "fork",
    ):
        return None
    if multiprocessing.get_all_start_methods()[0] != "fork":
        return None
    return Finding(
        NOTE,
        "Python forks its workers here: nsys does not trace a forked child, and loses the last ranges of one"
        " that ends without its exit handlers, as those of multiprocessing do",
        "the start method 'spawn', and close() and join() before the program ends;"
        " nsys profile --trace-fork-before-exec=true for the rest",
    )


TRAPS: tuple[Trap, ...] = (switched_off, nvtx_unheard, no_importer, no_sampling, no_driver, forked)
IMPORTERS = (  # where Debian's package has it
    Path("/usr/lib/nsight-systems/host-linux-x64"),
    Path("/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64"),
)


def unreadable(report: Path, machine: Machine) -> Finding:
    """Try a report with the nsys that is installed: one that is older than its recorder cannot read it."""
    import importers  # pandas, only for this question

    try:
        found = importers.load(report, details=False)
    except importers.ReportError as error:
        version = machine.nsys.version if machine.nsys else "none"
        remedy = f"export it where it was recorded, or take a newer nsys (here: {version})"
        return Finding(NOTE, str(error), remedy)
    said = found.facts[0].product or found.facts[0].schema
    return Finding(FINE, f"{report.name}: readable, recorded by {said or 'an unknown version'}")
