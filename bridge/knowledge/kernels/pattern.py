"""A regular expression that is asked of many names: the plain words in it are looked for as such.

The invariant: what is found is what the expression finds. Of ``softmax|soft_max|^norm`` two parts are words, which
Python finds an order of magnitude sooner than an alternative in an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
