"""The tables of many reports are merged by workers as a tree, so that no process holds or merges them all.

The tree follows from the number of reports alone: whoever ends first, the same tables are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bridge.scale.merging import Part
from bridge.scale.task import Merge

FAN = 8  # children of a node; as many parts are left to whoever asks for the result


class Tree:
    """Nodes whose children have not all ended, and the parts that are left at the top."""

    def __init__(self, reports: int, tables: Sequence[str]) -> None:
        self.tables = tables
        self.sizes = [reports]  # of each level, from the leaves up
        while self.sizes[-1] > FAN:
            self.sizes.append(-(-self.sizes[-1] // FAN))
        self.open: dict[tuple[int, int], dict[int, tuple[Part, ...]]] = {}
        self.top: dict[int, tuple[Part, ...]] = {}

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is left at the top, in the order of the reports."""
        return tuple(part for number in sorted(self.top) for part in self.top[number])

    def report(self, place: int, tables: Part | None) -> Iterator[Merge]:
        """Take the tables of a report, None if it could not be read; yield what can be merged now."""
        part = () if tables is None else ({name: tables[name] for name in self.tables},)
        yield from self.ended(0, place, part)

    def ended(self, level: int, number: int, parts: tuple[Part, ...]) -> Iterator[Merge]:
        """Take the parts that are left of a node; yield what can be merged now."""
        if not self.tables:
            return
        if level == len(self.sizes) - 1:
            self.top[number] = parts
            return
        above = level + 1, number // FAN
        children = self.open.setdefault(above, {})
        children[number] = parts
        if len(children) < min(FAN, self.sizes[level] - above[1] * FAN):
            return
        del self.open[above]
        together = tuple(part for child in sorted(children) for part in children[child])
        if len(together) > 1:
            yield Merge(*above, together)
        else:
            yield from self.ended(*above, together)
