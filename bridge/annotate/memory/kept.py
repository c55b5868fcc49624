"""Samples of memory kept in the process: peaks of each device, and all samples in order."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bridge.annotate.memory.uses import UNKNOWN, Use

FIELDS = 3
USED, RESERVED = 1, 2


class Sample(NamedTuple):
    """Bytes used and reserved (-1: no allocator says) of one device when an op ended."""

    number: int
    tag: str
    used: int
    reserved: int


class Peaks(NamedTuple):
    """The most that was used, and reserved: each its own maximum, with the sample and the op of it.

    All are -1, and ops '', of a device without samples; reserved also where no allocator says it.
    """

    used: int
    used_at: int
    used_op: str
    reserved: int
    reserved_at: int
    reserved_op: str


class Kept:
    """The samples of one process, 24 bytes each.

    Threads add at once, and signal handlers in the midst of it, so nothing waits: an array is extended as a whole.
    """

    def __init__(self) -> None:
        self._tags: dict[str, int] = {}
        self._devices: dict[str, array[int]] = {}  # of each sample: tag, used, reserved

    def forget(self) -> None:
        """Begin anew."""
        self._devices = {}

    def add(self, tag: str, found: Iterable[Use]) -> None:
        """Keep a sample of each device."""
        number = self._tags.setdefault(tag, len(self._tags))
        for use in found:
            kept = self._devices.setdefault(use.device, array("q"))
            kept.extend((number, use.used, use.reserved))

    @property
    def devices(self) -> list[str]:
        """Those with samples, in the order in which they came."""
        return list(self._devices)

    def samples(self, device: str) -> Iterator[Sample]:
        """Give the samples of a device, in order."""
        names, kept = list(self._tags), self._of(device)
        columns = (kept[at::FIELDS] for at in range(FIELDS))
        for number, (tag, used, reserved) in enumerate(zip(*columns, strict=True)):
            yield Sample(number, names[tag], used, reserved)

    def peaks(self, device: str) -> Peaks:
        """Return the peaks of a device."""
        kept = self._of(device)
        return Peaks(*self._peak(kept, USED), *self._peak(kept, RESERVED))

    def _peak(self, kept: array[int], field: int) -> tuple[int, int, str]:
        column = kept[field::FIELDS]
        most = max(column, default=UNKNOWN)
        if most == UNKNOWN:
            return UNKNOWN, UNKNOWN, ""
        at = column.index(most)
        return most, at, list(self._tags)[kept[at * FIELDS]]

    def _of(self, device: str) -> array[int]:
        kept = self._devices.get(device, array("q"))
        return kept[: len(kept) // FIELDS * FIELDS]
