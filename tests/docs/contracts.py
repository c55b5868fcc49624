"""What other programs may rely on: JSON documents, the tables of the store, public names, commands.

`docs/formats/bridge.*.schema.json` describe what `--format json` prints, `bridge.db.sql` what `bridge import` leaves
behind, `api.txt` the names that programs may import, and the commands with their options. A test compares them with the code; `api-VERSION.txt` holds the
names of a release, and what changed since then must be in the changelog.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click

from bridge.cli import main as main_command
from bridge.store.tables import VERSION, open_store

from .pages import DOCS, ROOT, Files
from .schemas import schemas

HERE = DOCS / "formats"
WIDTH = 160
STORE, API = (HERE / name for name in ("bridge.db.sql", "api.txt"))


def add_arguments(parser: ArgumentParser) -> None:
    """Let a release keep its names."""
    parser.add_argument("--release", metavar="VERSION", help="also write api-VERSION.txt")


def files(release: str | None = None) -> Files:
    """Yield the files; with the version of a release also the names of that release."""
    yield from documents()
    yield STORE, store_tables()
    names = api()
    yield API, names
    if release:
        yield HERE / f"api-{release}.txt", names


def documents() -> Iterator[tuple[Path, str]]:
    """Yield the file of each JSON Schema, and its text."""
    for name, schema in schemas():
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
    head = f"-- The tables of bridge.db, schema version {VERSION}. Made by python -m tests.docs contracts.\n"
    return "\n".join([head, *statements])


# -- The public names

REFERENCE = DOCS / "reference"  # what it shows is public
ENTRY = re.compile(r"^::: ([\w.]+)\n((?:    .*\n)*)", re.MULTILINE)
HEADING = re.compile(r"^ +heading: ([\w.]+)$", re.MULTILINE)
MEMBERS = re.compile(r"^ +members: \[([^\]]*)\]", re.MULTILINE)
OTHERS = ("bridge.__version__", "bridge.importers.EVERY", "bridge.importers.ReportError")
# Classes that programs call; functions return objects of the others.
CONSTRUCTED = ("bridge.Domain",)
SPECIAL = {"__call__", "__enter__"}
Objects = Any  # of griffe, which has no types to check


class Shown(NamedTuple):
    """A name that the reference shows: of a class the members in the list, all where there is none."""

    name: str
    members: frozenset[str] = frozenset()


def reference() -> Iterator[Shown]:
    """Yield what the pages of the reference show."""
    for page in sorted(REFERENCE.glob("*.md")):
        for home, options in ENTRY.findall(page.read_text(encoding="utf-8")):
            heading, members = HEADING.search(options), MEMBERS.search(options)
            listed = re.findall(r"\w+", members[1]) if members else ()
            yield Shown(heading[1] if heading else home, frozenset(listed))


def api() -> str:
    """Return a line per public name, command and option: functions with their signatures, classes with their bases.

    The source is read and nothing imported, so that the lines are those of any Python and any installed framework.
    """
    lines = (line for name, target in public_objects() for line in _lines(name, target))
    return "\n".join([*sorted(set(lines)), *sorted(options(main_command, "bridge"))]) + "\n"


def undocumented() -> list[str]:
    """Return the public functions, classes and properties without a docstring, which the reference leaves out.

    What a special method does, and what the fields of a class are, is in the docstring of the class.
    """
    return sorted(
        {
            name
            for name, target in public_objects()
            if target is not None
            and (target.is_function or target.is_class or "property" in target.labels)
            and not name.endswith("__")
            and not target.has_docstring
        }
    )


def public_objects() -> Iterator[tuple[str, Objects]]:
    """Yield every public name with its object; with None for a name that only exists at run time."""
    import griffe

    loader = griffe.GriffeLoader(search_paths=[ROOT])
    loader.load("bridge")
    objects = loader.modules_collection
    for shown in (*reference(), *map(Shown, OTHERS)):
        yield from _with_members(shown, _found(objects, shown.name))


def options(command: click.Command, path: str) -> Iterator[str]:
    """Yield a line per command and per option of it, hidden ones excepted."""
    yield path
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield from (f"{path} {name}" for name in (*option.opts, *option.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            member = command.get_command(click.Context(command), name)
            if member and not member.hidden:
                yield from options(member, f"{path} {name}")


def _found(objects: Objects, path: str) -> Objects:
    """Return the object of a name through all imports; a function may have the name of its module."""
    place, _, name = path.rpartition(".")
    module = objects[place]
    module = module.final_target if module.is_alias else module
    known = module.members.get(name)
    imported = module.imports.get(name, path)
    if imported != path and (known is None or known.is_alias or known.is_module):
        return _found(objects, imported)
    return known


def _with_members(shown: Shown, target: Objects) -> Iterator[tuple[str, Objects]]:
    """Yield a name and those of its public members, each with its object."""
    yield shown.name, target
    if target is None or target.is_attribute or target.is_function:
        return
    for name, member in target.all_members.items():
        if _is_public(shown, name, member):
            yield from _with_members(Shown(f"{shown.name}.{name}"), member)


def _lines(path: str, target: Objects) -> Iterator[str]:
    """Yield the lines of one name, without those of its members."""
    if target is None or target.is_attribute:
        annotation = target and target.annotation
        yield f"{path}: {annotation}" if annotation else path
    elif target.is_function:
        yield f"{path}({target.signature().partition('(')[2]}"
        yield from _keywords(path, target)
    elif target.is_class:
        yield f"class {path}({', '.join(str(base) for base in target.bases)})"


def _keywords(path: str, function: Objects) -> Iterator[str]:
    """Yield the keywords that a function takes as ``**options: Unpack[…]``, with their types."""
    for parameter in function.parameters:
        if match := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation or "")):
            fields = function.modules_collection[function.resolve(match[1])]
            for name, field in fields.members.items():
                yield f"{path}(…, {name}: {field.annotation})"


def _is_public(shown: Shown, name: str, member: Objects) -> bool:
    """Return whether a member of a class or module is public."""
    if (member.is_alias and not member.inherited) or member.is_module:
        return False
    if name.startswith("_"):
        return name in SPECIAL or (name == "__init__" and shown.name in CONSTRUCTED)
    return not shown.members or name in shown.members


def changed(before: str, after: str) -> list[str]:
    """Return the names whose lines differ between two listings, whether they are new, gone or have another signature."""
    lines = set(before.splitlines()) ^ set(after.splitlines())
    return sorted({re.split(r"[(:]", line.removeprefix("class "))[0] for line in lines})
