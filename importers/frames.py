"""The frames of a capture: one class per kind of record, whose attributes are columns.

Times and ids are int64, -1 where missing; names are `Names`. The row number is the id. Frames share
their arrays with other objects: never write into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import (
    MISSING,
    Flags,
    Floats,
    Integers,
    Ints,
    Scalar,
    factorize,
    lookup,
)

if TYPE_CHECKING:
    import pandas as pd

# Columns thread and process have the form of the globalTid of nsys: hardware and virtual machine
# (16 bits), process id (24), thread id (24).
ID_BITS = 0xFFFFFF
PID_SHIFT = 24  # of the id of a process in a globalPid
# No thread of a program has these numbers: annotations of nodes of CUDA graphs, and nodes that ran on the host.
GRAPH_NODES_THREAD, HOST_NODES_THREAD = ID_BITS, ID_BITS - 1
Process = TypeVar("Process", int, Ints)

# Constants of `bridge.annotate`: the marker in the payloads that all slices of a call share, and
# the prefix of the marks that are samples of a counter.
CALL_ID = 0x4E42  # "NB" in the top 16 bits of a payload
CALL_ID_SHIFT = 48
# The domain and the names of ranges that nsys --trace=python-gil records for threads of Python.
GIL_DOMAIN, HOLDS_GIL, WAITS_FOR_GIL = "GIL Trace", "Holding GIL", "Waiting for GIL"
COUNTER = "counter:"
# The category of ranges that are callbacks in CUDA graphs, and the key of the id of a node in details of ranges.
GRAPH_HOST_NODE, GRAPH_NODE = "graph_host_node", "graph_node"

# The codes of these names are the same in all captures.
ACTIVITY_KINDS = KERNEL, MEMCPY, MEMSET, GRAPH = ("kernel", "memcpy", "memset", "graph")
RANGE_KINDS = PUSH_POP, START_END = ("push_pop", "start_end")
WAIT_KINDS = ("unknown", "event", "stream_wait", "stream", "context", "event_record")
STREAM_KINDS = ("unknown", "blocking", "non_blocking", "null")
MEMORY_KINDS = tuple(  # codes of source_kind and target_kind
    "pageable pinned device array managed device_static managed_static unknown".split()
)
OPERATIONS = ALLOCATE, RELEASE = (0, 1)  # values of `operation` in the frame memory
HELD = 2  # allocated before the capture and not released in it
RESERVED = 3  # only the reserved bytes changed: no address, no bytes
SEVERITIES = ("unknown", "info", "warning", "error", "verbose")  # codes of `severity`
# `source` of a quoted line of the program in the frame diagnostics, and of a rate that it printed; nsys uses 0 to 3.
PROGRAM, RATE = 100, 101

# -- Names


class Names:
    """A column of names: the text of row i is ``texts[codes[i]]``, none where the code is -1.

    The texts are distinct, and some may be of no row.
    """

    __slots__ = ("compact", "texts")

    def __init__(self, codes: Integers, texts: Sequence[str]) -> None:
        self.texts = texts if isinstance(texts, list) else list(texts)
        self.compact = codes.astype(np.min_scalar_type(-max(len(self.texts), 1)), copy=False)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """Return names from a text per row."""
        rows = texts if isinstance(texts, list) else list(texts)
        places = {text: place for place, text in enumerate(dict.fromkeys(rows))}
        return cls(np.fromiter(map(places.__getitem__, rows), np.int64, len(rows)), list(places))

    @classmethod
    def none(cls, rows: int) -> Names:
        """Return a column without a name in any row."""
        return cls(np.full(rows, MISSING), [])

    @property
    def codes(self) -> Ints:
        """The code of each row, as int64; ``compact`` has them in as few bytes as they need."""
        return self.compact.astype(np.int64)

    def __len__(self) -> int:
        return len(self.compact)

    def __repr__(self) -> str:
        """Return the number of rows, and of texts."""
        return f"<Names: {len(self)} rows of {len(self.texts)} texts>"

    def __eq__(self, text: object) -> Any:
        """Return a mask of the rows that have this text."""
        return self.among(text) if isinstance(text, str) else NotImplemented

    def __ne__(self, text: object) -> Any:
        """Return a mask of the rows that do not have this text."""
        return ~self.among(text) if isinstance(text, str) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of arrays

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> str: ...
    @overload
    def __getitem__(self, rows: NDArray[Any] | slice) -> Names: ...
    def __getitem__(self, rows: Any) -> str | Names:
        """Return the text of a row, "" for none; of an array or slice of rows their names."""
        if isinstance(rows, int | np.integer):
            code = self.compact[rows]
            return self.texts[code] if code >= 0 else ""
        return Names(self.compact[rows], self.texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """Return the text of each row, "" for none."""
        texts = [*self.texts, ""]
        return [texts[code] for code in self.compact.tolist()]

    def to_numpy(self) -> NDArray[np.object_]:
        """Return the text of each row as an array of objects, "" for none."""
        result: NDArray[np.object_] = np.array([*self.texts, ""], object)[self.compact]
        return result

    @property
    def by_frequency(self) -> list[str]:
        """The distinct texts of the rows, the most frequent first."""
        count = np.bincount(self.compact[self.compact >= 0], minlength=len(self.texts))
        order = np.argsort(-count, kind="stable")
        return [self.texts[code] for code in order.tolist() if count[code]]

    @property
    def used(self) -> list[str]:
        """The distinct texts of the rows, in order of first occurrence."""
        return [self.texts[code] for code in dict.fromkeys(self.compact.tolist()) if code >= 0]

    def matching(self, is_meant: Callable[[str], object]) -> Flags:
        """Return a mask of the rows whose text is meant; each distinct text is asked once."""
        meant: Flags = np.array([*(bool(is_meant(text)) for text in self.texts), False])
        mask: Flags = meant[self.compact] if meant.any() else np.zeros(len(self), bool)
        return mask

    def per_text(self, value_of: Callable[[str], float], missing: float = MISSING) -> NDArray[Any]:
        """Return a number per row, from its text; ``missing`` where there is none."""
        values = np.array([*map(value_of, self.texts), missing])
        result: NDArray[Any] = values[self.compact]
        return result

    def at(self, rows: Integers) -> Names:
        """Return the names at rows, none where a row is -1, or the one behind the last."""
        return Names(lookup(self.compact, rows), self.texts)

    def among(self, *texts: str) -> Flags:
        """Return a mask of the rows that have one of these texts."""
        return self.matching(texts.__contains__)

    def recoded(self, texts: Sequence[str]) -> Names:
        """Return the names with codes into other texts, among which all of its own are."""
        places = {text: place for place, text in enumerate(texts)}
        return Names(lookup(np.array([places[t] for t in self.texts], np.int64), self.codes), texts)

    def to_pandas(self) -> pd.Categorical:
        """Return a categorical; the texts are its categories."""
        import pandas as pd

        dtype = pd.CategoricalDtype(pd.Index(self.texts, dtype=object))
        return pd.Categorical.from_codes(self.compact, dtype=dtype)

    @classmethod
    def concat(cls, columns: Sequence[Names]) -> Names:
        """Return columns one after another; equal texts become one."""
        texts = dict.fromkeys(text for column in columns for text in column.texts)
        distinct = list(texts)
        parts = [column.recoded(distinct).codes for column in columns]
        return cls(np.concatenate(parts), distinct)


Column = Ints | Flags | Floats | Names

# -- Frames


NOTHING: Mapping[str, Any] = {}


class Frame:
    """Columns of equal length, as attributes; subclasses say which.

    Columns that are not given are missing in every row: -1, no name, or False. Of a mapping, what is
    no column of the frame is left out.
    """

    types: ClassVar[Mapping[str, str]] = {}  # of the columns, by name
    kinds: ClassVar[tuple[str, ...]] = ()  # the texts of the column `kind`, if they are fixed

    def __init_subclass__(cls) -> None:
        cls.types = {**cls.types, **get_annotations(cls)}

    def __init__(self, columns: Mapping[str, Any] = NOTHING, /, **others: Column) -> None:
        if odd := others.keys() - self.types:
            raise TypeError(f"{type(self).__name__} has no column {min(odd)}")
        columns = {**columns, **others}
        rows = len(next(iter(columns.values()))) if columns else 0
        self.__dict__.update(
            (name, columns[name] if name in columns else _missing(name, kind, rows))
            for name, kind in self.types.items()
        )
        if self.kinds and self["kind"].texts != list(self.kinds):
            self.__dict__["kind"] = self["kind"].recoded(self.kinds)

    def __len__(self) -> int:
        return len(next(iter(self.__dict__.values())))

    def __getitem__(self, column: str) -> Any:
        """Return a column by its name."""
        return self.__dict__[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def __repr__(self) -> str:
        """Return the name of the frame, the number of rows and the columns."""
        return f"<{type(self).__name__}: {len(self)} rows of {', '.join(self.types)}>"

    def defects(self) -> Iterator[str]:
        """Yield what is wrong with columns that the reader of another distribution gave."""
        for name, kind in self.types.items():
            column = self[name]
            is_names = isinstance(column, Names)
            values = column.compact if is_names else column
            wanted = {"Flags": "b", "Floats": "f"}.get(kind, "i")
            if (
                is_names != (kind == "Names")
                or not isinstance(values, np.ndarray)
                or (values.shape, values.dtype.kind) != ((len(self),), wanted)
            ):
                yield f"column {name} is no {kind} of {len(self)} rows"
            elif is_names and not ((values >= MISSING) & (values < len(column.texts))).all():
                yield f"column {name} has codes without a text"

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Return the rows of a mask, of row numbers, or of a slice."""
        return type(self)({name: self[name][rows] for name in self.types})

    def replace(self, **columns: Column) -> Self:
        """Return the frame with other columns in place of some of its own."""
        return type(self)(self.__dict__, **columns)

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns as a data frame, which shares their memory; names are categoricals."""
        import pandas as pd

        columns = {n: c.to_pandas() if isinstance(c, Names) else c for n, c in vars(self).items()}
        return pd.DataFrame(columns, copy=False)

    @classmethod
    def concat(cls, frames: Sequence[Self]) -> Self:
        """Return the rows of frames one after another."""
        if len(frames) == 1:
            return frames[0]
        return cls({name: _concat([frame[name] for frame in frames]) for name in cls.types})


def _missing(name: str, kind: str, rows: int) -> Column:
    if kind == "Names":
        return Names.none(rows)
    if kind != "Ints":
        return np.zeros(rows, bool if kind == "Flags" else np.float64)
    return np.broadcast_to(np.int64(0 if name == "report" else MISSING), (rows,))


def _concat(columns: list[Any]) -> Column:
    if isinstance(columns[0], Names):
        return Names.concat(columns)
    return np.concatenate(columns)


# -- The records of a capture


class Records(Frame):
    """Records of a capture."""

    report: Ints  # the file of each row

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.types = {**{c: t for c, t in cls.types.items() if c != "report"}, "report": "Ints"}


class OfProcesses(Protocol):
    """Records, each of a process."""

    report: Ints
    process: Ints

    def __len__(self) -> int: ...


class OfThreads(OfProcesses, Protocol):
    """Records, each of a thread."""

    thread: Ints

    def __getitem__(self, column: str) -> Any: ...


class Timed(Records):
    """Records with a start and an end."""

    start: Ints
    end: Ints


class HostEvents(Timed):
    """Records of a thread, with a start and an end."""

    thread: Ints
    process: Ints


class Instants(Records):
    """Records of a thread, with a time."""

    time: Ints
    thread: Ints
    process: Ints


class Ranges(HostEvents):
    """Push/pop and start/end ranges of NVTX."""

    kinds = RANGE_KINDS
    domain: Ints
    domain_name: Names
    name: Names
    kind: Names
    category: Names
    color: Ints
    payload: Ints
    json: Names
    open: Flags
    text: Ints


class Launches(HostEvents):
    """API calls of CUDA."""

    correlation: Ints
    name: Names
    result: Ints


class Activities(Timed):
    """Kernels, memcpys, memsets, and CUDA graphs that were recorded as a whole."""

    kinds = ACTIVITY_KINDS
    kind: Names
    process: Ints
    device: Ints
    context: Ints
    stream: Ints
    correlation: Ints
    name: Names
    full_name: Names
    mangled: Names
    bytes: Ints
    copy_kind: Ints
    source_kind: Ints
    target_kind: Ints
    migration_cause: Ints
    grid_x: Ints
    grid_y: Ints
    grid_z: Ints
    block_x: Ints
    block_y: Ints
    block_z: Ints
    registers: Ints
    shared_static: Ints
    shared_dynamic: Ints
    green_context: Ints
    graph: Ints
    graph_node: Ints


class Waits(Timed):
    """Synchronizations, and records of CUDA events."""

    kinds = WAIT_KINDS
    kind: Names
    process: Ints
    device: Ints
    context: Ints
    stream: Ints
    correlation: Ints
    event: Ints


class CudaStreams(Records):
    """Streams of CUDA contexts."""

    kinds = STREAM_KINDS
    process: Ints
    context: Ints
    stream: Ints
    kind: Names


class Memory(Instants):
    """Allocations and releases of memory."""

    kinds = MEMORY_KINDS
    device: Ints
    context: Ints
    stream: Ints
    correlation: Ints
    kind: Names
    operation: Ints
    address: Ints
    bytes: Ints
    pool: Ints
    reserved: Ints
    allocated: Ints
    name: Names


class Marks(Instants):
    """Marks of NVTX."""

    domain: Ints
    domain_name: Names
    name: Names
    category: Names
    payload: Ints
    json: Names


class NcclCalls(HostEvents):
    """Calls of NCCL."""

    name: Names
    bytes: Ints
    communicator: Ints
    ranks: Ints
    rank: Ints
    peer: Ints
    root: Ints
    reduction: Names


class GraphNodes(Instants):
    """Events that created nodes of CUDA graphs."""

    node: Ints
    original: Ints


class Overhead(HostEvents):
    """Work of the profiler itself on a thread."""

    correlation: Ints
    name: Names


class SystemCalls(HostEvents):
    """Calls of the operating system's runtime."""

    name: Names


