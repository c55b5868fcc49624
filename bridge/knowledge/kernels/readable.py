"""Readable names of kernels: NVIDIA's short name, and the template arguments that tell kernels apart.

A name depends on the kernel alone, so that it is the same in every report. Kernels share a name only
if they differ in element types, numbers, and what names.toml hides; where a name would be too long, a
checksum stands for what is left out.
"""

from __future__ import annotations

import re
import tomllib
from base64 import b32encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any

from bridge.knowledge.kernels.demangled import CALL_OPERATOR, Part, Type, canonical, function
from bridge.knowledge.package import data_file

# -- The rules


@dataclass(frozen=True)
class Library:
    """Kernels whose namespace is not shown; ``home`` is not shown before arguments either."""

    namespace: re.Pattern[str]
    kernels: re.Pattern[str]
    home: str
    inside: re.Pattern[str] | None


@dataclass(frozen=True)
class Long:
    """What is shown of long names of some kernels."""

    kernel: re.Pattern[str]
    name: str
    show: tuple[re.Pattern[str], ...]


@dataclass(frozen=True, eq=False)
class NamingRules:
    """The content of names.toml; ``owned`` matches kernels that are called like a library's."""

    length: int
    hidden: re.Pattern[str]
    wrappers: re.Pattern[str]
    words: Mapping[str, str]
    libraries: tuple[Library, ...]
    owned: re.Pattern[str]
    long: tuple[Long, ...]


@cache
def naming_rules() -> NamingRules:
    """Return the rules of this package."""
    text = data_file("bridge.knowledge.kernels", "names.toml")
    values = tomllib.loads(text)
    of_namespace = [entry for entry in values["library"] if entry["namespace"]]
    owned = [entry[key] for entry in of_namespace for key in ("kernels", "inside") if key in entry]
    return NamingRules(
        length=values["length"],
        hidden=re.compile("|".join(values["elements"] + values["hidden"])),
        wrappers=re.compile("|".join(values["wrappers"] + values["containers"])),
        words=values["words"],
        libraries=tuple(map(_library, values["library"])),
        owned=re.compile("|".join(owned)),
        long=tuple(map(_long, values["long"])),
    )


def _library(entry: Mapping[str, Any]) -> Library:
    inside, home = entry.get("inside"), entry["home"]
    return Library(
        re.compile(entry["namespace"]),
        re.compile(entry["kernels"]),
        f"{home}::",
        re.compile(inside) if inside else None,
    )


def _long(entry: Mapping[str, Any]) -> Long:
    return Long(
        re.compile(entry["kernel"]), entry.get("name", ""), tuple(map(re.compile, entry["show"]))
    )


# -- Template arguments


BOOLEANS = frozenset(["true", "false"])
LONGEST = 300  # a longer name is none of the rules': it bounds the time of their patterns
HIDDEN, WRAPPER, SHOWN = "hidden", "wrapper", "shown"


@lru_cache(maxsize=1 << 14)
def _role(name: str, rules: NamingRules) -> str:
    """Return what becomes of a class in a name."""
    if len(name) > LONGEST:
        return SHOWN
    if rules.hidden.fullmatch(name):
        return HIDDEN
    return WRAPPER if rules.wrappers.fullmatch(name) else SHOWN


