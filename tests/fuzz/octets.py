"""Mutations of any file: bytes changed, cut, swapped, doubled."""

from __future__ import annotations

import random

EDGES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b'"',
    b"{",
    b"[",
    b",",
    b"\n",
)
PAGE = 4096


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with some damage."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 30))):
        if not found:
            break
        chance.choice(DAMAGE)(found, chance)
    return bytes(found)


def flipped(data: bytearray, chance: random.Random) -> None:
    """Flip a bit."""
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def edged(data: bytearray, chance: random.Random) -> None:
    """Write an extreme over what is there."""
    edge = chance.choice(EDGES)
    at = chance.randrange(len(data))
    data[at : at + len(edge)] = edge


def cut(data: bytearray, chance: random.Random) -> None:
    """Cut the end off, one in four times; else a piece out of the middle."""
    at = chance.randrange(len(data))
    del data[at : None if chance.random() < 0.25 else at + chance.randrange(1, 64)]


def doubled(data: bytearray, chance: random.Random) -> None:
    """Insert a piece once more."""
    at, size = chance.randrange(len(data)), chance.randrange(1, 200)
    data[at:at] = data[at : at + size]


def moved(data: bytearray, chance: random.Random) -> None:
    """Write a page over another."""
    pages = max(1, len(data) // PAGE)
    source, target = (chance.randrange(pages) * PAGE for _ in range(2))
    data[target : target + PAGE] = data[source : source + PAGE]


def random_bytes(data: bytearray, chance: random.Random) -> None:
    """Write noise."""
    at = chance.randrange(len(data))
    data[at : at + 8] = chance.randbytes(8)


DAMAGE = (flipped, flipped, edged, cut, doubled, moved, random_bytes)
