"""Classify activities, API calls and ops by their names.

Activities have a kind of work, kernels also a library, their use of Tensor Cores and the ops that
they were fused from. The classes are estimates from names, see docs/kernels.md. Every activity has
a kind, only kernels have a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from bridge.analyze.core.call_details import fused
from bridge.analyze.core.groups import ratio, sums
from bridge.importers import frames
from bridge.importers.arrays import lookup, positions
from bridge.importers.frames import Names
from bridge.join.arrays import NONE, Flags, Integers, Ints, distinct
from bridge.join.attributed import AttributedCapture, once
from bridge.join.grammar import parse
from bridge.knowledge import kernels
from bridge.knowledge.kernels import UNKNOWN, YES, Kernel

OTHERS = (frames.MEMCPY, frames.MEMSET, frames.GRAPH)  # activities other than kernels
KINDS = (*kernels.KINDS, *OTHERS)


@once
def kind(attributed: AttributedCapture) -> tuple[Integers, tuple[str, ...]]:
    """Return the kind of each activity as a code, and the names of the kinds."""
    code, classes = _kernels(attributed)
    result = _codes_of_kernels(classes, lambda kernel: KINDS.index(kernel.kind)).astype(np.int8)[
        code
    ]
    for other in OTHERS:
        result[attributed.capture.activities.kind.among(other)] = KINDS.index(other)
    return result, KINDS


def library(attributed: AttributedCapture) -> tuple[Integers, tuple[str, ...]]:
    """Return the library of each activity as a code, and the names of the libraries.

    The code is NONE where the activity is no kernel; the name is '' for an unknown library.
    """
    code, classes = _kernels(attributed)
    names = tuple(sorted({kernel.library for kernel in classes}))
    return _codes_of_kernels(classes, lambda kernel: names.index(kernel.library))[code], names


def fused_ops(attributed: AttributedCapture) -> tuple[Integers, list[str]]:
    """Return the ops that each kernel was fused from as a code, and the texts such as ``add, mul``.

    Its name says them, or what was recorded of its op. The code is NONE for all other activities.
    """
    code, names = _names(attributed)
    by_name = Names.of([*(", ".join(kernels.source_ops(name)) for name in names), ""])[code]
    of_range, recorded = fused(attributed)
    row = lookup(attributed.attribution.nesting.range, attributed.node)
    of_op = Names(lookup(of_range, np.where(code == NONE, NONE, row)), recorded)
    both = Names.concat([by_name, of_op])
    own, told = np.split(both.codes, 2)
    result = np.where(by_name == "", told, own)
    is_empty = np.array([not text for text in both.texts])
    return np.where(is_empty[result], NONE, result), both.texts


def tensor_cores(attributed: AttributedCapture) -> Ints:
    """Return whether each activity uses Tensor Cores.

    The values are YES, NO and UNKNOWN of `bridge.knowledge.kernels`.
    """
    code, classes = _kernels(attributed)
    return np.where(
        code == NONE,
        kernels.NO,
        _codes_of_kernels(classes, lambda kernel: kernel.tensor_cores)[code],
    )


def is_kind(attributed: AttributedCapture, *kinds: str) -> Flags:
    """Return whether each activity is of one of these kinds."""
    code, names = kind(attributed)
    is_selected = np.array([name in kinds for name in names])
    flags: Flags = is_selected[code]
    return flags


def eligible(attributed: AttributedCapture) -> Flags:
    """Return whether each op of ``attributed.ops`` could use Tensor Cores.

    The last entry is for no op.
    """
    return np.array([*map(kernels.eligible, attributed.ops), False], bool)


def eligible_activities(attributed: AttributedCapture) -> Flags:
    """Return whether each activity is a kernel whose innermost op could use Tensor Cores."""
    flags: Flags = eligible(attributed)[attributed.activity_op]
    return flags & attributed.capture.activities.kind.among(frames.KERNEL)


@once
def _kernels(attributed: AttributedCapture) -> tuple[Integers, list[Kernel]]:
    """Return the class of each activity as a code, NONE for other than kernels, and the classes."""
    code, names = _names(attributed)
    return code, kernels.kinds_of(names, attributed.kernel_rules)


def _names(attributed: AttributedCapture) -> tuple[Integers, list[str]]:
    """Return the name of each kernel as a code, NONE for other activities, and the names in use.

    Names are demangled where the capture has that.
    """
    activities = attributed.capture.activities
    full, short = activities.full_name, activities.name
    names = [*full.texts, *short.texts, ""]
    of_short = np.append(np.arange(len(full.texts), len(names) - 1, dtype=np.int32), len(names) - 1)
    name = np.where(full.compact == NONE, of_short[short.compact], full.compact)
    is_kernel = activities.kind.among(frames.KERNEL)
    used = distinct(name[is_kernel])
    code = positions(used, len(names)).astype(np.min_scalar_type(-len(used) - 1))[name]
    code[~is_kernel] = NONE
    return code, [names[number] for number in used.tolist()]


def _codes_of_kernels(classes: list[Kernel], code_of: Callable[[Kernel], int]) -> Ints:
    """Return a code for each class of kernels, and NONE as the last entry, for no kernel."""
    return np.array([*map(code_of, classes), NONE], np.int64)


# -- Time of kernels on Tensor Cores


def tensor_core_times(
    attributed: AttributedCapture, rows: Ints, group: Ints, groups: int
) -> dict[str, np.ndarray]:
    """Return the columns ``@tensor-cores`` of the catalogue per group, times in ns.

    ``rows`` are activities, ``group`` is the group of each. ``in_kernels_ns`` is the time of
    kernels, of which ``tensor_core_share`` is a fraction; ``eligible_ns`` is the time of kernels
    whose innermost op could use Tensor Cores.
    """
    time, used = attributed.duration[rows], tensor_cores(attributed)[rows]
    is_kernel = attributed.capture.activities.kind.among(frames.KERNEL)[rows]

    def time_of(mask: np.ndarray) -> Ints:
        return sums(group[mask], time[mask], groups)

    whole, on_tensor_cores = time_of(is_kernel), time_of(used == YES)
    return {
        "in_kernels_ns": whole,
        "tensor_core_ns": on_tensor_cores,
        "tensor_core_unknown_ns": time_of(used == UNKNOWN),
        "tensor_core_share": ratio(on_tensor_cores, whole),
        "eligible_ns": time_of(eligible_activities(attributed)[rows]),
    }


# -- Roles of API calls and ops in a training step


LAUNCHING = re.compile(r"cu(?:da)?(?:Graph)?Launch\w*")  # issues kernels, graphs or host functions
WAITING = re.compile(r"cu\w*Synchronize")
HOST_FUNCTION = re.compile(r"cu(?:da)?LaunchHostFunc\w*")  # runs on the host
COPYING = re.compile(r"cu(?:da)?(?:Memcpy|Memset)\w*")
BLOCKING = re.compile(r"cu(?:da)?Memcpy(?!\w*Async|\w*Batch)\w*")  # returns when the copy is done
# Calls of the operating system that read and write files.
READING = re.compile(r"f?read(?:v|64|_unlocked|_chk)?|preadv?\w*|fgets\w*")
WRITING = re.compile(r"f?write\w*|pwrite\w*|f(?:data)?sync|sync_file_range")
COMPILING = re.compile(
    r"cu(?:da)?(?:Module|Library)(?:Load|GetKernel)\w*|cu(?:da)?Link\w+|cu(?:da)?GraphInstantiate\w*|nvrtc\w+"
)
COMPILATION = re.compile(
    r".*(?:nvrtc|dynamo|inductor|\bcompile(?:d_?f|r)?(?:$|[\W_])|compile(?:Fusion|Kernel)|triton.*compil|\bjit_?compil)",
    re.IGNORECASE,
)
LOADER = "DataLoader"  # in each name of the dialect
DATA_LOADING = re.compile(
    r"enumerate\((?:DataLoader|DataPipe)\)#.*|.*\bdata[ _-]?load(?:er|ing)\b.*"
    r"|.*\b(?:load|next|get|fetch)[ _-]?(?:batch|data)\b.*",
    re.IGNORECASE,
)


def is_communication(attributed: AttributedCapture) -> Flags:
    """Return whether each activity is a kernel of a communication library."""
    return is_kind(attributed, "communication")


def calls_matching(attributed: AttributedCapture, pattern: re.Pattern[str]) -> Flags:
    """Return whether the name of each API call matches a pattern such as `WAITING` or `COPYING`."""
    return attributed.capture.launches.name.matching(pattern.match)


@once
def is_data_loading(attributed: AttributedCapture) -> Flags:
    """Return whether each op of ``attributed.ops`` waits for data; the last entry is for no op."""
    return _flags_by_name(attributed.ops, loads_data)


def loads_data(op: str) -> bool:
    """Return whether an op, by its name, waits for data."""
    return bool(DATA_LOADING.fullmatch(op)) or (LOADER in op and parse(op).kind == "dataloader")


@once
def is_compilation(attributed: AttributedCapture) -> Flags:
    """Return whether each op of ``attributed.ops`` compiles code; the last entry is for no op."""
    return _flags_by_name(attributed.ops, lambda op: bool(COMPILATION.match(op)))


def _flags_by_name(names: Iterable[str], matches: Callable[[str], bool]) -> Flags:
    """Return a flag per name, and False as the last entry, for no name."""
    return np.array([*(matches(name) for name in names), False], bool)
