"""Sample the memory of this process while it runs: `start`, `stop`, `reset`, and what was found.

The invariant: one sampling runs at a time, its sampler before all else that hears of annotations, so that it looks while
an op is open; annotations are handed on to whoever listened before, and sessions begin and end behind it.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from threading import local
from typing import Any, NamedTuple

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.emitter import Emitter
from bridge.annotate.instant import counter
from bridge.annotate.label import Label
from bridge.annotate.memory.uses import CPU, UNKNOWN, Use, uses
from bridge.annotate.warning import warn

# -- A back end of the annotations that looks at the memory whenever an op ends


def checked_rate(rate: object, least: int) -> int:
    """Return how many ops there are to a sample; raises ValueError for what is no count."""
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < least:
        raise ValueError(f"sample_rate is a number of ops, {least} or more, not {rate!r}")
    return rate


class _Open(local):
    """What is open on the running thread, the domains mixed."""

    def __init__(self) -> None:
        self.labels: list[Label] = []


class Sampler:
    """Calls ``look`` with the op's name at every ``every``-th op that ends, on its thread; 0 for never."""

    def __init__(self, behind: Emitter, every: int, look: Callable[[str], None]) -> None:
        self.behind, self.every = behind, every
        self._look = look
        self._here = _Open()
        self._ended = count(1)

    @property
    def name(self) -> str:
        """The back end's behind it."""
        return self.behind.name

    @property
    def version(self) -> str:
        """The back end's behind it."""
        return self.behind.version

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        self.behind.push(label, payload)
        self._here.labels.append(label)

    def pop(self, domain: str | None) -> None:
        """Look, and close the topmost range of the domain."""
        closed = self._closed(domain)
        try:
            if closed and self.every and next(self._ended) % self.every == 0:
                self._looked(closed.name)
        finally:
            self.behind.pop(domain)

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""
        self.behind.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process."""
        return self.behind.start(label, payload)

    def end(self, label: Label, handle: Any) -> None:
        """End such a range."""
        self.behind.end(label, handle)

    def _looked(self, op: str) -> None:
        try:
            self._look(op)
        except Exception as problem:  # noqa: BLE001 - the program is not to fail for being looked at
            self.every = 0
            warn(f"memory is sampled no more: {problem}")

    def _closed(self, domain: str | None) -> Label | None:
        labels = self._here.labels
        at = next((i for i in reversed(range(len(labels))) if labels[i].domain == domain), None)
        return None if at is None else labels.pop(at)


# -- Samples of memory kept in the process: peaks of each device, and all samples in order


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


# -- Memory as counters of the domain `memory`: what a session records, and a tool that is attached


DOMAIN = "memory"


def record(found: Iterable[Use]) -> None:
    """Record a sample of each counter, in bytes."""
    for use in found:
        for name, value in _named(use):
            counter(name, value, domain=DOMAIN)


def _named(use: Use) -> Iterator[tuple[str, int]]:
    """Name the counters of a device: ``host resident``, ``cuda:0 allocated``, ``cuda:0 reserved``."""
    yield f"{'host' if use.device == CPU else use.device} {use.name}", use.used
    if use.reserved != UNKNOWN:
        yield f"{use.device} reserved", use.reserved


# -- Sample the memory of this process while it runs: `start`, `stop`, `reset`, and what was found


REASON = "memory is sampled"
MIB = 1 << 20
HEADS = ("#Trace", "#Tag", "used", "alloc")

_kept = Kept()
_samplers: list[Sampler] = []


def start(sample_rate: int = 1) -> None:
    """Sample at the end of every ``sample_rate``-th op from now on; samples so far are kept until `reset`.

    Ops are ranges of this library's annotations. Each sample is a counter for whoever records, too. Raises
    ValueError for a rate below 1.
    """
    every = checked_rate(sample_rate, least=1)
    stop()
    emitter, reason = emit.current(), state.reason
    emit.use(_sampler(emitter, every), reason or REASON)


def stop() -> None:
    """Sample no more; what was found is kept. If nothing samples, do nothing."""
    while _samplers:
        sampler = _samplers.pop()
        sampler.every = 0  # ranges that are open close through it
        if state.emitter is sampler:
            emit.use(sampler.behind, state.reason)


def around(emitter: Emitter) -> Emitter:
    """Return what is to hear of annotations where ``emitter`` is to: a sampler before it, if memory is sampled now."""
    if not _samplers:
        return emitter
    before = _samplers.pop()
    every, before.every = before.every, 0
    return _sampler(emitter, every)


def behind(emitter: Emitter) -> Emitter:
    """Return an emitter without the sampler before it."""
    return emitter.behind if isinstance(emitter, Sampler) else emitter


def _sampler(emitter: Emitter, every: int) -> Sampler:
    sampler = Sampler(emitter, every, sample)
    _samplers.append(sampler)
    return sampler


def running() -> bool:
    """Tell whether memory is sampled now."""
    return bool(_samplers)


def sample(tag: str = "") -> None:
    """Take one sample now, under this name."""
    found = uses()
    _kept.add(tag, found)
    if not state.idle:
        record(found)


def reset() -> None:
    """Forget all samples; the next one is number 0."""
    _kept.forget()


os.register_at_fork(after_in_child=reset)  # what was found is the parent's


def max_info(device: str | None = None) -> Peaks:
    """Return the peaks of a device such as ``cuda:0`` or ``cpu``, in bytes; without one, of the first GPU if there is any."""
    return _kept.peaks(device or _first())


def trace(device: str | None = None) -> str:
    """Return all samples of a device as a table: number, op, used, reserved, in MiB of 2^20 bytes; '' without samples."""
    rows = [
        (str(one.number), one.tag, _mib(one.used), _mib(one.reserved))
        for one in _kept.samples(device or _first())
    ]
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    lines = ["Sizes are in MiB.", *(_line(row, widths) for row in (HEADS, *rows))]
    return "\n".join(lines) + "\n"


def _first() -> str:
    return next((device for device in _kept.devices if device != CPU), CPU)


def _mib(count: int) -> str:
    return "" if count < 0 else f"{count / MIB:.3f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    number, tag, used, reserved = widths
    return f"{row[0]:>{number}}  {row[1]:<{tag}}  {row[2]:>{used}}  {row[3]:>{reserved}}".rstrip()
