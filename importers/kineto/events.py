"""Read the JSON of a trace; the events of PyTorch's profiler as columns, with times in ns.

The file may be packed by gzip. It is unpacked up to a limit: 10 MB may hold 10 GB of zeros.
"""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import MAX_DISTANCE_NS
from bridge.importers.errors import NotAReport
from bridge.importers.records import record

# -- Files packed by gzip


GZIP = b"\x1f\x8b"
UNPACKED_CHUNK = 1 << 24  # bytes unpacked at a time
# gzip packs JSON and pickles of profiles to a tenth or a thirtieth; higher ratios are refused.
RATIO, WINDOW = 200, 1 << 26  # ratio of sizes, measured every WINDOW unpacked bytes


def unpacked(path: Path, largest: int) -> bytes:
    """Return the contents of a file, unpacked if it is packed by gzip.

    Raises NotAReport if the file is damaged or its contents are larger than ``largest`` bytes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        is_packed = file.read(len(GZIP)) == GZIP
    if not is_packed and size > largest:
        raise NotAReport(_too_large(path, largest))
    if not is_packed:
        return path.read_bytes()
    try:
        return _gunzipped(path, largest)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged ({error}); copy or export it again"
        ) from error


def _gunzipped(path: Path, largest: int) -> bytes:
    parts, count, window_start = [], 0, (0, 0)
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
        while part := file.read(UNPACKED_CHUNK):
            parts.append(part)
            count += len(part)
            if count > largest:
                raise NotAReport(_too_large(path, largest))
            if count - window_start[0] >= WINDOW:
                if count - window_start[0] > RATIO * (packed.tell() - window_start[1]):
                    raise NotAReport(
                        f"{path.name}: unpacks to over {RATIO} times its size, as no profile does"
                    )
                window_start = count, packed.tell()
    return b"".join(parts)


def _too_large(path: Path, largest: int) -> str:
    return f"{path.name}: over {round(largest / (1 << 30))} GiB; record less, such as fewer steps"


# -- The JSON of a trace


MAX_JSON_BYTES = 8 << 30  # bytes of JSON; the objects take several times as much memory
HEAD, CHUNK = 4096, 64  # bytes that identify a file; bytes of them unpacked at a time
SPACE = b"\xef\xbb\xbf \t\r\n"  # with the byte order mark
OPENINGS = (b"{", b"[")
EVENTS = "traceEvents"
# ValueError also for integers of over 4300 digits, RecursionError for deep nesting.
DAMAGE = (ValueError, RecursionError)


def is_json(path: Path) -> bool:
    """Return whether a file, packed or not, begins as JSON does."""
    return head_of(path).lstrip(SPACE)[:1] in OPENINGS


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked if it is packed."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return _unpacked_head(head) if head.startswith(GZIP) else head


def read_json(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the top-level fields of a trace and its events; raises NotAReport for other files.

    Numbers with a point are texts, as written.
    """
    try:
        text = _json_text(path)
        result = json.loads(text, parse_float=str, parse_constant=lambda _: None, strict=False)
    except DAMAGE as error:
        raise NotAReport(
            f"{path.name}: cut off or damaged: no JSON ({error}); copy or export the trace again"
        ) from error
    if isinstance(result, list) and all(isinstance(event, dict) for event in result):
        return {}, result  # events alone, as Chrome's format allows
    if not isinstance(result, dict) or not isinstance(result.get(EVENTS), list):
        raise NotAReport(
            f"{path.name}: JSON, but no trace of a profiler (an object with {EVENTS}, or events)"
        )
    events = result.pop(EVENTS)
    return result, events


def _unpacked_head(head: bytes) -> bytes:
    """Unpack the beginning of a gzip file as far as possible."""
    unpacker, result = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
    try:
        for start in range(0, len(head), CHUNK):
            result += unpacker.decompress(head[start : start + CHUNK], HEAD)
    except zlib.error:
        pass
    return result


def _json_text(path: Path) -> str:
    return unpacked(path, MAX_JSON_BYTES).decode("utf-8-sig", errors="replace")


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection: with millions of objects, reading takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# -- Numbers and texts of JSON as columns


