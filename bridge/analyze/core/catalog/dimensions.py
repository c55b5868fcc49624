"""The dimensions: what the rows of a table can be grouped by, alone or combined (`--by op,shape`).

`bridge.analyze.tables.dimensions` gives each event its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.analyze.core.catalog.views import ACTIVITIES, CALLS, GEOMETRY, RANGES, SOURCE_DETAILS

INPUTS = ("json",)  # details of inputs of ops, and of ranks: recordings have them


@dataclass(frozen=True)
class Dimension:
    """What rows are grouped by.

    Attributes:
        name: as `--by` takes it.
        meaning: what a row is, for `--by list` and the documentation.
        kind: `RANGES`, with the work launched in them, `CALLS` with what they launched, or
            `ACTIVITIES`.
        labels: the columns that name a row; the name of the dimension if there are none.
        details: columns of a capture that importers read only for the tables that need them.
        of_one_report: whether a row always belongs to one report.
        kept: whether the store keeps a table by this dimension alone, unless a `View` has its name.
            Tables with about one row per call are too large.
        comparable: whether its values mean the same in two runs.
        page: the page of the documentation that says more.

    """

    name: str
    meaning: str
    kind: str = RANGES
    labels: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    of_one_report: bool = False
    kept: bool = True
    comparable: bool = True
    page: str = ""

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that name a row."""
        return self.labels or (self.name,)


DIMENSIONS: Mapping[str, Dimension] = {
    dimension.name: dimension
    for dimension in (
        Dimension("op", "the op"),
        Dimension("path", "the ops around it, the outermost first", kept=False),
        Dimension("module", "the modules around it", details=("category",)),
        Dimension(
            "custom-op",
            "the part of a custom operator: `Op::pure_python`, its own code, or `Op::aten::add`, an op in it",
            labels=("part",),
            details=("category",),
            kept=False,
            page="annotate.md#custom-operators",
        ),
        Dimension("direction", "forward, backward or neither"),
        Dimension(
            "shape", "shapes of the inputs, as PyTorch or recordings give them", details=INPUTS
        ),
        Dimension("dtype", "types of the inputs", details=INPUTS),
        Dimension("strides", "strides of the inputs", details=INPUTS, page="torch.md#ops"),
        Dimension(
            "overload",
            "the overload of the op: `Tensor` of `aten::add.Tensor`",
            details=INPUTS,
            page="torch.md#ops",
        ),
        Dimension(
            "stack",
            "the call stack that was recorded for the op, the innermost frame first",
            details=INPUTS,
            kept=False,
            page="torch.md#ops",
        ),
        Dimension("step", "the step, −1 outside of steps", page="steps.md"),
        Dimension("phase", "the start/end range that began last", page="attribution.md#phases"),
        Dimension(
            "thread",
            "the thread that made the call",
            labels=("pid", "tid", "thread", "report"),
            of_one_report=True,
            comparable=False,
        ),
        Dimension(
            "process",
            "the process that made the call",
            labels=("pid", "process", "report"),
            of_one_report=True,
            comparable=False,
        ),
        Dimension(
            "report", "the file, where there are several", of_one_report=True, comparable=False
        ),
        Dimension("rank", "the rank of the process", details=INPUTS, page="ranks.md"),
        Dimension("host", "the machine", details=INPUTS, page="ranks.md"),
        Dimension("api", "the CUDA API call", CALLS),
        Dimension("kernel", "the kernel", ACTIVITIES),
        Dimension("memcpy", "the memcpy by its direction, or memset", ACTIVITIES, ("operation",)),
        Dimension("kind", "the kind of work", ACTIVITIES, page="kernels.md"),
        Dimension("library", "the library that the kernel is from", ACTIVITIES, page="kernels.md"),
        Dimension(
            "fused",
            "the ops that a fused kernel computes",
            ACTIVITIES,
            details=INPUTS,
            page="kernels.md",
        ),
        Dimension("device", "the GPU", ACTIVITIES, of_one_report=True),
        Dimension(
            "stream",
            "the stream, by GPU, process and context",
            ACTIVITIES,
            ("device", "pid", "context", "stream"),
            of_one_report=True,
            comparable=False,
        ),
        Dimension(
            "geometry",
            "grid, block, registers and shared memory of the launch",
            ACTIVITIES,
            ("grid", "block", "registers", "shared_bytes"),
            details=GEOMETRY,
        ),
        Dimension(
            "source",
            "the line of the program that launched it",
            ACTIVITIES,
            ("function", "source"),
            details=(*SOURCE_DETAILS, "json"),
            page="source.md",
        ),
    )
}