class ContextSwitches(Records):
    """Times at which a thread begins, or ceases, to run on a CPU."""

    time: Ints
    cpu: Ints
    thread: Ints
    process: Ints
    on_cpu: Flags


class GpuMetrics(Records):
    """Samples of hardware counters."""

    time: Ints
    gpu: Ints
    metric: Names
    value: Ints


class Diagnostics(Records):
    """Messages of the profiler about the capture, and quoted lines of the program."""

    time: Ints
    process: Ints
    source: Ints
    severity: Ints
    name: Names


class Threads(Records):
    """Threads that have a name."""

    thread: Ints
    process: Ints
    name: Names


class Processes(Records):
    """Processes."""

    process: Ints
    name: Names


class Devices(Records):
    """GPUs, as each process numbers them."""

    process: Ints
    device: Ints
    gpu: Ints
    name: Names
    memory_bytes: Ints
    memory_bandwidth: Ints
    clock_hz: Ints
    l2_bytes: Ints
    compute_major: Ints
    compute_minor: Ints
    sm_count: Ints
    warp_size: Ints
    warps_per_sm: Ints
    blocks_per_sm: Ints
    threads_per_block: Ints
    registers_per_sm: Ints
    registers_per_block: Ints
    shared_per_sm: Ints
    shared_per_block: Ints
    shared_per_block_optin: Ints


