"""Where kernels stand that have no timeline: one after another, in the order they were profiled.

Each has a slot: what it took, and room on both sides for the ranges around it, so that each range begins
after the one around it and ends before. What the clock says means nothing but this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from importers.ncu.kernels import Kernel, Open
from importers.texts import Ints


@dataclass(frozen=True)
class Slots:
    """The slot of each kernel; ``room`` is what stands before and after the kernel itself, in ns."""

    start: Ints
    length: Ints
    room: int

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Slots:
        """Lay out kernels; one whose time is not known takes none."""
        taken = np.array([max(kernel.duration, 0) for kernel in kernels], np.int64)
        room = 1 + max((len(kernel.pushed) for kernel in kernels), default=0)
        length = taken + 2 * room
        return cls(np.cumsum(length) - length, length, room)

    @property
    def began(self) -> Ints:
        """When each kernel began."""
        return self.start + self.room

    @property
    def ended(self) -> Ints:
        """When each kernel ended."""
        return self.start + self.length - self.room


@dataclass(frozen=True)
class Span:
    """A range over the kernels from ``first`` to ``last``, so many ranges being around it."""

    range: Open
    process: int
    thread: int
    depth: int
    first: int
    last: int


def pushed(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the push/pop ranges, each before those in it.

    Kernels of a thread that follow one another share the ranges that their stacks begin with alike: two
    calls of an op without a kernel of another between them cannot be told apart.
    """
    return sorted(_pushed(kernels), key=lambda span: (span.first, span.depth))


def _pushed(kernels: Sequence[Kernel]) -> Iterator[Span]:
    stacks: dict[tuple[int, int], list[Span]] = {}
    for place, kernel in enumerate(kernels):
        key = kernel.process, kernel.thread
        stack = stacks.get(key, [])
        same = _alike([span.range for span in stack], kernel.pushed)
        yield from stack[same:]
        kept = [_until(span, place) for span in stack[:same]]
        new = enumerate(kernel.pushed[same:], same)
        stacks[key] = kept + [Span(one, *key, depth, place, place) for depth, one in new]
    for stack in stacks.values():
        yield from stack


def _until(span: Span, last: int) -> Span:
    return Span(span.range, span.process, span.thread, span.depth, span.first, last)


def _alike(before: Sequence[Open], after: Sequence[Open]) -> int:
    """Return how many ranges two stacks have in common, from the outermost on."""
    pairs = zip(before, after, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after))
    )


def started(kernels: Sequence[Kernel]) -> list[Span]:
    """Return the start/end ranges: each from the first to the last kernel of its process that follow one another in it."""
    found: list[Span] = []
    running: dict[int, dict[Open, Span]] = {}
    for place, kernel in enumerate(kernels):
        before = running.get(kernel.process, {})
        now = {
            one: _until(before.pop(one), place)
            if one in before
            else Span(one, kernel.process, kernel.thread, 0, place, place)
            for one in kernel.started
        }
        found += before.values()
        running[kernel.process] = now
    found += [span for spans in running.values() for span in spans.values()]
    return sorted(found, key=lambda span: (span.first, span.last))