NS_PER_US, DECIMALS = 1_000, 3  # in a µs
MAX_NS = 1 << 62  # ns: sums and differences of times fit into 64 bits
MAX_NUMBER_LENGTH = 40  # characters of a number
UNKNOWN = -(1 << 63)  # in place of an invalid time


def nanoseconds(values: Sequence[Any]) -> Ints:
    """Return microseconds as ns, halves away from 0; `UNKNOWN` for other values."""
    return np.array([_nanoseconds(value) for value in values], np.int64)


def integers(values: Sequence[Any]) -> Ints:
    """Return integers, also in quotes; -1 for other values and beyond 62 bits."""
    return np.array([_integer(value) for value in values], np.int64)


def _nanoseconds(value: Any) -> int:
    if type(value) is int:
        return value * NS_PER_US if -MAX_NS < value * NS_PER_US < MAX_NS else UNKNOWN
    if type(value) is not str or len(value) > MAX_NUMBER_LENGTH:
        return UNKNOWN
    whole, _, part = value.partition(".")
    if part.isdecimal() and len(part) <= DECIMALS and whole.isdecimal():
        result = int(whole + part) * 10 ** (DECIMALS - len(part))
        return result if result < MAX_NS else UNKNOWN
    return _nanoseconds_of_decimal(value)


def _nanoseconds_of_decimal(text: str) -> int:
    """Return a number in another notation: a minus, more decimals, an exponent."""
    try:
        result = Decimal(text) * NS_PER_US
        fits = result.is_finite() and abs(result) < MAX_NS
        return int(result.to_integral_value(ROUND_HALF_UP)) if fits else UNKNOWN
    except ArithmeticError:
        return UNKNOWN


def _integer(value: Any) -> int:
    if type(value) is str and len(value) <= MAX_NUMBER_LENGTH and value.isdecimal():
        value = int(value)
    return value if type(value) is int and -MAX_NS < value < MAX_NS else MISSING


def clean(text: str) -> str:
    r"""Return a text that UTF-8 can encode: a lone surrogate as ``\udc80``, NUL as ``\0``."""
    plain = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    return plain.replace("\0", "\\0")


def clean_names(texts: Sequence[str]) -> frames.Names:
    """Return a categorical from a text per row; names are cleaned."""
    distinct = {text: clean(text) for text in dict.fromkeys(texts)}
    return frames.Names.of([distinct[text] for text in texts])


# -- The events of a trace by sort; invalid events are left out and counted


SPAN, META = "X", "M"  # phases of Chrome's trace format
RANGES, CALLS, KERNELS, COPIES, FILLS, SYNCS, RECORDS, MEMORY, HOST_NODES, EVENT_NODES = SORTS = (
    "ranges", "calls", "kernels", "copies", "fills", "syncs", "records", "memory", "host_nodes", "event_nodes"
)  # fmt: skip
INSTANT, ALLOCATOR = "i", "[memory]"  # phase and name of allocations and releases
OP, ANNOTATION, PYTHON = "cpu_op", "user_annotation", "python_function"
SORT_OF = {
    OP: RANGES,
    "Operator": RANGES,
    ANNOTATION: RANGES,
    PYTHON: RANGES,
    "cuda_runtime": CALLS,
    "cuda_driver": CALLS,
    "Runtime": CALLS,
    "kernel": KERNELS,
    "Kernel": KERNELS,
    "gpu_memcpy": COPIES,
    "Memcpy": COPIES,
    "gpu_memset": FILLS,
    "Memset": FILLS,
    "cuda_sync": SYNCS,
    "cuda_event": RECORDS,
    frames.GRAPH_HOST_NODE: HOST_NODES,
    "graph_event_node": EVENT_NODES,
}
PYTORCH_CATEGORIES = frozenset(name for name in SORT_OF if "_" in name)
# Not read: annotations projected to the GPU, which the rest determines, and the profiler's spans.
SKIPPED_CATEGORIES = frozenset(["gpu_user_annotation", "Trace", "overhead"])


