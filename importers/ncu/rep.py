"""Read the kernels of an .ncu-rep file with NVIDIA's library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from bridge.importers.arrays import MISSING
from bridge.importers.errors import NotAReport
from bridge.importers.frames import GRAPH, KERNEL
from bridge.importers.ncu.metrics import DEFAULT_DOMAIN, DURATION, Kernel, OpenRange, Rule, Value
from bridge.importers.records import record

# -- Units: ncu prints ``1.60 usecond`` or ``5.12 cycle/nsecond``; values become exact base units


PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
SECONDS = {"second": 0, "s": 0, "sec": 0, "msecond": -3, "ms": -3, "usecond": -6, "us": -6}
SECONDS |= {"nsecond": -9, "ns": -9}
SECONDS_PER_UNIT = {"minute": 60, "hour": 3_600}  # seconds
PREFIXED = re.compile(r"([KMGTP]?)([a-z]{2,}|B)")
NS_POWER = 9
MAX_POWER = 400  # of ten; larger values are damaged
DECIMAL_COMMA = re.compile(r"[-+]?(?:\d{1,3}(\.\d{3})*,\d+|\d+,\d+)")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
SPACES = str.maketrans("", "", " \u00a0\u202f'’_")


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> tuple[str, int]:
    """Return the base unit of a unit, and the power of ten to multiply values by."""
    numerator, *denominators = unit.split("/")
    if not denominators and numerator in SECONDS:
        return "ns", SECONDS[numerator] + NS_POWER
    match = PREFIXED.fullmatch(numerator)
    power, word = (PREFIXES[match[1]], match[2]) if match else (0, numerator)
    units = []
    for name in denominators:
        seconds = SECONDS.get(name)
        power -= seconds or 0
        units.append("s" if seconds is not None else name)
    if (word, units) == ("cycle", ["s"]):
        return "hz", power
    return "/".join([word, *units]), power


def scaled(value: Decimal, unit: str) -> tuple[Decimal, str]:
    """Return a value in its base unit, and the unit."""
    if unit in SECONDS_PER_UNIT:
        return scaled(value * SECONDS_PER_UNIT[unit], "second")
    word, power = base_unit(unit)
    return value.scaleb(power), word


def decimal_comma(cells: Iterable[str]) -> bool:
    """Return whether numbers have decimal commas: one of them has no other meaning."""
    return any(DECIMAL_COMMA.fullmatch(cell) and not THOUSANDS.fullmatch(cell) for cell in cells)


def number(cell: str, *, comma: bool) -> Decimal | None:
    """Return the number in a cell, with or without separators of thousands; None for a text."""
    text = cell.strip().translate(SPACES)
    text = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    if not text or text[0] not in "-+.0123456789":
        return None
    try:
        result = Decimal(text)
    except InvalidOperation:
        return None
    return result if result.is_finite() and abs(result.adjusted()) <= MAX_POWER else None


# -- Blocks of an .ncu-rep, each with its process; they show whether the file is complete


MAGIC = b"NVR\0"
LENGTH = 4
RESULTS, PAYLOAD, PROCESS = 2, 5, 6  # fields of a block's header
PID, HOST, PROGRAM = 1, 2, 3  # fields of a process
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MORE, BITS = 0x80, 7


@record
class Process:
    """The process of a kernel."""

    pid: int
    program: str


def is_rep(path: Path) -> bool:
    """Return whether a file is a report of Nsight Compute, by its first bytes or its suffix."""
    with path.open("rb") as file:
        return file.read(LENGTH) == MAGIC or path.suffix == ".ncu-rep"


def processes(path: Path) -> list[Process]:
    """Return the process of each result, in order; raises NotAReport if the file is incomplete."""
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
    _, position = _header(data, LENGTH)
    while position < len(data):
        header, position = _header(data, position)
        position += int(header.get(PAYLOAD, 0))
        if position > len(data):
            raise ValueError(position)
        process = dict(_fields(bytes(header.get(PROCESS, b""))))
        program = bytes(process.get(PROGRAM, b"")).decode(errors="replace")
        for _ in range(int(header.get(RESULTS, 0))):
            yield Process(int(process.get(PID, 0)), program)


def _header(data: bytes, position: int) -> tuple[dict[int, int | bytes], int]:
    """Return the fields of the message at a position, and the position after it."""
    size = int.from_bytes(data[position : position + LENGTH], "little")
    start = position + LENGTH
    if start + size > len(data):
        raise ValueError(position)
    return dict(_fields(data[start : start + size])), start + size


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield numbers and values of the fields of a protocol buffer."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, position = _varint(message, position)
        elif kind in {FIXED32, FIXED64}:
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(kind)
        if position + size > len(message):
            raise ValueError(position)
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & ~MORE) << shift
        shift += BITS
        if byte < MORE:
            return value, position


# -- Kernels, with NVIDIA's library


FRAME_METRICS = (  # metrics that the frames need
    *DURATION[:2],
    *(f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"),
    *(f"launch__{what}_id" for what in ("device", "context", "stream")),
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
DEVICE = "device__attribute_"
KINDS = ("", "INF", "OPT", "WRN", "ERR")  # kinds of messages by number
SCOPES = ("", "local", "global")
LINK = re.compile(r"@url:([^:@]*):([^@]*)@")
REFERENCE = re.compile(r"@(?:section|sass|source):[^@]*?:?([^:@]*)@")
# What NVIDIA's library and its wrapper raise for damaged files.
DAMAGE = (RuntimeError, ValueError, SystemError, TypeError, LookupError, OverflowError)
MAX_EXACT_FLOAT = 2**53  # integers up to this one are exact as floats


def library() -> Any | None:
    """Return NVIDIA's library, None if it is not installed."""
    try:
        import ncu_report  # 17 MB, needed for these files only
    except ImportError:
        return None
    return ncu_report


