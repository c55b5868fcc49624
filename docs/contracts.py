"""Write what other programs may rely on: the schema of JSON reports, the tables of the store, the public names.

python docs/contracts.py

`bridge.report-2.schema.json` describes what `--format json` prints, `bridge.db.sql` what `bridge import` leaves behind,
`api.txt` the names that programs may import. A test compares them with the code; `api-VERSION.txt` holds the names of
a release, and what changed since then must be in the changelog.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bridge.analyze.columns import TABLES, TableColumns
from bridge.analyze.columns.column import (
    CHANGE,
    FIGURE,
    GB_PER_S,
    NAMES,
    NUMBER,
    PERCENT,
    SHARE,
    TFLOP_PER_S,
    Column,
)
from bridge.render.document import FORMAT
from bridge.store.tables import VERSION, open_store

HERE = Path(__file__).parent / "formats"
REPORT, STORE, API = (
    HERE / name for name in ("bridge.report-2.schema.json", "bridge.db.sql", "api.txt")
)
FRACTIONS = {FIGURE, GB_PER_S, NUMBER, PERCENT, SHARE, TFLOP_PER_S, CHANGE}
TIME = {"type": "integer", "description": "ns"}
AMOUNT = {
    "type": "object",
    "required": ["activities", "gpu_ns"],
    "properties": {"activities": {"type": "integer"}, "gpu_ns": TIME},
}
TOTALS = {
    "type": "object",
    "description": "all activities of the report, whatever the rows are",
    "required": ["activities", "gpu_ns", "attributed_ns", "unattributed"],
    "properties": {
        "activities": {"type": "integer"},
        "gpu_ns": TIME,
        "attributed_ns": TIME,
        "unattributed": {
            "type": "object",
            "description": "by reason",
            "additionalProperties": AMOUNT,
        },
    },
}


def report_schema() -> str:
    """Return the JSON Schema of `bridge.report/2`."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "bridge.report-2.schema.json",
        "title": "What bridge report --format json prints",
        "description": "Integers are 64 bits. Names of times end in _ns, and -1 stands for an unknown integer where a column says so. New columns may be added; those here keep their names and meanings.",
        "type": "object",
        "required": ["format", "by", "source", "totals", "rows"],
        "properties": {
            "format": {"const": FORMAT},
            "by": {
                "type": "string",
                "description": "the dimensions of the rows, separated by commas",
            },
            "source": {
                "type": "array",
                "items": {"type": "string"},
                "description": "names of the files",
            },
            "totals": TOTALS,
            "units": {"type": "object", "additionalProperties": {"type": "string"}},
            "run_ns": TIME,
            "rows": {"type": "array", "items": {"type": "object"}},
        },
        "allOf": [
            {
                "if": {"properties": {"by": {"const": name}}},
                "then": {"properties": {"rows": {"items": {"$ref": f"#/$defs/{name}"}}}},
            }
            for name in _dimensions()
        ],
        "$defs": {name: _row(TABLES[name]) for name in _dimensions()},
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _dimensions() -> Iterator[str]:
    """Yield the tables that `bridge report --by` prints under their own names."""
    from bridge.analyze.tables.views import VIEWS

    yield from (name for name in TABLES if name in VIEWS)


def _row(table: TableColumns) -> dict[str, Any]:
    columns = {column.name: _value(column) for column in table.columns}
    return {"type": "object", "required": [*table.default], "properties": columns}


def _value(column: Column) -> dict[str, Any]:
    types = (
        ["string"]
        if column.unit in NAMES
        else ["number"]
        if column.unit in FRACTIONS
        else ["integer"]
    )
    unknown = "; −1 where it is not known" if column.missing else ""
    return {"type": types[0], "description": f"{column.meaning} ({column.unit}){unknown}"}


def store_tables() -> str:
    """Return the statements that make the tables and views of the store."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bridge.db")
        path.touch()
        with open_store(path):
            pass
        with closing(sqlite3.connect(path)) as store:
            made = store.execute(
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
            )
            statements = [f"{sql};\n" for (sql,) in made]
    head = f"-- The tables of bridge.db, schema version {VERSION}. Made by docs/contracts.py.\n"
    return "\n".join([head, *statements])


# -- The public names


PUBLIC_MODULES = (
    "bridge", "bridge.autorun", "bridge.bench", "bridge.cupy", "bridge.jax", "bridge.memory", "bridge.power", "bridge.torch",
)  # fmt: skip


def api() -> str:
    """Return a line per public name: functions and methods with their signatures, classes with their bases."""
    import griffe

    loaded = griffe.load("bridge", search_paths=[str(HERE.parents[1])])
    lines = {line for name in PUBLIC_MODULES for line in _module_lines(loaded, name)}
    return "\n".join(sorted(lines)) + "\n"


def _module_lines(package: Any, name: str) -> Iterator[str]:
    """Yield the lines of what a module's `__all__` names, wherever it is defined."""
    module = package[name.removeprefix("bridge").removeprefix(".")] if name != "bridge" else package
    listed = [str(item).strip("'\"") for item in module.exports or ()]
    for item in listed:
        found = module.members.get(item)
        target = _resolved(package, name, item, found)
        if target is None:
            yield f"{name}.{item}"
        elif target.is_class:
            yield from _class_lines(f"{name}.{item}", target)
        elif target.is_function:
            yield f"{name}.{item}{_signature(target)}"
        elif not target.is_module:
            yield f"{name}.{item}"


def _resolved(package: Any, name: str, item: str, found: Any) -> Any:
    """Return the object that a name stands for, through imports and the table of lazy names."""
    import importlib

    try:
        value = getattr(importlib.import_module(name), item)
        place = f"{value.__module__}.{value.__qualname__}"
        return package[place.removeprefix("bridge.")]
    except (AttributeError, ImportError, KeyError):
        return found if found is not None and not found.is_alias else None


def _class_lines(path: str, target: Any) -> Iterator[str]:
    bases = ", ".join(str(base) for base in target.bases)
    yield f"class {path}({bases})"
    for name, member in target.all_members.items():
        if name.startswith("_") and name not in ("__init__", "__call__", "__enter__"):
            continue
        if member.is_alias and not member.inherited:
            continue
        if member.is_function:
            yield f"{path}.{name}{_signature(member)}"
        elif member.is_attribute:
            yield f"{path}.{name}"


def _signature(function: Any) -> str:
    return function.signature().partition("(")[1] + function.signature().partition("(")[2]


if __name__ == "__main__":
    API.write_text(api(), encoding="utf-8")
    REPORT.write_text(report_schema(), encoding="utf-8")
    STORE.write_text(store_tables(), encoding="utf-8")