@record
class Events:
    """Events of one sort, in the order of the file; ``start`` and ``end`` in ns.

    ``args`` are their arguments, ``where`` pid and tid as written.
    """

    category: Sequence[str]
    name: Sequence[str]
    where: Sequence[tuple[Any, Any]]
    args: Sequence[dict[str, Any]]
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.name)

    def column(self, key: str) -> list[Any]:
        """Return an argument as written, None where it is absent."""
        return [arguments.get(key) for arguments in self.args]

    def ints(self, key: str) -> Ints:
        """Return an integer argument, -1 where it is absent."""
        return integers(self.column(key))

    def texts(self, key: str) -> frames.Names:
        """Return an argument that is a text, '' where it is none."""
        return frames.Names.of(v if type(v) is str else "" for v in self.column(key))

    def extents(self, key: str) -> list[Ints]:
        """Return the numbers of a list such as a grid, along each axis."""
        lists = [extents if type(extents) is list else () for extents in self.column(key)]
        return [
            integers([each[axis] if len(each) > axis else None for each in lists])
            for axis in range(3)
        ]

    @property
    def names(self) -> frames.Names:
        return frames.Names.of(self.name)

    @property
    def gpu(self) -> Ints:
        """The pid of each event of a device, which is the number of the GPU."""
        return integers([pid for pid, _ in self.where])


@record
class TraceEvents:
    """All events of a trace by sort, and the metadata events that name processes and threads.

    ``broken`` counts the invalid events, ``unknown`` those of categories that are not read, by
    category.
    """

    by: dict[str, Events]
    meta: Sequence[dict[str, Any]]
    broken: int
    unknown: Counter[str]

    @classmethod
    def of(cls, events: Sequence[Any]) -> TraceEvents:
        """Sort the events of a trace: one loop over them; everything else works on columns."""
        by_sort: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in events:
            by_sort[_sort_of(event)].append(event)
        by, broken = {}, len(by_sort[""])
        for sort in SORTS:
            by[sort], left_out = _valid_events(by_sort[sort], has_duration=sort != MEMORY)
            broken += left_out
        return cls(by, by_sort[META], broken, Counter(e["cat"] for e in by_sort[SPAN]))

    @property
    def zero(self) -> int:
        """One µs before the first event began, in ns.

        Thus no event ends at 0, which stands for an event whose end the profiler lost.
        """
        spans = (e for sort, e in self.by.items() if sort != MEMORY and len(e))
        return min((int(e.start.min()) for e in spans), default=0) - NS_PER_US


def is_pytorch(events: Sequence[Any]) -> bool:
    """Return whether any event has a category that only PyTorch's profiler writes."""
    return any(
        type(e) is dict and type(e.get("cat")) is str and e["cat"] in PYTORCH_CATEGORIES
        for e in events
    )


def _sort_of(event: Any) -> str:
    """Return the sort of an event: `META`, `SPAN` for unknown categories, "" for invalid ones.

    "other" is skipped without a warning: arrows, instants, counters, derived events.
    """
    if type(event) is not dict:
        return ""
    phase, category = event.get("ph"), event.get("cat")
    if phase == META:
        return META
    if phase == INSTANT and event.get("name") == ALLOCATOR:
        return MEMORY
    if phase != SPAN:
        return "other"
    if type(category) is not str:
        return ""
    return "other" if category in SKIPPED_CATEGORIES else SORT_OF.get(category, SPAN)


def _valid_events(events: list[dict[str, Any]], *, has_duration: bool) -> tuple[Events, int]:
    """Return the events with a name, a start and a possible duration, and the number of all others."""
    start = nanoseconds([event.get("ts") for event in events])
    length = nanoseconds([event.get("dur") if has_duration else 0 for event in events])
    is_valid = np.array([type(event.get("name")) is str for event in events], bool)
    is_valid &= (start != UNKNOWN) & (length >= 0) & (length <= MAX_DISTANCE_NS)
    if is_valid.any():  # most times are true; others so far away are no times of this capture
        middle = int(np.sort(start[is_valid])[int(is_valid.sum()) // 2])
        is_valid &= (start >= middle - MAX_DISTANCE_NS) & (start <= middle + MAX_DISTANCE_NS)
    rows = np.flatnonzero(is_valid)
    valid = events if len(rows) == len(events) else [events[row] for row in rows.tolist()]
    start, length = start[rows], length[rows]
    columns = (
        [event.get("cat", "") for event in valid],
        [event["name"] for event in valid],
        [(event.get("pid"), event.get("tid")) for event in valid],
        [args if type(args := event.get("args")) is dict else {} for event in valid],
    )
    return Events(*columns, start, start + length), len(events) - len(valid)
