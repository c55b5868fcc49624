"""Lists of calls or averages, with the methods that PyTorch's have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from bridge.analyze.averages.table import Cut, table
from bridge.compat.calls import Happened
from bridge.compat.torch_profiler.events import FunctionEvent, FunctionEventAvg, Measured, averages

One = TypeVar("One", bound=Measured)
TOTAL = "Total"


class EventList(list[One]):
    """Calls in the order of their begin, or averages."""

    def __init__(
        self,
        events: Iterable[One] = (),
        *,
        with_flops: bool = False,
        recorded: Happened | None = None,
    ) -> None:
        super().__init__(events)
        self._with_flops = with_flops
        self._recorded = recorded or Happened()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the self times, in µs."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,  # noqa: ARG002 - no stacks are recorded: all are alike
        group_by_overload_name: bool = False,  # noqa: ARG002 - nor are overloads
    ) -> EventList[FunctionEventAvg]:
        """Return one row per name, or per name and shapes."""
        calls: Any = self
        found = averages(calls, shapes=group_by_input_shapes)
        return EventList(found, with_flops=self._with_flops, recorded=self._recorded)

    def total_average(self) -> FunctionEventAvg:
        """Return one row of all; self times alone make sense in it."""
        calls: Iterable[Any] = self
        total: FunctionEventAvg | None = None
        for event in calls:
            total = total or FunctionEventAvg(event, TOTAL, shapes=False)
            total.add(event)
        if total is None:
            raise ValueError("there is no total of nothing")
        return total

    def table(  # noqa: PLR0913, PLR0917 - theirs
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return a table, largest first by ``sort_by``; a limit of -1 shows all.

        Raises AttributeError for a key that there is not.
        """
        del max_src_column_width  # of a column that there is not
        cut = Cut(row_limit, max_name_column_width, max_shapes_column_width, top_level_events_only)
        return table(self, sort_by, cut, header, time_unit, self._with_flops)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a timeline, replacing the file."""
        from bridge.compat.torch_profiler.trace import export  # noqa: PLC0415 (it needs this class)

        calls: Any = self
        export(path, calls, self._recorded, {})

    def __str__(self) -> str:
        return self.table()


Events = EventList[FunctionEvent]
Averages = EventList[FunctionEventAvg]
