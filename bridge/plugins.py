"""Checks, tables and readers that installed packages add by entry points: see docs/plugins.md.

They are loaded for lists, and for a name or a file that nothing built in knows, and handed to the
rooms below. One that is of no use is named in a warning and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.tables.request import TableOptions, TableRequest
from bridge.knowledge import entry_points
from bridge.knowledge.entry_points import Addition, AdditionError

if TYPE_CHECKING:
    from bridge.analyze.checks.additions import Checks
    from bridge.importers.capture import Capture, Reader
    from bridge.importers.nsys.tables import Details


@cache
def every_check() -> Checks:
    """Return the built-in checks and those that packages add."""
    from bridge.analyze.checks.additions import all_checks

    return all_checks(entry_points.load_entry_points(entry_points.RULES))


def table_request(
    view: str | Sequence[str], columns: str | Sequence[str] = (), **options: Unpack[TableOptions]
) -> TableRequest:
    """Return `TableRequest.of` the arguments, for a table that may be of a package."""
    request = TableRequest.of(view, columns, **options)
    add_tables(request.by)
    return request


def add_tables(by: str = "") -> None:
    """Add the tables of packages to `VIEWS`, unless ``by`` names one that is there or dimensions."""
    if by not in VIEWS and not DIMENSIONS.keys() >= {*by.split(",")}:
        _add_tables()


@cache
def _add_tables() -> None:
    if found := entry_points.load_entry_points(entry_points.TABLES):
        from bridge.analyze.tables.additions import add  # with NumPy, which completion does without

        add(found)


@cache
def readers() -> tuple[Reader, ...]:
    """Return the readers that packages add, for `bridge.importers.load`."""
    from bridge.importers.capture import Reader

    result = []
    for one in entry_points.load_entry_points(entry_points.READERS):
        if isinstance(one.value, Reader):
            result.append(_guarded(one.value, one))
        else:
            one.warn(f"{one.value!r} is not a Reader")
    return tuple(result)


def _guarded(reader: Reader, addition: Addition) -> Reader:
    """Return a reader that raises ReportError alone; where it cannot say whether a file fits, it does not."""
    from bridge.importers.capture import defects
    from bridge.importers.errors import NotAReport, ReportError

    def fits(path: Path) -> bool:
        with addition:
            return bool(reader.fits(path))
        return False

    def checked(path: Path, details: Details) -> Capture:
        capture = reader.read(path, details)
        if wrong := next(defects(capture), ""):
            raise TypeError(wrong)
        return capture

    def read(path: Path, details: Details) -> Capture:
        try:
            result: Capture = addition.call(checked, path, details, own=(OSError, ReportError))
        except AdditionError as error:
            raise NotAReport(f"{path.name}: {error}") from error
        except ReportError as error:
            raise NotAReport(" ".join(str(error).split())) from error
        return result

    return reader._replace(fits=fits, read=read)
