"""Kernels of an .ncu-rep, through NVIDIA's own library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from importers.errors import NotAReport
from importers.frames import GRAPH, KERNEL, MISSING
from importers.ncu.metrics import DEFAULT_DOMAIN, DURATION, Kernel, Open, Rule, Value

# -- Values of Nsight Compute in base units, exactly: it prints ``1.60 usecond`` or ``5.12 cycle/nsecond`` as fits


PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
SECONDS = {"second": 0, "s": 0, "sec": 0, "msecond": -3, "ms": -3, "usecond": -6, "us": -6}
SECONDS |= {"nsecond": -9, "ns": -9}
LONGER = {"minute": 60, "hour": 3_600}  # seconds
PREFIXED = re.compile(r"([KMGTP]?)([a-z]{2,}|B)")
NANO = 9
LARGEST_POWER = 400  # of ten: what is beyond is damage, and no float in any unit
DECIMAL_COMMA = re.compile(r"[-+]?(?:\d{1,3}(\.\d{3})*,\d+|\d+,\d+)")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
SPACES = str.maketrans("", "", " \u00a0\u202f'’_")


@lru_cache(maxsize=4096)
def base(unit: str) -> tuple[str, int]:
    """Return the base unit of a unit, and the power of ten that values are multiplied by."""
    above, *below = unit.split("/")
    if not below and above in SECONDS:
        return "ns", SECONDS[above] + NANO
    found = PREFIXED.fullmatch(above)
    power, word = (PREFIXES[found[1]], found[2]) if found else (0, above)
    divided = []
    for one in below:
        seconds = SECONDS.get(one)
        power -= seconds or 0
        divided.append("s" if seconds is not None else one)
    if (word, divided) == ("cycle", ["s"]):
        return "hz", power
    return "/".join([word, *divided]), power


def scaled(value: Decimal, unit: str) -> tuple[Decimal, str]:
    """Return a value in its base unit."""
    if unit in LONGER:
        return scaled(value * LONGER[unit], "second")
    word, power = base(unit)
    return value.scaleb(power), word


def decimal_comma(cells: Iterable[str]) -> bool:
    """Tell whether metrics are written ``1.234,5``: some number of them can be read in no other way."""
    return any(DECIMAL_COMMA.fullmatch(cell) and not THOUSANDS.fullmatch(cell) for cell in cells)


def number(cell: str, *, comma: bool) -> Decimal | None:
    """Return the number in a cell, its thousands set apart or not; None for what is none."""
    text = cell.strip().translate(SPACES)
    text = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    if not text or text[0] not in "-+.0123456789":
        return None
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() and abs(found.adjusted()) <= LARGEST_POWER else None


# -- The outside of an .ncu-rep: blocks, each with the process that it is of. A file cut off shows here


MAGIC = b"NVR\0"
LENGTH = 4
RESULTS, PAYLOAD, PROCESS = 2, 5, 6  # fields of a block's header
PID, HOST, PROGRAM = 1, 2, 3  # fields of a process
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MORE, BITS = 0x80, 7


@dataclass(frozen=True)
class Process:
    """Which process a kernel ran in."""

    pid: int
    program: str


def is_rep(path: Path) -> bool:
    """Tell whether a file is a report of Nsight Compute, by its first bytes or, if damaged, its name."""
    with path.open("rb") as file:
        return file.read(LENGTH) == MAGIC or path.suffix == ".ncu-rep"


def processes(path: Path) -> list[Process]:
    """Return the process of each result, in order; raises NotAReport for what is no whole report."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise NotAReport(f"{path.name}: not a report of Nsight Compute; was it copied whole?")
    try:
        return list(_blocks(data))
    except (IndexError, ValueError) as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged after {len(data)} bytes; copy or profile it again"
        ) from error


def _blocks(data: bytes) -> Iterator[Process]:
    _, at = _header(data, LENGTH)
    while at < len(data):
        header, at = _header(data, at)
        at += int(header.get(PAYLOAD, 0))
        if at > len(data):
            raise ValueError(at)
        process = dict(_fields(bytes(header.get(PROCESS, b""))))
        program = bytes(process.get(PROGRAM, b"")).decode(errors="replace")
        for _ in range(int(header.get(RESULTS, 0))):
            yield Process(int(process.get(PID, 0)), program)


def _header(data: bytes, at: int) -> tuple[dict[int, int | bytes], int]:
    """Return the fields of the message at a place, and the place after it."""
    size = int.from_bytes(data[at : at + LENGTH], "little")
    start = at + LENGTH
    if start + size > len(data):
        raise ValueError(at)
    return dict(_fields(data[start : start + size])), start + size


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return numbers and values of the fields of a protocol buffer."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in {FIXED32, FIXED64}:
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(kind)
        if at + size > len(message):
            raise ValueError(at)
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & ~MORE) << shift
        shift += BITS
        if byte < MORE:
            return value, at


# -- Kernels of an .ncu-rep, through NVIDIA's own library


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
        import ncu_report  # 17 MB that only these files need
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
