"""Rules that classify kernels by their names, and their form in TOML.

Rules keep the order of their file; each has a kind of `KINDS`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bridge.knowledge.expressions import Expression
from bridge.knowledge.suggestions import unknown_name

# -- Patterns


WORD = re.compile(r"[\w :,/<>=!&%~'@;-]+")  # without special characters
INDIVISIBLE = re.compile(
    r"\\\d|\(\?[aiLmsux(P]"
)  # flags, conditions and references span alternatives


class Pattern:
    """A regular expression for many names; plain words in it are searched as texts.

    ``origin`` is where a user gave it; searches are limited then. Without it the expression is of
    this package. Raises ValueError with a message for the user for an invalid one.
    """

    def __init__(self, text: str, origin: str = "") -> None:
        self.text, self.origin = text, origin
        if origin:  # an invalid expression of the user is an error now
            self._compiled(text)
        parts = [text] if INDIVISIBLE.search(text) else list(_alternatives(text))
        self.words = tuple(part for part in parts if WORD.fullmatch(part))
        self._expressions = tuple(part for part in parts if not WORD.fullmatch(part))
        if origin:
            self.rest = self._rest()

    @cached_property
    def rest(self) -> tuple[Expression | re.Pattern[str], ...]:
        """The parts that are not plain words; those of this package are compiled when a name needs them."""
        return self._rest()

    def _rest(self) -> tuple[Expression | re.Pattern[str], ...]:
        return tuple(self._compiled(part) for part in self._expressions)

    def _compiled(self, part: str) -> Expression | re.Pattern[str]:
        return Expression(part, self.origin) if self.origin else re.compile(part)

    def matches(self, name: str) -> bool:
        for word in self.words:  # a plain loop: called a hundred times per name
            if word in name:
                return True
        for pattern in self.rest:  # noqa: SIM110 - as above
            if pattern.search(name):
                return True
        return False


def _alternatives(text: str) -> Iterator[str]:
    """Yield the alternatives between the outermost bars."""
    start = depth = at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1  # skip the escaped character
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
    """Return the end of a set of characters; ``]`` may be its first character."""
    at = start + 1 + text.startswith("^", start + 1)
    at += text.startswith("]", at)
    while text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at


# -- Rules


KINDS = tuple(
    "gemm convolution attention rnn norm softmax pooling elementwise reduction scan sort indexing"
    " embedding layout cast random loss optimizer fft solver sparse communication fused other".split()
)
PRODUCTS = frozenset(["gemm", "convolution", "attention"])  # names of these kinds show Tensor Cores
UNDECIDED = frozenset(
    ["rnn", "fused", "other"]
)  # these may use them, but their names do not show it
YES, NO, UNKNOWN = 1, 0, -1
TENSOR_CORES = {True: YES, False: NO, None: UNKNOWN}
FILE_KEYS = {"library", "tensor_cores"}
LIBRARY_KEYS = {"name", "has", "rules"}
RULE_KEYS = {"match", "also", "kind", "tensor_cores"}
USE_KEYS = {"match", "used"}


@dataclass(frozen=True)
class Rule:
    """Names that match ``match``, and ``also`` if given, are of a kind.

    ``tensor_cores`` is YES, NO, or UNKNOWN if the rule does not say.
    """

    match: Pattern
    also: Pattern | None
    kind: str
    tensor_cores: int = UNKNOWN

    def matches(self, name: str) -> bool:
        return self.match.matches(name) and (self.also is None or self.also.matches(name))


@dataclass(frozen=True)
class Library:
    """The rules of a library, for names that begin with or contain one of some texts.

    Without texts they apply to all names.
    """

    name: str
    rules: tuple[Rule, ...]
    begins: tuple[str, ...] = ()
    has: tuple[str, ...] = ()

    def applies_to(self, name: str) -> bool:
        if self.begins and name.startswith(self.begins):
            return True
        for text in self.has:  # a plain loop: called for every name
            if text in name:
                return True
        return not self.has and not self.begins


@dataclass(frozen=True, eq=False)
class Rules:
    """Libraries, and patterns of names with or without Tensor Cores, both in order.

    Compared by identity.
    """

    libraries: tuple[Library, ...] = ()
    uses: tuple[tuple[Pattern, int], ...] = ()

    def __add__(self, later: Rules) -> Rules:
        """Return these rules, followed by others."""
        return Rules(self.libraries + later.libraries, self.uses + later.uses)


def rules(text: str, *, limited: bool = True) -> Rules:
    """Read rules from TOML; docs/kernels.md describes the form.

    ``limited`` is whether the expressions are a user's, whose searches end at a limit of time.
    Raises ValueError with the invalid rule and the reason.
    """
    try:
        values = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply for rules") from error
    _check_keys(values, FILE_KEYS, "the file")
    libraries = _tables(values, "library", "the file")
    uses = _tables(values, "tensor_cores", "the file")
    if not libraries and not uses:
        raise ValueError("no [[library]] and no [[tensor_cores]] in it")
    return Rules(
        tuple(
            _library(entry, number, limited=limited) for number, entry in enumerate(libraries, 1)
        ),
        tuple(
            _use(entry, f"tensor_cores {number}", limited=limited)
            for number, entry in enumerate(uses, 1)
        ),
    )


def _library(entry: Mapping[str, Any], number: int, *, limited: bool) -> Library:
    where = f"library {entry['name']!r}" if "name" in entry else f"library {number}"
    _check_keys(entry, LIBRARY_KEYS, where)
    name, has = _text(entry, "name", where), entry.get("has", [])
    if not isinstance(has, list) or not all(isinstance(text, str) and text for text in has):
        raise ValueError(f"{where}: 'has' is a list of texts")
    entries = enumerate(_tables(entry, "rules", where), 1)
    return Library(
        name,
        tuple(_rule(rule, f"{where}, rule {number}", limited=limited) for number, rule in entries),
        tuple(text.removeprefix("^") for text in has if text.startswith("^")),
        tuple(text for text in has if not text.startswith("^")),
    )


def _rule(entry: Mapping[str, Any], where: str, *, limited: bool) -> Rule:
    _check_keys(entry, RULE_KEYS, where)
    kind = _text(entry, "kind", where)
    if kind not in KINDS:
        raise ValueError(f"{where}: {unknown_name('kind', kind, KINDS, 'docs/kernels.md')}")
    value = entry.get("tensor_cores")
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{where}: 'tensor_cores' is true or false")
    also = _pattern(entry, "also", where, limited=limited) if "also" in entry else None
    match = _pattern(entry, "match", where, limited=limited)
    return Rule(match, also, kind, TENSOR_CORES[value])


def _use(entry: Mapping[str, Any], where: str, *, limited: bool) -> tuple[Pattern, int]:
    _check_keys(entry, USE_KEYS, where)
    value = entry.get("used")
    if value is True or value is False:
        return _pattern(entry, "match", where, limited=limited), TENSOR_CORES[value]
    raise ValueError(f"{where}: 'used' is true or false")


def _tables(entry: Mapping[str, Any], name: str, where: str) -> Sequence[Mapping[str, Any]]:
    result = entry.get(name, [])
    if not isinstance(result, list) or not all(isinstance(table, dict) for table in result):
        raise ValueError(f"{where}: {name!r} is a list of tables")
    return result


def _check_keys(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where}: {unknown_name('key', unknown[0], sorted(known))}")


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    result = entry.get(name)
    if isinstance(result, str):
        return result
    raise ValueError(f"{where}: needs {name!r}, a text")


def _pattern(entry: Mapping[str, Any], name: str, where: str, *, limited: bool) -> Pattern:
    return Pattern(_text(entry, name, where), where if limited else "")
