"""Rules that tell what a kernel is by its name: what they say, and how they are read from TOML.

The invariant: rules stand in the order of their file, and each has a kind of `KINDS`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# -- A regular expression that is asked of many names: the plain words in it are looked for as such


WORD = re.compile(r"[\w :,/<>=!&%~'@;-]+")  # nothing in it means anything else
WHOLE = re.compile(
    r"\\\d|\(\?[aiLmsux(P]"
)  # flags, conditions and references hold over all alternatives


class Pattern:
    """A regular expression; raises re.error, OverflowError or RecursionError for what is none."""

    def __init__(self, text: str) -> None:
        re.compile(text)
        self.text = text
        parts = [text] if WHOLE.search(text) else list(_alternatives(text))
        self.words = tuple(part for part in parts if WORD.fullmatch(part))
        self.rest = tuple(re.compile(part) for part in parts if not WORD.fullmatch(part))

    def found(self, name: str) -> bool:
        """Tell whether it is found anywhere in a name."""
        for word in self.words:  # plain loops: this is asked a hundred times per name
            if word in name:
                return True
        for pattern in self.rest:  # noqa: SIM110 (the same)
            if pattern.search(name):
                return True
        return False


def _alternatives(text: str) -> Iterator[str]:
    """Give what stands between the outermost bars."""
    start = depth = at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1  # what comes next means itself
        elif text[at] == "[":
            at = _end_of_set(text, at)
        elif text[at] == "|" and not depth:
            yield text[start:at]
            start = at + 1
        else:
            depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    yield text[start:]


def _end_of_set(text: str, start: int) -> int:
    """Return where the set of characters that begins here ends; a ``]`` may be its first one."""
    at = start + 1 + text.startswith("^", start + 1)
    at += text.startswith("]", at)
    while text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at


# -- Rules that tell what a kernel is by its name: what they say, and how they are read from TOML


KINDS = tuple(
    "gemm convolution attention rnn norm softmax pooling elementwise reduction scan sort indexing"
    " embedding layout cast random loss optimizer fft solver sparse communication fused other".split()
)
PRODUCTS = frozenset(["gemm", "convolution", "attention"])  # names of these tell of Tensor Cores
OPEN = frozenset(["rnn", "fused", "other"])  # these may use them, and their names do not tell
YES, NO, UNKNOWN = 1, 0, -1
SAID = {True: YES, False: NO, None: UNKNOWN}
OF_A_FILE = {"library", "tensor_cores"}
OF_A_LIBRARY = {"name", "has", "rules"}
OF_A_RULE = {"match", "also", "kind", "tensor_cores"}
OF_USE = {"match", "used"}


@dataclass(frozen=True)
class Rule:
    """Names that ``match``, and ``also`` this, are of a kind; ``tensor_cores`` is YES, NO, or UNKNOWN to the rule."""

    match: Pattern
    also: Pattern | None
    kind: str
    tensor_cores: int = UNKNOWN

    def found(self, name: str) -> bool:
        """Tell whether a name matches."""
        return self.match.found(name) and (self.also is None or self.also.found(name))


@dataclass(frozen=True)
class Library:
    """The rules of a library, asked of names that begin with, or hold, one of some texts: of all, if there is none."""

    name: str
    rules: tuple[Rule, ...]
    begins: tuple[str, ...] = ()
    has: tuple[str, ...] = ()

    def known(self, name: str) -> bool:
        """Tell whether the rules are asked of a name."""
        if self.begins and name.startswith(self.begins):
            return True
        for text in self.has:  # a plain loop: this is asked of every name
            if text in name:
                return True
        return not self.has and not self.begins


@dataclass(frozen=True, eq=False)
class Rules:
    """Libraries, and patterns of names that use Tensor Cores or do not, each in order; equal are the same alone."""

    libraries: tuple[Library, ...] = ()
    uses: tuple[tuple[Pattern, int], ...] = ()

    def __add__(self, later: Rules) -> Rules:
        """Return these rules, and after them others."""
        return Rules(self.libraries + later.libraries, self.uses + later.uses)


def rules(text: str) -> Rules:
    """Read rules from TOML, as docs/kernels.md describes it.

    Raises ValueError that says which rule is wrong and how.
    """
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply for rules") from error
    _only(found, OF_A_FILE, "the file")
    libraries = _tables(found, "library", "the file")
    uses = _tables(found, "tensor_cores", "the file")
    if not libraries and not uses:
        raise ValueError("no [[library]] and no [[tensor_cores]] in it")
    return Rules(
        tuple(_library(entry, number) for number, entry in enumerate(libraries, 1)),
        tuple(_use(entry, f"tensor_cores {number}") for number, entry in enumerate(uses, 1)),
    )


def _library(entry: Mapping[str, Any], number: int) -> Library:
    where = f"library {entry['name']!r}" if "name" in entry else f"library {number}"
    _only(entry, OF_A_LIBRARY, where)
    name, has = _text(entry, "name", where), entry.get("has", [])
    if not isinstance(has, list) or not all(isinstance(text, str) and text for text in has):
        raise ValueError(f"{where}: 'has' is a list of texts")
    listed = enumerate(_tables(entry, "rules", where), 1)
    return Library(
        name,
        tuple(_rule(one, f"{where}, rule {number}") for number, one in listed),
        tuple(text.removeprefix("^") for text in has if text.startswith("^")),
        tuple(text for text in has if not text.startswith("^")),
    )


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    _only(entry, OF_A_RULE, where)
    kind = _text(entry, "kind", where)
    if kind not in KINDS:
        raise ValueError(f"{where}: no kind {kind!r}: one of {', '.join(KINDS)}")
    used = entry.get("tensor_cores")
    if used is not None and not isinstance(used, bool):
        raise ValueError(f"{where}: 'tensor_cores' is true or false")
    also = _pattern(entry, "also", where) if "also" in entry else None
    return Rule(_pattern(entry, "match", where), also, kind, SAID[used])


def _use(entry: Mapping[str, Any], where: str) -> tuple[Pattern, int]:
    _only(entry, OF_USE, where)
    used = entry.get("used")
    if used is True or used is False:
        return _pattern(entry, "match", where), SAID[used]
    raise ValueError(f"{where}: 'used' is true or false")


def _tables(entry: Mapping[str, Any], name: str, where: str) -> Sequence[Mapping[str, Any]]:
    found = entry.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{where}: {name!r} is a list of tables")
    return found


def _only(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where}: no {unknown[0]!r} there: one of {', '.join(sorted(known))}")


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    found = entry.get(name)
    if isinstance(found, str):
        return found
    raise ValueError(f"{where}: needs {name!r}, a text")


def _pattern(entry: Mapping[str, Any], name: str, where: str) -> Pattern:
    text = _text(entry, name, where)
    try:
        return Pattern(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{where}: {text!r} is no regular expression: {error}") from error
