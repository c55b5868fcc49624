"""The known traps: each a function that says whether it is set here, and how to get out of it.

The invariant: what is said was seen, on this machine or in the self-test; nothing is guessed from versions
but where the sentence says so.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bridge.capture.doctor.machine import Machine
from bridge.capture.doctor.selftest import CALLS, SelfTest

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
    import importers  # noqa: PLC0415 (pandas, only for this question)

    try:
        found = importers.load(report, details=False)
    except importers.ReportError as error:
        version = machine.nsys.version if machine.nsys else "none"
        remedy = f"export it where it was recorded, or take a newer nsys (here: {version})"
        return Finding(NOTE, str(error), remedy)
    said = found.facts[0].product or found.facts[0].schema
    return Finding(FINE, f"{report.name}: readable, recorded by {said or 'an unknown version'}")
