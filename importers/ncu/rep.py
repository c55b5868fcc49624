"""Kernels of an .ncu-rep, through NVIDIA's own library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from importers.errors import NotAReport
from importers.frames import GRAPH, KERNEL, MISSING
from importers.ncu.blocks import processes
from importers.ncu.kernels import DEFAULT_DOMAIN, DURATION, Kernel, Open, Rule, Value
from importers.ncu.units import base

NEEDED = (  # without all metrics: what the frames are made of
    *DURATION[:2],
    *(f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"),
    *(f"launch__{what}_id" for what in ("device", "context", "stream")),
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
DEVICE = "device__attribute_"
KINDS = ("", "INF", "OPT", "WRN", "ERR")  # of a rule's message, by number, as tables call them
SCOPES = ("", "local", "global")
LINK = re.compile(r"@url:([^:@]*):([^@]*)@")
WITHIN = re.compile(r"@(?:section|sass|source):[^@]*?:?([^:@]*)@")
# What NVIDIA's library raises of a damaged file, and what its wrapper does with names and messages that are none.
DAMAGE = (RuntimeError, ValueError, SystemError, TypeError, LookupError, OverflowError)
LARGEST = 2**53  # integers up to here are exact as floats
MISSING_LIBRARY = (
    "to read .ncu-rep files, NVIDIA's ncu-report is needed: pip install 'nsight-bridge[ncu]';"
    " or give what ncu --import FILE --csv --page raw prints"
)


def kernels(path: Path, *, metrics: bool) -> list[Kernel]:
    """Return the kernels of a report in the order profiled; without ``metrics`` only what frames need."""
    of_process = processes(path)
    library = _library(path)
    try:
        found = [_kernel(library, action, metrics=metrics) for action in _actions(library, path)]
    except DAMAGE as error:
        raise NotAReport(
            f"{path.name}: Nsight Compute's library cannot read it: {error}"
        ) from error
    if len(found) != len(of_process):
        raise NotAReport(
            f"{path.name}: {len(of_process)} kernels, but {len(found)} that can be read;"
            " a newer ncu-report may read them: pip install -U ncu-report"
        )
    for kernel, process in zip(found, of_process, strict=True):
        kernel.process, kernel.program = process.pid, process.program
    return found


def _library(path: Path) -> Any:
    try:
        import ncu_report  # noqa: PLC0415 (17 MB that only these files need)
    except ImportError as error:
        raise NotAReport(f"{path.name}: {MISSING_LIBRARY}") from error
    return ncu_report


def _actions(library: Any, path: Path) -> Iterator[Any]:
    context = library.load_report(str(path))
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for place in range(part.num_actions()):
            yield part.action_by_idx(place)


def _kernel(library: Any, action: Any, *, metrics: bool) -> Kernel:
    names = action.metric_names() if metrics else _needed(action.metric_names())
    pushed, started = _ranges(action)
    found = Kernel(
        name=action.name(library.IAction.NameBase_FUNCTION) or "",  # None in a damaged file
        full_name=action.name(library.IAction.NameBase_DEMANGLED) or "",
        mangled=action.name(library.IAction.NameBase_MANGLED) or "",
        kind=GRAPH if action.workload_type() == library.IAction.WorkloadType_GRAPH else KERNEL,
        pushed=pushed,
        started=started,
        metrics=dict(_values(action, names)),
        rules=list(_rules(action)) if metrics else [],
    )
    for what in ("device", "context", "stream"):
        setattr(found, what, found.whole(f"launch__{what}_id"))
    return found


def _needed(names: Any) -> list[str]:
    return [name for name in names if name in NEEDED or name.startswith(DEVICE)]


def _values(action: Any, names: Any) -> Iterator[tuple[str, Value]]:
    """Read metrics; those without a value are left out."""
    for name in names:
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None and metric.has_value() else None
        if value is None:
            continue
        if isinstance(value, str):
            if value:
                yield name, Value(float("nan"), metric.unit(), value)
            continue
        if not isfinite(value):
            continue
        unit, power = base(metric.unit())
        number = float(value) * 10.0**power if power else float(value)
        yield name, Value(number, unit, "" if abs(value) <= LARGEST or power else _exact(value))


def _exact(value: float) -> str:
    """Return the digits of an integer that a float does not hold."""
    return str(value) if isinstance(value, int) else ""


def _ranges(action: Any) -> tuple[tuple[Open, ...], tuple[Open, ...]]:
    """Return the push/pop and the start/end ranges that were open, domain by domain."""
    state = action.nvtx_state()
    pushed: list[Open] = []
    started: list[Open] = []
    for number in sorted(state.domains()) if state else ():
        domain = state.domain_by_id(number)
        name = domain.name() or DEFAULT_DOMAIN
        for ranges, one, into in (
            (domain.push_pop_ranges(), domain.push_pop_range, pushed),
            (domain.start_end_ranges(), domain.start_end_range, started),
        ):
            into += [_open(name, text, one(place)) for place, text in enumerate(ranges)]
    return tuple(pushed), tuple(started)


def _open(domain: str, text: str, found: Any) -> Open:
    if found is None or not found.has_attributes():
        return Open(domain, text)
    integers = {
        getattr(found, f"PayloadType_PAYLOAD_{k}INT{n}") for k in ("", "U") for n in (32, 64)
    }
    if found.payload_type() not in integers:
        return Open(domain, text)
    payload = int(found.payload_as_uint64())
    return Open(domain, text, payload if payload < 2**63 else MISSING)


def _rules(action: Any) -> Iterator[Rule]:
    """Read what rules say; one may have looked and said nothing."""
    for said in action.rule_results_as_dicts():
        message, gain = said.get("rule_message"), said.get("speedup_estimation", {})
        if message:
            yield Rule(
                said["section_identifier"],
                said["rule_identifier"],
                KINDS[int(message["type"])],
                plain(message["message"]),
                SCOPES[int(gain.get("type", 0))],
                float(gain.get("speedup", MISSING)),
            )


def plain(text: str) -> str:
    """Return what a rule says without its links to other parts of NVIDIA's window."""
    return WITHIN.sub(r"\1", LINK.sub(r"\1 (\2)", text))
