"""Read the demangled name of a kernel: its qualified name and the template arguments.

The reader takes names as `c++filt`, LLVM and Nsight Systems write them. Parameters are skipped: a
template and its arguments determine them. The time grows with the length of the name alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# -- One spelling for what demanglers write differently


ANONYMOUS = ("(anonymous namespace)::", "<unnamed>::", "{anonymous}::")
VERSION = re.compile(r"\b(?:CUB_\w+_NS|THRUST_\w+_NS|__\d+|_V\d+)::")  # of a namespace
CAST = re.compile(
    r"\((?:(bool)|(?:unsigned |signed )?(?:int|short|char|long(?: long)?)(?: int)?)\)(?=-?\d)"
)
BOOLEAN = re.compile(r"\0([01])\w*")
BOOLEANS = {"0": "false", "1": "true"}
CALLS = ("operator ()", "operator()", "operator( )")
OPERATOR = re.compile(r"\boperator ?([-+*/%^&|~!=<>]{1,3}|\[\])")
CALL_OPERATOR = "operator_call"


def canonical(name: str) -> str:
    """Return a name without parameters, casts of numbers and anonymous namespaces; operators are words."""
    for text in ANONYMOUS:
        name = name.replace(text, "")
    if "operator" in name:
        for text in CALLS:
            name = name.replace(text, CALL_OPERATOR)
        name = OPERATOR.sub(lambda match: f"operator_{match[1].encode().hex()}", name)
    name = without_parameters(name)
    if "_NS::" in name or "::_" in name:
        name = VERSION.sub("", name)
    if ")" in name:
        name = CAST.sub(lambda match: "\0" if match[1] else "", name.replace("\0", " "))
        name = BOOLEAN.sub(lambda match: BOOLEANS[match[1]], name)
    return name


def without_parameters(name: str) -> str:
    """Return a name without the bracket at its end."""
    name = name.rstrip()
    if not name.endswith(")"):
        return name
    depth, at = 1, len(name) - 1
    while depth:
        opening = name.rfind("(", 0, at)
        if opening < 0:
            return name
        depth += name.count(")", opening, at) - 1
        at = opening
    return name[:at]


# -- Types as trees


TOKEN = re.compile(r"(?:::)?[A-Za-z_$][\w$]*(?:::~?[A-Za-z_$][\w$]*)*|\d[\w.]*|::|[<>(){}\[\],#]")
SYMBOLS = frozenset("<>(){}[],#") | {"::"}
QUALIFIERS = frozenset("const volatile typename struct class enum restrict __restrict__".split())
OPENING = {"(": ")", "[": "]", "{": "}"}
LAMBDAS = frozenset(["lambda", "#"])
MAX_DEPTH = 60  # of nested template arguments
MAX_TOKENS = 1_000


@dataclass(slots=True)
class Part:
    """Names joined by ``::``, and the template arguments of the last; the first lambda is ``#1``."""

    name: str
    arguments: list[Type] | None = None


@dataclass(slots=True)
class Type:
    """A qualified name; a number has no parts, a number of an enumeration is called ``Order=1``."""

    parts: list[Part] = field(default_factory=list)
    enumeration: str = ""


def function(name: str) -> Type:
    """Return the qualified name of a kernel, as `canonical` writes it.

    Raises ValueError or IndexError if it is not one.
    """
    pieces = TOKEN.findall(name)
    if len(pieces) > MAX_TOKENS:
        raise ValueError("too long")
    reader, at, end = _Reader(), 0, len(pieces)
    while at < end:
        piece = pieces[at]
        at += 1
        if piece not in SYMBOLS:
            reader.word(piece)
        elif piece in OPENING:
            after = _end(pieces, at, piece)
            if reader.ends(piece, pieces[after : after + 2]):
                break
            reader.bracket(piece, pieces[at : after - 1])
            at = after
        else:
            reader.symbol(piece)
    if reader.stack or not reader.current.parts:
        raise ValueError("incomplete")
    return reader.current


class _Reader:
    """Makes a type of pieces of text; ``stack`` holds the templates whose arguments are being read."""

    def __init__(self) -> None:
        self.stack: list[tuple[Type, list[Type]]] = []
        self.current, self.is_qualified = Type(), False

    def word(self, text: str) -> None:
        """Read a qualified name or a number."""
        current = self.current
        if text[0].isdigit():
            if current.enumeration:
                current.parts = [Part(f"{current.enumeration}={text}")]
        elif text not in QUALIFIERS:
            if text[0] == ":":
                text = text[2:]
            elif not self.is_qualified:  # words before were a return type, or `unsigned`
                current.parts.clear()
            current.parts.append(Part(text))
        self.is_qualified = False

    def symbol(self, text: str) -> None:
        """Read what begins, divides and ends the arguments of a template."""
        if text == "<":
            outer, self.current = self.current, Type()
            if not outer.parts or len(self.stack) >= MAX_DEPTH:
                raise ValueError("no template")
            outer.parts[-1].arguments = arguments = [self.current]
            self.stack.append((outer, arguments))
        elif text == ",":
            self.current = Type()
            self.stack[-1][1].append(self.current)
        elif text == ">":
            self.current = self.stack.pop()[0]
        self.is_qualified = text == "::"

    def ends(self, opening: str, after: list[str]) -> bool:
        """Return whether a bracket with these pieces after it holds the parameters of the kernel."""
        if opening != "(" or self.stack or not self.current.parts:
            return False
        return not any(text[:2] == "::" for text in after)

    def bracket(self, opening: str, inside: list[str]) -> None:
        """Note the number of a lambda, or the enumeration that a number is cast to."""
        self.is_qualified = False
        if opening == "(":
            if not self.current.parts and len(inside) == 1:
                self.current.enumeration = inside[0]
        elif not LAMBDAS.isdisjoint(inside):
            numbers = [text for text in inside[-4:] if text.isdigit()]
            self.current.parts.append(Part(f"#{numbers[-1] if numbers else 0}"))


def _end(pieces: list[str], at: int, opening: str) -> int:
    """Return the place after the bracket that ``opening`` before ``at`` opens."""
    closing, depth = OPENING[opening], 1
    while depth:
        end = pieces.index(closing, at)  # ValueError: it is not closed
        depth += pieces[at:end].count(opening) - 1
        at = end + 1
    return at
