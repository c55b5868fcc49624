"""What activities are: the kind of work, the library, Tensor Cores, what was fused; told by the names of kernels.

An estimate as good as the names: docs/kernels.md. The invariant: every activity has a kind, only kernels have a library.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from bridge.analyze.groups import ratio, sums
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed
from bridge.knowledge import kernels
from bridge.knowledge.kernels import UNKNOWN, YES, Kernel
from importers import frames

OTHERS = (frames.MEMCPY, frames.MEMSET, frames.GRAPH)  # activities that are no kernels
KINDS = (*kernels.KINDS, *OTHERS)


def kind(joined: Attributed) -> tuple[Ints, tuple[str, ...]]:
    """Return the kind of each activity, as a code, and the names: that of a kernel, copy, fill or graph."""
    code, known = _kernels(joined)
    of_kernel = _coded(known, lambda kernel: KINDS.index(kernel.kind))[code]
    activities = joined.report.activities["kind"]
    as_such = [KINDS.index(name) if name in OTHERS else NONE for name in frames.ACTIVITY_KINDS]
    of_others = np.array([*as_such, NONE], np.int64)[frames.codes(activities)]
    return np.where(code == NONE, of_others, of_kernel), KINDS


def library(joined: Attributed) -> tuple[Ints, tuple[str, ...]]:
    """Return the library of each kernel, as a code, and the names, '' for not known; NONE for what is no kernel."""
    code, known = _kernels(joined)
    names = tuple(sorted({kernel.library for kernel in known}))
    return _coded(known, lambda kernel: names.index(kernel.library))[code], names


def made_of(joined: Attributed) -> tuple[Ints, tuple[str, ...]]:
    """Return what each kernel was fused from, ``add, mul``, as a code, and the names; NONE for all that was not."""
    code, names = _names(joined)
    texts = [", ".join(kernels.source_ops(name)) for name in names]
    distinct = tuple(sorted({text for text in texts if text}))
    place = {text: at for at, text in enumerate(distinct)}
    return np.array([*(place.get(text, NONE) for text in texts), NONE], np.int64)[code], distinct


def tensor_cores(joined: Attributed) -> Ints:
    """Return for each activity whether it uses Tensor Cores: YES, NO or UNKNOWN of `bridge.knowledge.kernels`."""
    code, known = _kernels(joined)
    return np.where(
        code == NONE, kernels.NO, _coded(known, lambda kernel: kernel.tensor_cores)[code]
    )


def is_kind(joined: Attributed, *wanted: str) -> Flags:
    """Tell which activities are of one of these kinds."""
    code, names = kind(joined)
    among: Flags = np.array([name in wanted for name in names])
    return among[code]


def eligible(joined: Attributed) -> Flags:
    """Tell which ops (a code into ``joined.ops``; the last entry is for none) could use Tensor Cores."""
    return np.array([*map(kernels.eligible, joined.ops), False], bool)


def eligible_activities(joined: Attributed) -> Flags:
    """Tell which activities are kernels of an op that could use Tensor Cores: of the innermost one."""
    flags: Flags = eligible(joined)[joined.activity_op]
    return flags & frames.is_kind(joined.report.activities, frames.KERNEL)


def _kernels(joined: Attributed) -> tuple[Ints, list[Kernel]]:
    """Return what each activity is, as a code or NONE for what is no kernel, and the distinct ones."""
    code, names = _names(joined)
    return code, kernels.kinds_of(names, joined.kernel_rules)


def _names(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return the name of each kernel, as a code or NONE for what is none, and those in use: demangled if recorded."""
    activities = joined.report.activities
    full, short = activities["full_name"], activities["name"]
    own, other = frames.codes(full), frames.codes(short)
    listed = [*full.cat.categories, *short.cat.categories, ""]
    both = np.where(own == NONE, other + len(full.cat.categories), own)
    both[(own == NONE) & (other == NONE)] = len(listed) - 1
    code = np.full(len(both), NONE)
    rows = np.flatnonzero(frames.is_kind(activities, frames.KERNEL))
    code[rows], used = pd.factorize(both[rows])
    return code, [str(listed[place]) for place in used.tolist()]


def _coded(known: list[Kernel], of: Callable[[Kernel], int]) -> Ints:
    """Return a number of each kernel, and NONE last: for no kernel."""
    return np.array([*map(of, known), NONE], np.int64)


# -- How much of the kernels' time is on Tensor Cores, by their names, and how much is of ops that could use them


TENSOR_CORES = "tensor-cores"
TENSOR_CORE_COLUMNS = tuple(
    "tensor_core_ns tensor_core_share eligible_ns tensor_core_unknown_ns in_kernels_ns".split()
)


def tensor_core_times(
    joined: Attributed, rows: Ints, group: Ints, groups: int
) -> dict[str, np.ndarray]:
    """Return `COLUMNS` of each group, times in ns: ``rows`` are activities, each in a ``group``.

    ``in_kernels_ns`` is the time of kernels, ``tensor_core_share`` of that; ``eligible_ns`` is of kernels whose innermost op
    could use Tensor Cores.
    """
    time, used = joined.duration[rows], tensor_cores(joined)[rows]
    is_kernel = frames.is_kind(joined.report.activities, frames.KERNEL)[rows]

    def of(which: np.ndarray) -> Ints:
        return sums(group[which], time[which], groups)

    whole, on_them = of(is_kernel), of(used == YES)
    return {
        "in_kernels_ns": whole,
        "tensor_core_ns": on_them,
        "tensor_core_unknown_ns": of(used == UNKNOWN),
        "tensor_core_share": ratio(on_them, whole),
        "eligible_ns": of(eligible_activities(joined)[rows]),
    }