# Properties of a GPU in bytes, bytes per second, Hz and counts.
DEVICE_FACTS = tuple(Devices.types)[4:-1]
FRAMES: Mapping[str, type[Records]] = {
    "ranges": Ranges,
    "launches": Launches,
    "activities": Activities,
    "waits": Waits,
    "cuda_streams": CudaStreams,
    "memory": Memory,
    "marks": Marks,
    "nccl_calls": NcclCalls,
    "graph_nodes": GraphNodes,
    "overhead": Overhead,
    "system_calls": SystemCalls,
    "context_switches": ContextSwitches,
    "gpu_metrics": GpuMetrics,
    "diagnostics": Diagnostics,
    "threads": Threads,
    "processes": Processes,
    "devices": Devices,
}


# -- Rows, ids and keys


def pid(process: Process) -> Process:
    """Return the id of a process as the operating system has it, of one globalPid or of an array of them."""
    return process >> PID_SHIFT & ID_BITS


def process_of(thread: Ints) -> Ints:
    """Return the process of each thread; a column that repeats one value still does."""
    if thread.strides == (0,) and len(thread):
        return np.broadcast_to(thread[0] & ~ID_BITS, thread.shape)
    return thread & ~ID_BITS


def pick(column: NDArray[Scalar], rows: Ints) -> NDArray[Scalar]:
    """Return a column's values at ascending rows; the column itself if these are all rows."""
    return column if len(rows) == len(column) else column[rows]


