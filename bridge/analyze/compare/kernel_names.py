"""Names of kernels without what another build, or another input, writes otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable

from bridge.knowledge.kernels.classes import LONGEST

HASH = re.compile(
    r"(?<![0-9a-zA-Z])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-zA-Z])"
    r"|17h[0-9a-f]{16}E"  # Rust's, in a mangled name
    r"|(?<=_GLOBAL__N__)[0-9a-f]{8,}|(?<=_INTERNAL_)[0-9a-f]{8,}"
)
LAMBDA = re.compile(r"(\{?lambda\([^)]*\)|\(?unnamed[ \w]*|'lambda\d*')#?\d*\)?\}?")
SPECIAL = re.compile(r"_(?:\d++(?:de|d|e|c)?+)++$")  # of Triton: counters, known arguments
COUNTER = re.compile(r"(?:\d++[._])++")  # of the name read backwards, in one go
TILE = re.compile(r"(?<![a-zA-Z0-9])\d+x\d+(?:x\d+)*(?![0-9])|(?<=_)(?:stages?|warps?|splitK)_?\d+")
VERSION = re.compile(r"_v\d+(?=_|$)|_?(?<![a-zA-Z])sm_?\d+a?(?![0-9])")
MANGLED = re.compile(r"_ZN?K?")
LENGTH = re.compile(r"\d{1,6}")
GENERATED = re.compile(
    r"^(?:triton|fused|fusion|loop|input|wrapped|default_function|tvmgen|kernel)|fusion"
)


def of_a_build(name: str) -> str:
    """Return a name without hashes, numbers of lambdas, and the counters of generated kernels."""
    name = name[:LONGEST]
    if GENERATED.search(name):
        name = _uncounted(SPECIAL.sub("", name))
    return LAMBDA.sub("lambda", HASH.sub("#", name))


def without_arguments(name: str) -> str:
    """Return the same without template arguments, parameters and return type; of a mangled name the names in it."""
    name = of_a_build(name)
    if MANGLED.match(name):
        return "::".join(_parts(name)) or name
    bare = _outside_brackets(name.replace("(anonymous namespace)", "anonymous"))
    return bare.strip().rpartition(" ")[2] or name


def without_tiles(name: str) -> str:
    """Return the same without tile sizes, stages and versions of an architecture."""
    return VERSION.sub("", TILE.sub("#", without_arguments(name)))


FORMS: tuple[Callable[[str], str], ...] = (of_a_build, without_arguments, without_tiles)


def _uncounted(name: str) -> str:
    """Return a name without the counters that it ends with."""
    found = COUNTER.match(name[::-1])
    return name[: len(name) - found.end()] if found else name


def _outside_brackets(name: str) -> str:
    """Return what stands in no ``<...>`` and before the first ``(`` outside them."""
    kept, depth = [], 0
    for character in name:
        if character == "(" and not depth:
            break
        depth += (character == "<") - (character == ">" and depth > 0)
        if not depth and character != ">":
            kept.append(character)
    return "".join(kept)


def _parts(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name, up to its template arguments."""
    found, place = [], MANGLED.match(mangled).end()  # type: ignore[union-attr]
    while place < len(mangled) and (length := LENGTH.match(mangled, place)):
        place = length.end() + int(length[0])
        found.append(mangled[length.end() : place])
    return found
