"""Find what can be read of an SQLite file: its tables, and views that only rename tables or columns.

A view can run any code, an endless loop too. Therefore no view is executed: one whose whole text is
``SELECT columns FROM table`` is read from that table, any other is listed as computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bridge.importers.records import record

ROWID = "rowid"
MAX_VIEW_DEPTH = 8  # views of views

_NAME = r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[[^\]]+\]|[^\W\d]\w*)'
_ITEM = rf"{_NAME}(?:\s+AS\s+{_NAME})?"
# Texts, which `re` compiles at the first view: that takes 15 ms, and few reports have one.
_VIEW = (
    rf"CREATE\s+VIEW\s+{_NAME}\s+AS\s+SELECT\s+(?P<columns>\*|{_ITEM}(?:\s*,\s*{_ITEM})*)"
    rf"\s+FROM\s+(?P<table>{_NAME})\s*"
)
_COLUMN = rf"({_NAME})(?:\s+AS\s+({_NAME}))?"
_WITHOUT_ROWID = re.compile(r"\bWITHOUT\s+ROWID\b", re.IGNORECASE)


@record
class Source:
    """What the rows of a table come from.

    ``sql`` stands after FROM; ``columns`` holds for each column whether it is never NULL.
    ``has_rowid`` is False where rows cannot be selected by number: WITHOUT ROWID, or a column
    called rowid.
    """

    sql: str
    columns: Mapping[str, bool]
    has_rowid: bool


@record
class Sources:
    """The readable tables and views of a file by name, and the names of computed views."""

    tables: Mapping[str, Source]
    computed: frozenset[str]

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Mapping[str, bool]],
        table_texts: Mapping[str, str],
        view_texts: Mapping[str, str],
    ) -> Sources:
        """Return the sources for the columns of tables, and the texts of tables and views.

        ``table_texts`` may leave out tables whose text does not contain the word rowid.
        """
        tables = {
            name: Source(
                quoted(name), present, _has_rowid(present) and not _is_keyed(table_texts.get(name))
            )
            for name, present in columns.items()
        }
        views = {
            name: re.fullmatch(_VIEW, text, re.IGNORECASE) for name, text in view_texts.items()
        }
        for _ in range(MAX_VIEW_DEPTH):
            by_lower_name = {name.lower(): source for name, source in tables.items()}
            for name, match in views.items():
                base = by_lower_name.get(_unquoted(match["table"]).lower()) if match else None
                if match and base and name not in tables and (view := _view(match, base)):
                    tables[name] = view
        return cls(tables, frozenset(views) - frozenset(tables))


def quoted(name: str) -> str:
    """Return a name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _unquoted(name: str) -> str:
    if name[0] not in '"`[':
        return name
    return name[1:-1].replace(name[0] * 2, name[0])


def _view(match: re.Match[str], base: Source) -> Source | None:
    """Return the source of a view of ``base``, None if it selects anything but columns."""
    if match["columns"] == "*":
        return base
    by_lower_name = {name.lower(): name for name in base.columns}
    items = [
        [_unquoted(n) for n in item if n]
        for item in re.findall(_COLUMN, match["columns"], re.IGNORECASE)
    ]
    if any(item[0].lower() not in by_lower_name for item in items):
        return None  # SQLite would read an unknown name in quotes as a text
    names = {item[-1]: by_lower_name[item[0].lower()] for item in items}
    columns = {name: base.columns[column] for name, column in names.items()}
    has_rowid = base.has_rowid and _has_rowid(columns)
    selected = [f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()]
    listed = ", ".join([ROWID] * has_rowid + selected)
    return Source(f"(SELECT {listed} FROM {base.sql})", columns, has_rowid)


def _has_rowid(columns: Iterable[str]) -> bool:
    return ROWID not in map(str.lower, columns)


def _is_keyed(text: str | None) -> bool:
    """Return whether a CREATE TABLE statement says WITHOUT ROWID, after its columns."""
    return bool(text) and bool(_WITHOUT_ROWID.search(str(text).rpartition(")")[2]))