def key_codes(*tables: Sequence[Ints]) -> list[Ints]:
    """Return codes of the keys of several tables, equal for equal keys in any of the tables.

    Each table is a sequence of columns; a key is the tuple of the values of a row.
    """
    rows = [len(table[0]) for table in tables]
    codes: Ints = np.broadcast_to(np.int64(0), sum(rows))
    columns = [parts for parts in zip(*tables, strict=True) if not _is_constant(parts)]
    for i, parts in enumerate(columns):
        column_codes, values = factorize(np.concatenate(parts))
        codes = factorize(codes * len(values) + column_codes)[0] if i else column_codes
    return np.split(codes, np.cumsum(rows)[:-1])


def distinct_keys(*key: Ints) -> tuple[Ints, Ints]:
    """Return a code per row for combinations of columns, and the first row of each code."""
    (codes,) = key_codes(key)
    first = np.full(int(codes.max(initial=MISSING)) + 1, len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    return codes, first


def used_devices(activities: Activities) -> Ints:
    """Return the first row of each device of a process, sorted by process and device."""
    _, rows = distinct_keys(activities.process, activities.device)
    return rows[np.lexsort((activities.device[rows], activities.process[rows]))]


def _is_constant(columns: Sequence[Ints]) -> bool:
    """Return whether all columns hold one value in every row."""
    filled = [c for c in columns if len(c)]
    return all(
        c[0] == c[-1] == filled[0][0] and (c.strides == (0,) or (c == c[0]).all()) for c in filled
    )