def kernels(path: Path, library_: Any, *, metrics: bool) -> list[Kernel]:
    """Return the kernels of a report in the order of profiling, read by NVIDIA's library.

    Without ``metrics`` they have only those that the frames need.
    """
    processes_ = processes(path)
    try:
        result = [_kernel(library_, action, metrics=metrics) for action in _actions(library_, path)]
    except DAMAGE as error:
        raise NotAReport(
            f"{path.name}: Nsight Compute's library cannot read it: {error}"
        ) from error
    if len(result) != len(processes_):
        raise NotAReport(
            f"{path.name}: {len(processes_)} kernels, but {len(result)} that can be read;"
            " a newer ncu-report may read them: pip install -U ncu-report"
        )
    for kernel, process in zip(result, processes_, strict=True):
        kernel.process, kernel.program = process.pid, process.program
    return result


def _actions(library_: Any, path: Path) -> Iterator[Any]:
    context = library_.load_report(str(path))
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for place in range(part.num_actions()):
            yield part.action_by_idx(place)


def _kernel(library_: Any, action: Any, *, metrics: bool) -> Kernel:
    names = action.metric_names() if metrics else _frame_metrics(action.metric_names())
    pushed, started = _ranges(action)
    kernel = Kernel(
        name=action.name(library_.IAction.NameBase_FUNCTION) or "",  # None in a damaged file
        full_name=action.name(library_.IAction.NameBase_DEMANGLED) or "",
        mangled=action.name(library_.IAction.NameBase_MANGLED) or "",
        kind=GRAPH if action.workload_type() == library_.IAction.WorkloadType_GRAPH else KERNEL,
        pushed=pushed,
        started=started,
        metrics=dict(_values(action, names)),
        rules=list(_rules(action)) if metrics else [],
    )
    for key in ("device", "context", "stream"):
        setattr(kernel, key, kernel.whole(f"launch__{key}_id"))
    return kernel


def _frame_metrics(names: Any) -> list[str]:
    return [name for name in names if name in FRAME_METRICS or name.startswith(DEVICE)]


def _values(action: Any, names: Any) -> Iterator[tuple[str, Value]]:
    """Yield the metrics that have a value."""
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
        unit, power = base_unit(metric.unit())
        number = float(value) * 10.0**power if power else float(value)
        yield (
            name,
            Value(number, unit, "" if abs(value) <= MAX_EXACT_FLOAT or power else _exact(value)),
        )


def _exact(value: float) -> str:
    """Return the digits of an integer that a float cannot hold."""
    return str(value) if isinstance(value, int) else ""


def _ranges(action: Any) -> tuple[tuple[OpenRange, ...], tuple[OpenRange, ...]]:
    """Return the open push/pop and start/end ranges, by domain."""
    state = action.nvtx_state()
    pushed: list[OpenRange] = []
    started: list[OpenRange] = []
    for number in sorted(state.domains()) if state else ():
        domain = state.domain_by_id(number)
        name = domain.name() or DEFAULT_DOMAIN
        for ranges, range_by_id, target in (
            (domain.push_pop_ranges(), domain.push_pop_range, pushed),
            (domain.start_end_ranges(), domain.start_end_range, started),
        ):
            target += [
                _open_range(name, text, range_by_id(place)) for place, text in enumerate(ranges)
            ]
    return tuple(pushed), tuple(started)


def _open_range(domain: str, text: str, result: Any) -> OpenRange:
    if result is None or not result.has_attributes():
        return OpenRange(domain, text)
    integers = {
        getattr(result, f"PayloadType_PAYLOAD_{sign}INT{bits}")
        for sign in ("", "U")
        for bits in (32, 64)
    }
    if result.payload_type() not in integers:
        return OpenRange(domain, text)
    payload = int(result.payload_as_uint64())
    return OpenRange(domain, text, payload if payload < 2**63 else MISSING)


def _rules(action: Any) -> Iterator[Rule]:
    """Yield the messages of rules; a rule may have none."""
    for result in action.rule_results_as_dicts():
        message, estimate = result.get("rule_message"), result.get("speedup_estimation", {})
        if message:
            yield Rule(
                section=result["section_identifier"],
                rule=result["rule_identifier"],
                kind=KINDS[int(message["type"])],
                text=without_links(message["message"]),
                scope=SCOPES[int(estimate.get("type", 0))],
                speedup=float(estimate.get("speedup", MISSING)),
            )


def without_links(text: str) -> str:
    """Return the message of a rule without links to parts of NVIDIA's window."""
    return REFERENCE.sub(r"\1", LINK.sub(r"\1 (\2)", text))
