"""The interface of what answers requests for tables: a report, or several read as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bridge.analyze.core.table import Table

if TYPE_CHECKING:
    from bridge.analyze.core.session_cycles import ActiveCycles
    from bridge.analyze.core.totals import Totals
    from bridge.analyze.run.gpu_use import Use
    from bridge.analyze.run.ranks.table import Run
    from bridge.analyze.tables.request import TableRequest


class TableSource(Protocol):
    """The interface of a report, or of several read as one.

    `bridge.Report` and the reports of `bridge.scale` implement it.
    """

    @property
    def source(self) -> Sequence[str]:
        """The base names of the files."""

    @property
    def totals(self) -> Totals:
        """The accounting of all activities."""

    @property
    def graphs(self) -> Totals:
        """The accounting of the CUDA graphs that were recorded as a whole."""

    @property
    def op_count(self) -> int:
        """The number of ops that own at least one activity."""

    @property
    def ranges(self) -> int:
        """The number of ranges."""

    @property
    def use(self) -> Use:
        """The use of the GPUs; without any where it is unknown."""

    @property
    def busy(self) -> Use:
        """The use of the GPUs, which may lack the causes of idle time."""

    @property
    def began(self) -> int:
        """The time of the first event in ns, 0 where no table holds times."""

    @property
    def cycles(self) -> ActiveCycles | None:
        """The active cycles of a session, if the report holds other steps, too; None where unknown."""

    @property
    def rank_warnings(self) -> list[str]:
        """A warning if several processes have one rank."""

    @property
    def members(self) -> Run | None:
        """The processes of the run with their ranks; None where that is unknown."""

    def fitting(self, request: TableRequest) -> TableRequest:
        """Return the request; where its table is the default and there are no ranges, that for kernels or copies."""

    def table(self, request: TableRequest) -> Table:
        """Return a table.

        Raises ValueError with a message for the user for an unknown table or column.
        """

    def layout(self, by: str) -> str:
        """Return the name of the columns that are displayed of a table."""

    def nothing(self, by: str) -> str:
        """Return the message for a table without rows, "" for none."""
