"""Mutations of JSON, of lines of JSON, of pickles of plain data, of tables and of logs."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz import octets, values

DIGITS = tuple("0123456789")


def changed(found: Any, chance: random.Random) -> Any:
    """Change some places of what JSON holds, in place; return the whole."""
    for _ in range(chance.choice((1, 1, 2, 4, 20))):
        found = _changed(found, chance)
    return found


def _changed(found: Any, chance: random.Random) -> Any:
    """Walk down to a place and change what is there."""
    if isinstance(found, dict | list) and found and chance.random() < 0.9:
        keys = [*found] if isinstance(found, dict) else range(len(found))
        key = chance.choice(keys)
        if chance.random() < 0.15:
            _about(found, key, chance)
        else:
            found[key] = _changed(found[key], chance)
        return found
    if type(found) is int and chance.random() < 0.5:
        return found + chance.choice((1, -1, 10**6, -(10**12), -2 * found, 2**62))
    return (
        values.text(chance)
        if type(found) is str and chance.random() < 0.5
        else values.plain(chance)
    )


def _about(found: Any, key: Any, chance: random.Random) -> None:
    """Take an entry out, double it, or give it another name."""
    value = found[key]
    if isinstance(found, list):
        chance.choice((found.__delitem__, lambda at: found.insert(at, value)))(key)
        return
    del found[key]
    if chance.random() < 0.5:
        found[chance.choice((values.text(chance), *found, "name"))] = value


def written(found: Any) -> bytes:
    """Return JSON, lone surrogates as escapes."""
    return json.dumps(found).encode()


def of_json(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of JSON, packed or not as the source is."""
    data = source.read_bytes()
    packed = data.startswith(b"\x1f\x8b")
    if packed and chance.random() < 0.1:
        target.write_bytes(octets.changed(data, chance))
        return
    text = gzip.decompress(data) if packed else data
    text = (
        octets.changed(text, chance)
        if chance.random() < 0.3
        else written(changed(json.loads(text), chance))
    )
    target.write_bytes(gzip.compress(text, 1) if packed else text)


def of_lines(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of lines of JSON."""
    lines = source.read_bytes().splitlines(keepends=True)
    if chance.random() < 0.3:
        target.write_bytes(octets.changed(b"".join(lines), chance))
        return
    at = chance.randrange(len(lines))
    made: Callable[[], list[bytes]] = chance.choice(
        (
            lambda: [written(changed(json.loads(lines[at]), chance)) + b"\n"],
            lambda: [written(changed(json.loads(lines[at]), chance)) + b"\n"],
            lambda: [written(changed(json.loads(lines[at]), chance)) + b"\n"],
            list,
            lambda: [lines[at], lines[at]],
            lambda: [chance.choice(lines)],
        )
    )
    lines[at : at + 1] = made()
    target.write_bytes(b"".join(lines))


def of_pickle(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of a pickle."""
    data = source.read_bytes()
    if chance.random() < 0.4:
        target.write_bytes(octets.changed(data, chance))
        return
    found = changed(pickle.loads(data), chance)
    target.write_bytes(pickle.dumps(found, protocol=chance.randrange(2, 6)))


def of_cells(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of a table or a log: cells between commas, quotes, whole lines."""
    lines = (
        source.read_bytes().decode("utf-8-sig", errors="surrogateescape").splitlines(keepends=True)
    )
    for _ in range(chance.choice((1, 1, 2, 5, 50))):
        if not lines:
            break
        at = chance.randrange(len(lines))
        cells = lines[at].split(",")
        chance.choice((_cell, _cell, _cell, _without, _twice, _number))(cells, chance)
        lines[at] = ",".join(cells)
        if chance.random() < 0.1:
            chance.choice((lines.pop, lambda at: lines.insert(at, lines[at])))(at)
    data = (
        "".join(lines).encode(
            "utf-8", errors="surrogateescape" if chance.random() < 0.5 else "surrogatepass"
        )
        if _sound(lines)
        else "".join(lines).encode("utf-8", "backslashreplace")
    )
    target.write_bytes(octets.changed(data, chance) if chance.random() < 0.2 else data)


def _sound(lines: list[str]) -> bool:
    try:
        "".join(lines).encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _cell(cells: list[str], chance: random.Random) -> None:
    value = values.plain(chance)
    text = value if isinstance(value, str) else json.dumps(value)
    if chance.random() < 0.5:
        text = '"' + text.replace('"', '""') + '"'
    end = "\n" if cells[-1].endswith("\n") else ""
    cells[chance.randrange(len(cells))] = text
    cells[-1] = cells[-1].rstrip("\n") + end


def _without(cells: list[str], chance: random.Random) -> None:
    del cells[chance.randrange(len(cells))]


def _twice(cells: list[str], chance: random.Random) -> None:
    at = chance.randrange(len(cells))
    cells.insert(at, cells[at])


def _number(cells: list[str], chance: random.Random) -> None:
    """Make numbers longer, negative, or strange digits."""
    at = chance.randrange(len(cells))
    cells[at] = "".join(
        chance.choice(("9" * 30, "-", "²", "٣", "1e9", c))
        if c in DIGITS and chance.random() < 0.3
        else c
        for c in cells[at]
    )


def of_text(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of any text, such as YAML and TOML."""
    text = source.read_text(encoding="utf-8")
    for _ in range(chance.choice((0, 1, 2, 5))):
        at = chance.randrange(len(text) + 1)
        piece = chance.choice((*values.TEXTS, *TOKENS, str(chance.choice(values.BEYOND))))
        text = text[:at] + piece + text[at + chance.choice((0, 0, 1, 10)) :]
    data = text.encode("utf-8", errors="backslashreplace")
    target.write_bytes(octets.changed(data, chance) if chance.random() < 0.5 else data)


TOKENS = (
    "!!python/object/apply:os.system [id]", "&a [*a]", "*a", "<<: *a", "!!binary |", "!!set {a}", "? [a]\n: b", "- ",
    ": ", "\n", "[", "]", "{", "}", '"', "'''", "[[", "]]", "= ", "0x", "inf", "nan", "~", "1979-05-27T07:32:00Z",
    "[" * 3_000, "(a+)+$", "(?P<n>", "*" * 50, "\\", "a{99999999}", "!!timestamp x", "!!int x", "!!float x", "!!map x",
)  # fmt: skip
