"""The description of a table's columns, from which all other rooms read them.

Tables, renderers, reports in windows and on workers, `--columns`, the completion of the shell and
the documentation read these descriptions. Nothing here loads pandas or NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# -- Units: how the values of a column are written for people; JSON and CSV hold the plain values

NAME = "name"  # text
PATH = "path"  # text with slashes: its end says more than its beginning
ID = "number of something"  # an integer that counts nothing, such as a process id
INSTANT = "time"  # on the clock of the report, in ns; shown to people from the first event on
STEP = "number of a step"  # -1 for what is outside of all steps
COUNT = "count"
NUMBER = "number"  # two decimals
FIGURE = "figure"  # four significant digits
NS = "ns"
BYTES = "bytes"
BYTES_CHANGE = "bytes, signed"
CLOCK_OFFSET = "ns, signed"
SHARE = "fraction"  # 0 to 1, written in per cent
CHANGE = "signed fraction"
PERCENT = "per cent"  # 0 to 100
GB_PER_S = "GB/s"  # 10**9 bytes per second
FLOP = "FLOP"
TFLOP_PER_S = "TFLOP/s"
ADDRESS = "address"
ROW = "row"  # of a frame, as `bridge why` takes it
NAMES = frozenset([NAME, PATH])
FRACTIONS = frozenset([FIGURE, FLOP, GB_PER_S, NUMBER, PERCENT, SHARE, TFLOP_PER_S, CHANGE])
TEXT, INTEGER, FRACTION = ("string", "integer", "number")  # types of values, as JSON calls them
# Ends of the names of times that are means or percentiles, and of samples that nsys takes in whole per cent.
MEANS = ("mean_ns", "median_ns", "p50_ns", "p95_ns", "p99_ns")
SAMPLES = "_peak"
TIMES = frozenset([NS, INSTANT])

# -- Merge: how the values of several windows of a report, or of several reports, become one value

NOT_MERGED = ""  # they do not: the value needs all of a report at once
REPORTS = "sum over reports"  # within one report, the value needs all that ran at the same time
WINDOWS = "sum over windows and reports"
FROM_TIMES = "statistic"  # computed from the times of all calls or activities together
RATIO = "ratio"  # computed from its two parts


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: as in data frames, JSON and CSV.
        heading: as in terminals, notebooks and Markdown.
        unit: one of the units above.
        meaning: one sentence without a full stop, for the documentation.
        ratio: numerator and denominator of a share or rate: columns of the table, or one of
            `WHOLES`.
        merge: one of `NOT_MERGED`, `REPORTS`, `WINDOWS`, `FROM_TIMES`, `RATIO`.
        stored: whether the store keeps the column of a run that was imported by workers.
        missing: whether −1 means that the value is not known.
        default: whether the table has the column unless others are requested.
        terminal: whether a terminal shows the column unless others are requested.
        optional: whether a terminal without room leaves it out.
        bar: whether a bar may stand beside it.
        quiet: whether it is left out if every row has nothing (0, "" or unknown).
        distinct: whether it is left out if every row has the same value.
        details: columns of a capture that importers read only where this column is requested.

    """

    name: str
    heading: str
    unit: str = NAME
    meaning: str = ""
    ratio: tuple[str, str] | None = None
    merge: str = NOT_MERGED
    stored: bool = False
    missing: bool = False
    default: bool = True
    terminal: bool = True
    optional: bool = False
    bar: bool = False
    quiet: bool = False
    distinct: bool = False
    details: tuple[str, ...] = ()

    @property
    def is_name(self) -> bool:
        """Whether the column holds names, which may be shortened."""
        return self.unit in NAMES

    @property
    def type(self) -> str:
        """`TEXT`, `INTEGER` or `FRACTION`: times, bytes and counts are integers unless they are means."""
        if self.is_name:
            return TEXT
        is_fraction = self.unit in FRACTIONS and not self.name.endswith(SAMPLES)
        return FRACTION if is_fraction or self.name.endswith(MEANS) else INTEGER

    def but(self, **changes: Any) -> Column:
        """Return the column with some attributes changed, for a table in which they differ."""
        return replace(self, **changes)


# Denominators of shares that are no column: times in ns that rows are a part of.
ALL_GPU, ALL_KERNELS, ALL_CALLS, ALL_CPU = ("gpu", "kernels", "calls", "cpu")
WHOLES = {
    ALL_GPU: "GPU time of all activities",
    ALL_KERNELS: "time of all kernels",
    ALL_CALLS: "time of all API calls",
    ALL_CPU: "CPU time of all ranges",
}


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, in the order of its data frame.

    ``terminal`` is the order in which a terminal shows them, if it differs. ``sets`` are
    groups of columns that `--columns` takes by one name.
    """

    columns: tuple[Column, ...]
    terminal: tuple[str, ...] = ()
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {column.name: column for column in self.columns})

    by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def default(self) -> tuple[str, ...]:
        """The columns that the table has unless others are requested."""
        return tuple(column.name for column in self.columns if column.default)

    @property
    def displayed(self) -> tuple[Column, ...]:
        """The columns that a terminal shows, in its order."""
        if self.terminal:
            return tuple(self.by_name[name] for name in self.terminal)
        return tuple(column for column in self.columns if column.terminal)

    def with_merge(self, *merges: str) -> tuple[str, ...]:
        """Return the columns whose values are merged in one of these ways."""
        return tuple(column.name for column in self.columns if column.merge in merges)

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that the store keeps of reports that workers read."""
        return tuple(column.name for column in self.columns if column.stored)

    def ratios(self) -> Iterable[tuple[str, str, str]]:
        """Yield the ratios: name, numerator, denominator."""
        return (
            (column.name, *column.ratio)
            for column in self.columns
            if column.ratio and column.merge == RATIO
        )


def table(
    *columns: Column,
    terminal: str = "",
    sets: Mapping[str, tuple[str, ...]] | None = None,
) -> TableColumns:
    """Describe a table; ``terminal`` is a list of names, separated by blanks."""
    return TableColumns(columns, tuple(terminal.split()), sets or {})