class _Writer:
    """Writes template arguments; ``depth`` is how many levels of them are shown."""

    def __init__(self, rules: NamingRules, home: str, depth: int = 1000) -> None:
        self.rules, self.home, self.depth, self.level = rules, home, depth, 0

    def arguments(self, types: Sequence[Type] | None) -> list[str]:
        """Return the arguments that are shown; equal neighbours become one, as ``name*2``."""
        if not types or self.level >= self.depth:
            return []
        self.level += 1
        texts = [text for type_ in types if type_.parts and (text := self.type(type_.parts))]
        self.level -= 1
        if len(texts) < 2:  # noqa: PLR2004 - no neighbours
            return texts
        runs = ((text, len(list(run))) for text, run in groupby(texts))
        return [word for text, count in runs for word in _run(text, count)]

    def type(self, parts: list[Part]) -> str:
        """Return a type as it is shown, '' if it is not."""
        role = _role(_plain(parts), self.rules)
        if role == HIDDEN:
            return ""
        if role == WRAPPER:
            self.level -= 1
            inside = [text for part in parts for text in self.arguments(part.arguments)]
            self.level += 1
            return ",".join(inside)
        text = self.path(parts)
        if not self.home or text in BOOLEANS or "=" in text:
            return text
        if text.startswith(self.home):
            return text.removeprefix(self.home)
        return text if "::" in parts[0].name else f"::{text}"  # of the program itself

    def path(self, parts: Sequence[Part]) -> str:
        """Return a qualified name with its arguments; lambdas in lambdas as ``#1.2``."""
        words: list[str] = []
        before = ""
        for place, part in enumerate(parts):
            shown = self.arguments(part.arguments)
            if part.name == CALL_OPERATOR and not shown and place + 1 < len(parts):
                continue  # of a function object: the lambda in it follows
            if part.name[0] == "#":
                words.append(f".{part.name[1:]}" if before[:1] == "#" else part.name)
            else:
                name = _worded(part.name, self.rules)
                words += ("::", name) if words and name else (name,)
            if shown:
                words.append(f"<{','.join(shown)}>")
            before = part.name
        return "".join(words)


def _plain(parts: Sequence[Part]) -> str:
    """Return a qualified name without arguments, lambdas directly behind the function."""
    if len(parts) == 1:
        return parts[0].name
    text = "::".join(part.name for part in parts if part.name != CALL_OPERATOR)
    return text.replace("::#", "#")


def _run(text: str, count: int) -> list[str]:
    return [text] * count if count == 1 or text in BOOLEANS else [f"{text}*{count}"]


# -- Kernels


MARK = "~"  # before a checksum
MAX_LENGTH = 4_096  # of a name that is read
MAX_TEXT = 2_048  # patterns look at so much of a name
DEPTHS = (3, 2, 1)
ABBREVIATED = re.compile(r"(.+)_\d+\.\.\.")  # nsys cuts some short names, and numbers what it cut
CUT = "..."


def readable_names(kernels: Iterable[tuple[str, str]]) -> list[str]:
    """Return a readable name for each kernel, given its short and its demangled name.

    Either name may be ''.
    """
    rules = naming_rules()
    return [_readable(short, full, rules) for short, full in kernels]


def _readable(short: str, full: str, rules: NamingRules) -> str:
    if short.endswith(CUT) and (match := ABBREVIATED.fullmatch(short)) and match[1] in full:
        short = ""
    name = full or short
    if len(name) > MAX_LENGTH:
        return _unread(short, name, rules)
    is_template = "<" in name or "::" in name
    return _of_text(short, name, rules) if is_template else _of_function(short, name, rules)


def _of_function(short: str, name: str, rules: NamingRules) -> str:
    """Return the name of a kernel that is neither a template nor in a namespace."""
    head, bracket, _ = name.partition("(")
    base = head.partition("[")[0].rstrip().rpartition(" ")[2] if bracket else name
    if short not in {"", name, base}:
        return _unread(short, name, rules)
    return _marked(base or name, rules)


@lru_cache(maxsize=1 << 12)
def _of_text(short: str, name: str, rules: NamingRules) -> str:
    text = canonical(name)
    try:
        parts = function(text).parts
    except (ValueError, IndexError):
        return _unread(short, name, rules)
    namespace, _, base = parts[-1].name.rpartition("::")
    if short not in {"", name, base}:  # a demangled name of something else
        return _unread(short, name, rules)
    *outer, last = parts
    if outer:  # a kernel in a class or function
        return _fitted(text, parts, home="", kernel=parts[-1].name, rules=rules)
    library = _library_of(_worded(namespace, rules), base, rules)
    if library is None:
        whole = _fitted(text, parts, home="", kernel=last.name, rules=rules)
        return whole if namespace else _marked(whole, rules)
    shown = [Part(base, last.arguments)]
    return _fitted(text, shown, home=library.home, kernel=last.name, rules=rules)


