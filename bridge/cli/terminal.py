"""Standard output on a terminal: names of a report must not act there.

A terminal acts on control characters: they set its title, clear it, or write to the clipboard. Tables
hold none, but CSV, JSON and flame graphs have names as they are.
"""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

# Control characters, and marks that change the direction of text; but for line breaks, tabs, and the
# styles that tables have: bold, a colour, plain.
ACTING = re.compile(
    r"(?!\x1b\[(?:0|1|3[0-7])m)"
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class HarmlessTerminal:
    """A text stream to a terminal without characters on which the terminal acts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; return its number of characters."""
        self._stream.write(ACTING.sub(REPLACEMENT, text))
        return len(text)

    def writelines(self, texts: list[str]) -> None:
        """Write texts."""
        for text in texts:
            self.write(text)


def make_stdout_harmless() -> None:
    """Filter what is printed if standard output is a terminal."""
    if sys.stdout.isatty():
        sys.stdout = sys.__stdout__ = HarmlessTerminal(sys.stdout)  # type: ignore[assignment,misc]
