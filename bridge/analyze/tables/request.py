"""A request for a table. Loads no pandas or NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from bridge.analyze.core.catalog import VIEWS, column_named
from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import (
    DIRECTED,
    column_meant,
    columns_are_chosen,
    columns_of,
    dimensions_of,
    labels_of,
    sorting_columns,
)
from bridge.analyze.core.catalog.views import GEOMETRY
from bridge.knowledge.suggestions import unknown_name

if TYPE_CHECKING:
    from bridge.analyze.cost.flops import Costs


BOTH = "both"
DEFAULT, ALL, FLOPS = "default", "all", "flops"
COLUMN_LIST = "--columns list"
METRIC_LIST = "list"  # among metrics: the table of those that were measured
# Flags of a single table, with that table and the columns of a capture that importers read for the flag.
FLAGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "inclusive": ("op-kernel", ()),
    "memory_kinds": ("memcpy", ("source_kind", "target_kind")),
    "arguments": ("range", ("json",)),
}


class TableOptions(TypedDict, total=False):
    """The fields of `TableRequest` that methods take as keywords."""

    inclusive: bool
    kernel_names: str
    memory_kinds: bool
    arguments: bool
    direction: str
    idle_over_ns: int | None
    costs: Costs | None
    metrics: Sequence[str]


@dataclass(frozen=True)
class TableRequest:
    """One table of a report.

    Attributes:
        by: one of `VIEWS`, or one or several `DIMENSIONS` with commas: ``op,shape``.
        columns: the requested columns or sets, by name or heading; empty for the
            default columns.
        also: columns that rows are sorted or filtered by; they are added if the table has them.
        inclusive: op-kernel: count a kernel for every op on its stack.
        kernel_names: ``readable``, ``short``, ``demangled`` or ``mangled``.
        memory_kinds: memcpy: one row per pair of kinds of memory.
        arguments: range: a column for each argument of the calls.
        direction: count only ``forward`` or ``backward`` work, or ``both``.
        idle_over_ns: gap, idle: only longer gaps; None: gaps over 10 µs are listed one by one, and
            all gaps count for the causes of idle time.
        costs: how FLOPs are counted; None for the default.
        metrics: columns of Nsight Compute's metrics; `METRIC_LIST` alone: the list of them.
        is_default: whether nobody chose the table: see `fitting`.

    """

    by: str = "op"
    columns: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    inclusive: bool = False
    kernel_names: str = "readable"
    memory_kinds: bool = False
    arguments: bool = False
    direction: str = BOTH
    idle_over_ns: int | None = None
    costs: Costs | None = None
    metrics: tuple[str, ...] = ()
    is_default: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls, view: str | Sequence[str], columns: str | Sequence[str] = (), **options: Any
    ) -> TableRequest:
        """Return a request; ``view`` and ``columns`` are lists, or texts with commas."""
        by = view if isinstance(view, str) else ",".join(view)
        metrics = tuple(options.pop("metrics", ()))
        return cls(
            ",".join(part.strip() for part in by.split(",")),
            words(columns),
            metrics=metrics,
            **options,
        )

    def check(self) -> None:
        """Raise ValueError with a message for the user for an unknown table, or options that cannot be combined."""
        for flag, (table, _) in FLAGS.items():
            if getattr(self, flag) and self.by != table:
                raise ValueError(f"--{flag.replace('_', '-')} goes with --by {table}")
        if self.direction != BOTH and self.by in VIEWS and self.by not in DIRECTED:
            directed = [*DIRECTED, *(name for name in DIMENSIONS if name not in VIEWS)]
            raise ValueError(
                f"--direction goes with --by {', '.join(directed)}, or several dimensions"
            )
        if self.by not in VIEWS:
            dimensions_of(self.by)

    def fitting(self, *, ranges: int, activities: int, kernels: int) -> TableRequest:
        """Return the request; one that nobody chose asks for kernels, else for copies, where there are no ranges.

        The numbers are those of the whole report.
        """
        if not self.is_default or ranges or not activities:
            return self
        import logging  # help does without it

        by = "kernel" if kernels else "memcpy"
        logging.getLogger("bridge.analyze").debug("no ranges: --by %s instead of op", by)
        return replace(self, by=by)

    @property
    def details(self) -> frozenset[str]:
        """The columns of a capture that importers have to read for this table only."""
        result = set(_details(self.by))
        described = columns_of(self.by).by_name
        for name in self._requested(ALL) & described.keys():
            result.update(described[name].details)
        for flag, (_, columns) in FLAGS.items():
            result |= set(columns) if getattr(self, flag) else set()
        result |= {"metrics"} if self.metrics else set()
        return frozenset(result | ({"mangled"} if self.kernel_names == "mangled" else set()))

    @property
    def needs_costs(self) -> bool:
        """Whether a requested column is computed from FLOPs or bytes of calls."""
        return not self._requested(ALL).isdisjoint(
            (*COLUMNS["@costs"].names, *COLUMNS["@step-costs"].names)
        )

    @property
    def asks_for_counters(self) -> bool:
        """Whether a column of hardware counters is requested by name, or by a set of them."""
        return not self._requested().isdisjoint(COLUMNS["@counters"].names)

    @property
    def asks_for_energy(self) -> bool:
        """Whether a column of energy is requested by name."""
        return not self._requested().isdisjoint(COLUMNS["@energy"].names)

    def _requested(self, *every: str) -> set[str]:
        """Return the columns that are requested by name or in a set; ``every`` are words for all that can be chosen."""
        described = columns_of(self.by)
        all_names = described.names if columns_are_chosen(self.by) else ()
        result: set[str] = set()
        for word in (*self.columns, *self.also):
            if word in every:
                result.update(all_names)
            elif word in described.sets and word not in described.names:
                result.update(described.sets[word])
            else:
                result.add(column_meant(word, described.names) or word)
        return result

    @property
    def figures(self) -> list[str]:
        """The columns of a table with selectable columns, without those that name its rows.

        Raises ValueError with a message for the user if the table does not have a requested column.
        """
        labels, described = labels_of(self.by), columns_of(self.by)
        every = [name for name in described.names if name not in labels]
        default = [name for name in described.default if name not in labels]
        names = chosen(self.columns, default, [*labels, *every], described.sets)
        result = [name for name in names if name not in labels]
        return result + self.besides(every, result)

    @property
    def computed(self) -> list[str]:
        """The columns to compute for such a table: its `figures` and its sorting columns."""
        figures = self.figures
        return [*figures, *(c for c in sorting_columns(self.by) if c not in figures)]

    def besides(self, every: Sequence[str], columns: Sequence[str]) -> list[str]:
        """Return the columns of ``every`` to sort or filter by that ``columns`` lacks."""
        names = (column_meant(name, every) for name in self.also)
        return [c for c in dict.fromkeys(names) if c is not None and c not in columns]


def words(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of a list, or of a text with commas."""
    parts = columns.split(",") if isinstance(columns, str) else columns
    return tuple(part.strip() for part in parts if part.strip())


def chosen(
    columns: Iterable[str],
    default: Sequence[str],
    every: Sequence[str],
    sets: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the requested columns, each once, in the order of ``columns``.

    A word is a set, "default", "all", or a column as `column_named` takes it. Raises ValueError
    with a message for the user for any other word.
    """
    sets_by_name = {
        DEFAULT: default,
        ALL: [*default, *(c for c in every if c not in default)],
        **sets,
    }
    result: list[str] = []
    for word in columns or (DEFAULT,):
        if word in sets_by_name and word not in every:
            result += sets_by_name[word]
            continue
        column = column_named(word, [*every, *default])
        if column is None:
            raise ValueError(unknown_name("column", word, [*every, *sets_by_name], COLUMN_LIST))
        result.append(column)
    return list(dict.fromkeys(result))


def _details(by: str) -> Iterable[str]:
    """Return the details that all columns of a table need."""
    if by in VIEWS:
        return VIEWS[by].details
    return (name for dimension in dimensions_of(by) for name in DIMENSIONS[dimension].details)


NCU_DETAILS = frozenset(GEOMETRY)  # needed to match the kernels of Nsight Compute's reports
