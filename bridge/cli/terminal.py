"""What is printed does no harm: names of a report do not act on a terminal, messages are short.

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


# -- Messages: they may quote a file, or what was given


LONGEST = 2_000  # characters of a message
LONG_WORD = re.compile(r"\S{1000,}")


def harmless(message: str) -> str:
    """Return a message without control characters; long words and long messages are cut.

    A word is cut in its middle: what follows a file's name says what is wrong with it.
    """
    short = LONG_WORD.sub(lambda word: f"{word[0][:500]}…{word[0][-300:]}", message)
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in short[:LONGEST])
    return text if len(short) <= LONGEST else f"{text}…"
