"""A profile for pprof: the messages of google/pprof's ``profile.proto``, before compression.

Texts are in one table, and referred to by their number. Each number of a label has a unit: without
one readers take 0 for no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bridge.analyze.core.calltree import UNNAMED, WEIGHTS, CallTree
from bridge.analyze.core.samples import Samples
from bridge.importers.arrays import lookup
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.render.packets import (
    MISSING,
    Column,
    Fixed,
    Integers,
    Ints,
    Message,
    Packets,
    Part,
    Piece,
    column_of,
    gather,
    integer,
    message,
    tag,
)
from bridge.render.text_columns import printed_chunks

# Fields of Profile
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, TEXT, COMMENT, DEFAULT_SAMPLE_TYPE = 1, 2, 4, 5, 6, 13, 14
TYPE, UNIT = 1, 2  # of ValueType
LOCATION_ID, VALUE, LABEL = 1, 2, 3  # of Sample
KEY, STR, NUM, NUM_UNIT = 1, 2, 3, 4  # of Label
ID, FUNCTION_NAME, LOCATION_LINE = 1, 2, 4  # of Function and of Location
LINE_FUNCTION = 1  # of Line
SAMPLES_PER_CHUNK = 8_192  # each may have hundreds of frames
UNITS = {"gpu": "nanoseconds", "cpu": "nanoseconds", "calls": "count"}


def pprof(samples: Samples, source: Sequence[str], weight: str = "gpu") -> Iterator[bytes]:
    """Yield the parts of a profile with a type of values per weight; ``weight`` is the one shown first.

    If no stack has any of it, another one is. The names of the source are comments.
    """
    texts = TextTable()
    for kind in WEIGHTS:
        unit = integer(UNIT, texts.number(UNITS[kind]))
        yield message(SAMPLE_TYPE, integer(TYPE, texts.number(kind)), unit)
    shown = [kind for kind in (weight, *WEIGHTS) if samples.weights[kind].any()] or [weight]
    yield integer(DEFAULT_SAMPLE_TYPE, texts.number(shown[0]))
    values = [Integers(tag(VALUE), column_of(samples.weights[kind]), None) for kind in WEIGHTS]
    stack = Stack(samples.frame, samples.tree)
    sample = Message(SAMPLE, [stack, *values, *_labels(samples, texts)])
    rows = np.arange(len(samples.frame))
    yield from printed_chunks(Packets([sample], rows, SAMPLES_PER_CHUNK).chunks())
    yield from _functions(samples.tree.names, texts)
    for name in source:
        yield integer(COMMENT, texts.number(name))
    for text in texts.known:
        yield message(TEXT, text.encode(errors="replace"))


class TextTable:
    """Numbers for texts; that of the empty text is 0."""

    def __init__(self) -> None:
        self.known = {"": 0}

    def number(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))

    def numbers(self, texts: Iterable[str]) -> list[int]:
        """Return the number of each text; an empty one is called `UNNAMED`."""
        return [self.number(text or UNNAMED) for text in texts]

    def column(self, names: Names) -> Column:
        """Return a column with the number of each row's name."""
        codes, used = names.codes, np.zeros(len(names.texts) + 1, bool)
        used[codes] = True
        number_by_code = np.full(len(used), MISSING)  # the last entry is for rows without a name
        listed = np.flatnonzero(used[:-1])
        number_by_code[listed] = self.numbers(names.texts[code] for code in listed.tolist())
        return gather(number_by_code, codes)


@record
class Stack(Piece):
    """The location of each row's frame and of all around it, the innermost first."""

    frame: Ints
    tree: CallTree

    def parts(self, rows: Ints) -> list[Part]:
        result, frame = [], self.frame[rows]
        while (frame != MISSING).any():
            location = Integers(tag(LOCATION_ID), column_of(_identifiers(self.tree.code, frame)))
            result += location.parts(np.arange(len(rows)))
            frame = lookup(self.tree.parent, frame)
        return result


def _identifiers(code: Ints, frame: Ints) -> Ints:
    """Return the id of the location, and the function, of each frame: a number from 1 on per name."""
    return np.where(frame == MISSING, MISSING, lookup(code, frame) + 1)


def _labels(samples: Samples, texts: TextTable) -> Iterator[Piece]:
    """Yield the labels; a row has those of which it has a value."""
    for name, column in samples.texts.items():
        key = Fixed(integer(KEY, texts.number(name)))
        yield Message(LABEL, [key, Integers(tag(STR), texts.column(column))], strict=True)
    for name, numbers in samples.numbers.items():
        number = texts.number(name)
        key, unit = Fixed(integer(KEY, number)), Fixed(integer(NUM_UNIT, number))
        yield Message(LABEL, [key, Integers(tag(NUM), column_of(numbers)), unit], strict=True)


def _functions(names: Sequence[str], texts: TextTable) -> Iterator[bytes]:
    """Yield a function per name, and a location in each."""
    for number, text in enumerate(texts.numbers(names), 1):
        yield message(FUNCTION, integer(ID, number), integer(FUNCTION_NAME, text))
        line = message(LOCATION_LINE, integer(LINE_FUNCTION, number))
        yield message(LOCATION, integer(ID, number), line)
