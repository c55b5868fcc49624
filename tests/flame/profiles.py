"""Profiles for pprof, read byte by byte as google/pprof's ``profile.proto`` describes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

Value = int | bytes
SIGN = 1 << 63
WIRE = 3  # bits of a tag that tell the wire type


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer that begins at a place, and the place behind it."""
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return (value ^ SIGN) - SIGN, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field: integers, and bytes of texts and messages."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
            assert at <= len(data)
        else:
            assert tag & 7 == 0
        yield tag >> WIRE, value


def every(data: bytes, number: int) -> list:
    return [value for field, value in fields(data) if field == number]


def one(data: bytes, number: int) -> int:
    """Return an integer that there is once, 0 where it is absent."""
    [value] = every(data, number) or [0]
    assert isinstance(value, int)
    return value


@dataclass(frozen=True)
class Sample:
    """A stack, the outermost frame first, its labels, and a value per type."""

    stack: tuple[str, ...]
    labels: tuple[tuple[str, str | int], ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Profile:
    """What a profile says; ``types`` are pairs of a type of values and its unit."""

    types: list[tuple[str, str]]
    default: str
    samples: list[Sample]
    comments: list[str]

    def by_stack(self, kind: str) -> Counter[str]:
        """Return the values of a type by stack, as folded stacks have them."""
        [place] = [at for at, (name, _) in enumerate(self.types) if name == kind]
        found: Counter[str] = Counter()
        for sample in self.samples:
            found[";".join(sample.stack)] += sample.values[place]
        return +found


def read(data: bytes) -> Profile:
    """Read an uncompressed profile; what it refers to must be there."""
    texts = [text.decode() for text in every(data, 6)]
    assert texts[0] == ""
    assert len({*texts}) == len(texts)
    functions = {one(each, 1): texts[one(each, 2)] for each in every(data, 5)}
    locations = {one(each, 1): functions[_function(each)] for each in every(data, 4)}
    assert len(functions) == len(every(data, 5)) == len(locations)
    assert 0 not in locations
    types = [(texts[one(each, 1)], texts[one(each, 2)]) for each in every(data, 1)]
    samples = [
        Sample(
            tuple(locations[frame] for frame in reversed(every(each, 1))),
            tuple(_label(label, texts) for label in every(each, 3)),
            tuple(every(each, 2)),
        )
        for each in every(data, 2)
    ]
    assert all(len(sample.values) == len(types) for sample in samples)
    comments = [texts[number] for number in every(data, 13)]
    return Profile(types, texts[one(data, 14)], samples, comments)


def _function(location: bytes) -> int:
    [line] = every(location, 4)
    return one(line, 1)


def _label(label: bytes, texts: list[str]) -> tuple[str, str | int]:
    """Return the name of a label, and its text or number; a number needs a unit, or 0 would be none."""
    name, text = texts[one(label, 1)], texts[one(label, 2)]
    if text:
        assert not {3, 4} & {number for number, _ in fields(label)}
        return name, text
    assert texts[one(label, 4)]
    return name, one(label, 3)
