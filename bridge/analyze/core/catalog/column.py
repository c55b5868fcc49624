"""The description of a table's columns, from which all other rooms read them.

The text files beside this module describe the columns, one line each::

    [device]                                            the table that follows
    terminal: device busy_ns busy_share                 what a terminal shows, in this order
    device     | device  | name     |                  |     | GPU
    busy_ns    | busy    | ns       |                  | bar | time with any activity running
    busy_share | of run  | fraction | busy_ns / run_ns |     | busy_ns by run_ns
    @os-times                                           the columns of another section

The fields of a line are name, heading, unit, how it adds up (`sum`, `reports`, `times`, or the two
parts of a ratio), how it is displayed (attributes of `Column`, `hidden` and `request`), and its
meaning. `[@name]` begins a section that is no table. Before its columns a section may say:

- ``terminal``: what a terminal shows, in this order; else all that are not `hidden`.
- ``default``, ``optional``: the columns of which these attributes hold, in place of their own.
- ``reads``: `Column.details` of its columns.
- ``set NAME``: columns that `--columns` takes by one name. ``gpu_*`` are all that begin so,
  ``@name`` those of another section.

Tables, renderers, reports in windows and on workers, `--columns`, the completion of the shell and
the documentation read these descriptions. Nothing here loads pandas or NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.knowledge.package import data_file

# -- Units: how the values of a column are written for people; JSON and CSV hold the plain values

NAME = "name"  # text
PATH = "path"  # text with slashes: its end says more than its beginning
ID = "id"  # an integer that counts nothing, such as a process id
INSTANT = "time"  # on the clock of the report, in ns; shown to people from the first event on
STEP = "step"  # number of a step, -1 for what is outside of all steps
COUNT = "count"
NUMBER = "number"  # two decimals
FIGURE = "figure"  # four significant digits
NS = "ns"
BYTES = "bytes"
BYTES_CHANGE = "±bytes"
CLOCK_OFFSET = "±ns"
SHARE = "fraction"  # 0 to 1, written in per cent
CHANGE = "±fraction"
PERCENT = "%"  # 0 to 100
GB_PER_S = "GB/s"  # 10**9 bytes per second
FLOP = "FLOP"
TFLOP_PER_S = "TFLOP/s"
ADDRESS = "address"
ROW = "row"  # of a frame, as `bridge why` takes it
NAMES = frozenset([NAME, PATH])
FRACTIONS = frozenset([FIGURE, FLOP, GB_PER_S, NUMBER, PERCENT, SHARE, TFLOP_PER_S, CHANGE])
UNITS = (
    NAMES
    | FRACTIONS
    | {ID, INSTANT, STEP, COUNT, NS, BYTES, BYTES_CHANGE, CLOCK_OFFSET, ADDRESS, ROW}
)
TEXT, INTEGER, FRACTION = ("string", "integer", "number")  # types of values, as JSON calls them
# Ends of the names of times that are means or percentiles, and of samples that nsys takes in whole per cent.
MEANS = ("mean_ns", "median_ns", "p50_ns", "p95_ns", "p99_ns")
SAMPLES = "_peak"
TIMES = frozenset([NS, INSTANT])

# -- Merge: how the values of several windows of a report, or of several reports, become one value

NOT_MERGED = ""  # they do not: the value needs all of a report at once
REPORTS = "reports"  # a sum; within one report, the value needs all that ran at the same time
WINDOWS = "sum"  # over windows and reports
FROM_TIMES = "times"  # computed from the times of all calls or activities together
RATIO = "ratio"  # computed from its two parts
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
STATISTICS = ("mean", "min", *QUANTILES, "max")  # of times


def statistic_names(prefix: str) -> tuple[str, ...]:
    """Return the names of statistics: ``<prefix>mean_ns``, min, p50, p95, p99, max."""
    return tuple(f"{prefix}{name}_ns" for name in STATISTICS)


# Denominators of shares that are no column: times in ns that rows are a part of.
ALL_GPU, ALL_KERNELS, ALL_CALLS, ALL_CPU = ("gpu", "kernels", "calls", "cpu")
WHOLES = {
    ALL_GPU: "GPU time of all activities",
    ALL_KERNELS: "time of all kernels",
    ALL_CALLS: "time of all API calls",
    ALL_CPU: "CPU time of all ranges",
}


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
        merge: one of `NOT_MERGED`, `REPORTS`, `WINDOWS`, `FROM_TIMES`, `RATIO`. A ratio whose
            parts add up has `RATIO`.
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


# -- Reading descriptions

Sections = dict[str, TableColumns]
DISPLAY = {  # what the words of a line set
    **{name: {name: True} for name in "stored missing optional bar quiet distinct".split()},
    "hidden": {"terminal": False},
    "request": {"terminal": False, "default": False},
}


def read_columns(text: str, known: Sections | None = None) -> Sections:
    """Return the sections of a text by name, as described above; they may use those that are ``known``.

    Raises ValueError if a section has a line of none of these forms.
    """
    result: Sections = dict(known or {})
    for part in f"\n{text}".split("\n[")[1:]:
        name, _, body = part.partition("]\n")
        lines = [line for line in body.splitlines() if line and line[0] != "#"]
        try:
            result[name] = _section(lines, result)
        except (KeyError, ValueError) as error:
            raise ValueError(f"columns of [{name}]: {error}") from error
    return result


def _section(lines: list[str], known: Sections) -> TableColumns:
    parts: list[TableColumns] = []
    options: dict[str, list[str]] = {}
    for line in lines:
        if line[0] == "@":
            parts.append(_other(line, known))
        elif "|" in line:
            parts.append(TableColumns((_column(line),)))
        else:
            key, _, value = line.partition(":")
            options[key] = value.split()
    columns = _merged([_with_options(column, options) for part in parts for column in part.columns])
    names = [column.name for column in columns]
    sets = {name: columns for part in parts for name, columns in part.sets.items()} | {
        key[4:]: tuple(name for word in words for name in _meant(word, names, known))
        for key, words in options.items()
        if key.startswith("set ")
    }
    return TableColumns(tuple(columns), tuple(options.get("terminal", ())), sets)


def _other(name: str, known: Sections) -> TableColumns:
    """Return the section that ``@name`` stands for, or the table of that name."""
    return known[name] if name in known else known[name[1:]]


def _column(line: str) -> Column:
    name, heading, unit, adds_up, display, meaning = (part.strip() for part in line.split("|"))
    if unit not in UNITS:
        raise ValueError(f"no unit {unit!r}: {name}")
    flags: dict[str, Any] = {}
    for word in display.split():
        flags |= DISPLAY[word]
    above, is_ratio, below = adds_up.partition(" / ")
    if is_ratio:
        return Column(name, heading, unit, meaning, ratio=(above, below), **flags)
    return Column(name, heading, unit, meaning, merge=adds_up, **flags)


def _with_options(column: Column, options: Mapping[str, list[str]]) -> Column:
    """Return the column with what its section says of it."""
    changes: dict[str, Any] = {
        key: column.name in options[key] for key in ("default", "optional") if key in options
    }
    if "reads" in options:
        changes["details"] = tuple(options["reads"])
    return replace(column, **changes) if changes else column


def _merged(columns: list[Column]) -> list[Column]:
    """Return the columns; a ratio of values that add up adds up by its parts."""
    merged = {column.name for column in columns if column.merge}.union(WHOLES)
    return [
        replace(column, merge=RATIO if merged.issuperset(column.ratio) else NOT_MERGED)
        if column.ratio
        else column
        for column in columns
    ]


def _meant(word: str, names: list[str], known: Sections) -> Iterable[str]:
    """Return the columns that a word of a set stands for."""
    if word[0] == "@":
        return _other(word, known).names
    return [name for name in names if name.startswith(word[:-1])] if word[-1] == "*" else [word]


# The columns of all tables, and of sections that several tables include: those begin with "@".
FILES = "shared counters breakdown ranges host devices commands memory".split()
COLUMNS: Mapping[str, TableColumns] = read_columns(
    "".join(data_file("bridge.analyze.core.catalog", f"{name}.txt") for name in FILES)
)
