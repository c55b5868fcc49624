"""Write what other programs may rely on: the schema of JSON reports, the tables of the store, the public names.

    python docs/contracts.py [--release VERSION]

`docs/formats/bridge.*.schema.json` describe what `--format json` prints, `bridge.db.sql` what `bridge import` leaves
behind, `api.txt` the names that programs may import. A test compares them with the code; `api-VERSION.txt` holds the
names of a release, and what changed since then must be in the changelog.
"""

from __future__ import annotations

import argparse
import json
import re
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

PUBLIC = (  # modules whose `__all__` is public, and the rest of what docs/reference shows
    "bridge", "bridge.autorun", "bridge.bench", "bridge.cupy", "bridge.jax", "bridge.memory", "bridge.power", "bridge.torch",
    "importers", "importers.errors",
)  # fmt: skip
RETURNED = ("bridge.comparison.Diff",)
SPECIAL = {"__init__", "__call__", "__enter__"}
Objects = Any  # of griffe, which has no types to check


def api() -> str:
    """Return a line per public name: functions and methods with their signatures, classes with their bases.

    The source is read and nothing imported, so that the lines are those of any Python and any installed framework.
    """
    import griffe

    loader = griffe.GriffeLoader(search_paths=[HERE.parents[1]])
    for package in ("bridge", "importers"):
        loader.load(package)
    objects = loader.modules_collection
    names = [f"{name}.{item}" for name in PUBLIC for item in _public(objects[name])]
    lines = (line for path in [*names, *RETURNED] for line in _lines(path, _found(objects, path)))
    return "\n".join(sorted(set(lines))) + "\n"


def _public(module: Objects) -> Iterator[str]:
    """Yield the names of `__all__`; without one, those that the module defines."""
    if module.exports is not None:
        yield from (str(item).strip("'\"") for item in module.exports)
        return
    for name, member in module.members.items():
        if not (name.startswith("_") or member.is_alias or member.is_module):
            yield name


def _found(objects: Objects, path: str) -> Objects:
    """Return the object of a name through all imports; a function may have the name of its module."""
    place, _, name = path.rpartition(".")
    module = objects[place]
    known = module.members.get(name)
    imported = module.imports.get(name, path)
    if imported != path and (known is None or known.is_alias or known.is_module):
        return _found(objects, imported)
    return known


def _lines(path: str, target: Objects) -> Iterator[str]:
    if target is None:  # a name of an assignment to several
        yield path
    elif target.is_class:
        bases = ", ".join(str(base) for base in target.bases)
        yield f"class {path}({bases})"
        for name, member in target.all_members.items():
            is_own = not member.is_alias or member.inherited
            if is_own and (name in SPECIAL or not name.startswith("_")):
                yield from _lines(f"{path}.{name}", member)
    elif target.is_function:
        yield f"{path}({target.signature().partition('(')[2]}"
    elif target.is_attribute:
        yield f"{path}: {target.annotation}" if target.annotation else path


def changed(before: str, after: str) -> list[str]:
    """Return the names whose lines differ between two listings, whether they are new, gone or have another signature."""
    lines = set(before.splitlines()) ^ set(after.splitlines())
    return sorted({re.split(r"[(:]", line.removeprefix("class "))[0] for line in lines})


def main() -> None:
    """Write the files; with --release also the names of that release."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", metavar="VERSION", help="also write api-VERSION.txt")
    version = parser.parse_args().release
    files = {**dict(documents()), STORE: store_tables(), API: api()}
    if version:
        files[HERE / f"api-{version}.txt"] = files[API]
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
