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

import json_schemas

from bridge.store.tables import VERSION, open_store

HERE = Path(__file__).parent / "formats"
WIDTH = 160
STORE, API = (HERE / name for name in ("bridge.db.sql", "api.txt"))


def documents() -> Iterator[tuple[Path, str]]:
    """Yield the file of each JSON Schema, and its text."""
    for name, schema in json_schemas.schemas():
        yield HERE / name, f"{_written(schema)}\n"


def _written(value: Any, indent: str = "") -> str:
    """Return JSON in which a value that fits stands on one line: a line per column of a table."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or len(indent) + len(line) <= WIDTH:
        return line
    inner = f"{indent} "
    if isinstance(value, list):
        return _block("[]", [_written(item, inner) for item in value], indent)
    items = (f"{json.dumps(key)}: {_written(item, inner)}" for key, item in value.items())
    return _block("{}", list(items), indent)


def _block(ends: str, items: list[str], indent: str) -> str:
    lines = f",\n{indent} ".join(items)
    return f"{ends[0]}\n{indent} {lines}\n{indent}{ends[1]}"


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
    for path, text in documents():
        path.write_text(text, encoding="utf-8")
    STORE.write_text(store_tables(), encoding="utf-8")
