"""One row per key, and the list of them, with the names that PyTorch's profiler gives them; times in µs.

The invariant: frames hold nanoseconds; whatever goes by a name of PyTorch's is made of these, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, overload

import pandas as pd

from bridge.analyze.tables.average_text import Cut, in_unit, table

US = 1000  # ns
TOTAL = "Total"
TIMES = ("cpu_time", "device_time", "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total")  # fmt: skip


class DeviceType(IntEnum):
    """Where a row's time was spent, by PyTorch's numbers."""

    CPU = 0
    CUDA = 1

    def __str__(self) -> str:
        return f"DeviceType.{self.name}"


@dataclass(frozen=True)
class Average:
    """All calls of one key; ``cpu_parent`` tells, as far as a table asks, whether any is outermost."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total: float
    self_device_time_total: float
    device_type: DeviceType = DeviceType.CPU
    use_device: str | None = None
    is_user_annotation: bool = False
    input_shapes: Any = ""
    stack: Sequence[str] = ()
    flops: float = 0
    is_top: bool = True
    # What is not recorded:
    overload_name: str = ""
    cpu_children: Sequence[Any] = ()
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    node_id: int = -1
    scope: int = 0
    is_async: bool = False
    is_remote: bool = False
    is_legacy: bool = False

    @property
    def cpu_time(self) -> float:
        """The mean of a call on the host."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean of a call on devices."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cpu_parent(self) -> str | None:
        """None if a call of it is in no other, as PyTorch's tables ask."""
        return None if self.is_top else ""

    def __getattr__(self, name: str) -> Any:
        """Give ``…_str``, and what older versions named after CUDA."""
        if name.endswith("_str") and name.removesuffix("_str") in TIMES:
            return in_unit(getattr(self, name.removesuffix("_str")))
        if "cuda" in name:
            return getattr(self, name.replace("cuda", "device"))
        raise AttributeError(f"{type(self).__name__!r} has no {name!r}")

    def __repr__(self) -> str:
        return (
            f"<Average key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str}"
            f" cpu_time={self.cpu_time_str} device_time={self.device_time_str}>"
        )


@dataclass(frozen=True, eq=False)
class Averages(Sequence[Average]):
    """Rows in the order in which their first calls began.

    ``frame`` holds them in ns: key, device_type ("cpu", "cuda"), is_user_annotation, count, self_cpu_ns,
    cpu_total_ns, self_device_ns, device_total_ns, input_shapes and stack (texts, a stack's entries by lines, innermost first), flops,
    is_top. ``shapes`` are the values behind the texts.
    """

    frame: pd.DataFrame
    use_device: str | None = None
    shapes: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    @overload
    def __getitem__(self, index: int) -> Average: ...
    @overload
    def __getitem__(self, index: slice) -> list[Average]: ...
    def __getitem__(self, index: int | slice) -> Average | list[Average]:
        """Return a row by its place, or some of them."""
        if isinstance(index, slice):
            return [self._row(one) for one in self.frame.iloc[index].to_dict("records")]
        return self._row(self.frame.iloc[index].to_dict())

    def __iter__(self) -> Iterator[Average]:
        return iter(self[:])

    def _row(self, said: dict[Any, Any]) -> Average:
        return Average(
            key=said["key"],
            count=int(said["count"]),
            cpu_time_total=int(said["cpu_total_ns"]) / US,
            self_cpu_time_total=int(said["self_cpu_ns"]) / US,
            device_time_total=int(said["device_total_ns"]) / US,
            self_device_time_total=int(said["self_device_ns"]) / US,
            device_type=DeviceType[said["device_type"].upper()],
            use_device=self.use_device,
            is_user_annotation=bool(said["is_user_annotation"]),
            input_shapes=self.shapes.get(said["input_shapes"], ""),
            stack=tuple(said["stack"].splitlines()),
            flops=said["flops"],
            is_top=bool(said["is_top"]),
        )

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the self times, in µs."""
        return int(self.frame["self_cpu_ns"].sum()) / US

    def total_average(self) -> Average:
        """Return one row of all: every moment of the host once, and every activity once.

        Raises ValueError where there is no row.
        """
        if not len(self):
            raise ValueError("there is no total of nothing")
        on_device = self.frame["device_type"] != "cpu"
        host = int(self.frame["self_cpu_ns"].sum()) / US
        device = int(self.frame.loc[on_device, "self_device_ns"].sum()) / US
        count, flops = int(self.frame["count"].sum()), self.frame["flops"].sum()
        return Average(TOTAL, count, host, host, device, device, use_device=self.use_device, flops=flops)  # fmt: skip

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
        cut = Cut(
            row_limit,
            max_name_column_width,
            max_shapes_column_width,
            top_level_events_only,
            max_src_column_width,
        )
        return table(self[:], sort_by, cut, header, time_unit, with_flops=True)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Averages: {len(self)} keys>"