def _fitted(text: str, shown: list[Part], home: str, kernel: str, rules: NamingRules) -> str:
    """Return all that tells a kernel, or what has room and a checksum."""
    whole = _unwrapped(_Writer(rules, home).path(shown), rules, home=home)
    if len(whole) <= rules.length or "<" not in whole:
        return whole
    return _with_checksum(_shortened(kernel, shown, home=home, text=text, rules=rules), whole)


def _unread(short: str, name: str, rules: NamingRules) -> str:
    """Return the name of a kernel whose demangled name is too long, or is none: its checksum tells it."""
    if name == short and "<" not in name and "(" not in name:
        return name
    text = canonical(name[:MAX_TEXT])
    kernel = text[:LONGEST].partition("<")[0].partition("(")[0].rpartition(" ")[2]
    base = kernel.rpartition("::")[2]
    shown = short if short not in {"", name} else (base or "kernel")[: rules.length]
    if shown == base:
        shown = _shortened(kernel, [Part(base)], home="", text=text, rules=rules)
    return _with_checksum(shown, name)


def _library_of(namespace: str, kernel: str, rules: NamingRules) -> Library | None:
    if len(namespace) + len(kernel) > LONGEST:
        return None
    for library in rules.libraries:
        if library.namespace.fullmatch(namespace) and library.kernels.fullmatch(kernel):
            return library
    return None


def _marked(name: str, rules: NamingRules) -> str:
    """Write a kernel without a namespace that is called like a library's with ``::`` before it."""
    base = name.partition("<")[0].partition(MARK)[0]
    return f"::{name}" if len(base) <= LONGEST and rules.owned.fullmatch(base) else name


@lru_cache(maxsize=1 << 14)
def _worded(name: str, rules: NamingRules) -> str:
    """Write shorter words for namespaces and classes."""
    words = (rules.words.get(word, word) for word in name.split("::"))
    return "::".join(word for word in words if word)


INSIDE = re.compile(r"(?:([\w:]+)::)?\w+<(?:::)?(\w+)>")


def _unwrapped(name: str, rules: NamingRules, *, home: str) -> str:
    """Return the only argument of a kernel if it says everything, else the kernel."""
    may_be = len(name) <= LONGEST and name.count("<") == 1 and name.endswith(">")
    match = INSIDE.fullmatch(name) if may_be else None
    if not match or not any(x.inside and x.inside.fullmatch(match[2]) for x in rules.libraries):
        return name
    return match[2] if home else f"{match[1]}::{match[2]}" if match[1] else name


def _shortened(kernel: str, shown: list[Part], home: str, text: str, rules: NamingRules) -> str:
    """Return what has room of a long name: what a rule shows, or the outer arguments."""
    room = rules.length - len(_checksum("")) - len(MARK)
    name = _worded("::".join(part.name for part in shown), rules)
    for rule in rules.long if len(kernel) <= LONGEST else ():
        if rule.kernel.fullmatch(kernel):
            words = list(_found(rule, text[:MAX_TEXT]))
            while words and len(head := f"{rule.name or name}<{','.join(words)}>") > room:
                words.pop()
            if words:
                return head
            break
    for depth in DEPTHS:
        if len(result := _Writer(rules, home, depth).path(shown)) <= room:
            return result
    return name


def _found(rule: Long, text: str) -> Iterable[str]:
    for pattern in rule.show:
        if match := pattern.search(text):
            yield "x".join(group for group in match.groups() if group)


CHECKSUM = re.compile(rf"{MARK}[a-z2-7]{{6}}(?=$|>)")


def checksum_of(name: str) -> str:
    """Return the checksum in a readable name, as ``~3eaqvf``; '' if it has none."""
    match = CHECKSUM.search(name) if MARK in name else None
    return match[0] if match else ""


def _checksum(text: str) -> str:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=5).digest()
    return b32encode(digest).decode().lower()[:6]


def _with_checksum(name: str, text: str) -> str:
    return f"{name}{MARK}{_checksum(text)}"
