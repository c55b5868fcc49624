"""Samples of the memory of this process: `start`, `stop`, `reset`, peaks and the list of samples.

One sampling runs at a time. Its sampler comes before all other back ends, so that it samples while
an op is open. It passes annotations to the previous back end; sessions start and stop behind it.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from threading import local
from types import MappingProxyType
from typing import Any, NamedTuple

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.emitter import Emitter, warn
from bridge.annotate.instant import counter
from bridge.annotate.label import Label
from bridge.annotate.memory.usage import CPU, UNKNOWN, Use, uses

# -- The back end that samples at the end of ops


def checked_rate(rate: object, minimum: int) -> int:
    """Return the number of ops per sample.

    Raises ValueError if it is not an integer of at least ``minimum``.
    """
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < minimum:
        raise ValueError(f"sample_rate is a number of ops, {minimum} or more, not {rate!r}")
    return rate


class _OpenRanges(local):
    """The open ranges of the running thread, of all domains."""

    def __init__(self) -> None:
        self.labels: list[Label] = []


class Sampler:
    """Calls ``look`` with the name of every ``every``-th op that ends, on its thread.

    Never if 0.
    """

    def __init__(self, behind: Emitter, every: int, look: Callable[[str], None]) -> None:
        self.behind, self.every = behind, every
        self._look = look
        self._here = _OpenRanges()
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
        self.behind.push(label, payload)
        self._here.labels.append(label)

    def pop(self, domain: str | None) -> None:
        """Sample, and close the innermost range of the domain."""
        closed = self._closed(domain)
        try:
            if closed and self.every and next(self._ended) % self.every == 0:
                self._take_sample(closed.name)
        finally:
            self.behind.pop(domain)

    def mark(self, label: Label, payload: float) -> None:
        self.behind.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        return self.behind.start(label, payload)

    def end(self, label: Label, handle: Any) -> None:
        self.behind.end(label, handle)

    def _take_sample(self, op: str) -> None:
        try:
            self._look(op)
        except Exception as problem:  # noqa: BLE001 - sampling must not make the program fail
            self.every = 0
            warn(f"memory is no longer sampled: {problem}")

    def _closed(self, domain: str | None) -> Label | None:
        labels = self._here.labels
        at = next((i for i in reversed(range(len(labels))) if labels[i].domain == domain), None)
        return None if at is None else labels.pop(at)


# -- The samples


FIELDS = 3
USED, RESERVED = 1, 2


class Sample(NamedTuple):
    """Bytes used and reserved (-1 if unknown) of one device at the end of an op."""

    number: int
    tag: str
    used: int
    reserved: int


class Peaks(NamedTuple):
    """The maxima of used and of reserved bytes, each with the number and the op of its sample.

    For a device without samples all are -1 and the ops ''; also for reserved bytes that are
    unknown.
    """

    used: int
    used_at: int
    used_op: str
    reserved: int
    reserved_at: int
    reserved_op: str


class SampleBuffer:
    """The samples of a process, 24 bytes each.

    Threads and signal handlers add concurrently without locks: extending an array is atomic.
    """

    def __init__(self) -> None:
        self.count = 0
        self._tags: dict[str, int] = {}
        self._devices: dict[str, array[int]] = {}  # per sample: tag, used, reserved

    def clear(self) -> None:
        self.count = 0
        self._devices = {}

    def add(self, tag: str, usages: Iterable[Use]) -> None:
        """Add a sample of each device."""
        self.count += 1
        number = self._tags.setdefault(tag, len(self._tags))
        for use in usages:
            samples = self._devices.setdefault(use.device, array("q"))
            samples.extend((number, use.used, use.reserved))

    @property
    def devices(self) -> list[str]:
        """The devices with samples, in the order of their first sample."""
        return list(self._devices)

    def samples(self, device: str) -> Iterator[Sample]:
        """Yield the samples of a device in order."""
        names, samples = list(self._tags), self._samples_of(device)
        columns = (samples[at::FIELDS] for at in range(FIELDS))
        for number, (tag, used, reserved) in enumerate(zip(*columns, strict=True)):
            yield Sample(number, names[tag], used, reserved)

    def peaks(self, device: str) -> Peaks:
        samples = self._samples_of(device)
        return Peaks(*self._peak(samples, USED), *self._peak(samples, RESERVED))

    def _peak(self, samples: array[int], field: int) -> tuple[int, int, str]:
        column = samples[field::FIELDS]
        maximum = max(column, default=UNKNOWN)
        if maximum == UNKNOWN:
            return UNKNOWN, UNKNOWN, ""
        at = column.index(maximum)
        return maximum, at, list(self._tags)[samples[at * FIELDS]]

    def _samples_of(self, device: str) -> array[int]:
        samples = self._devices.get(device, array("q"))
        return samples[: len(samples) // FIELDS * FIELDS]


# -- Memory as counters, for sessions and attached tools


DOMAIN = "memory"


def record(usages: Iterable[Use], processes: Mapping[str, int] = MappingProxyType({})) -> None:
    """Record a sample of each counter, in bytes; ``processes`` is what the process has by device."""
    for use in usages:
        for name, value in _counters(use, processes.get(use.device)):
            counter(name, value, domain=DOMAIN)


def _counters(use: Use, process: int | None) -> Iterator[tuple[str, int]]:
    """Yield the counters of a device, for example ``cuda:0 allocated``, with bytes."""
    yield f"{'host' if use.device == CPU else use.device} {use.name}", use.used
    if use.reserved != UNKNOWN:
        yield f"{use.device} reserved", use.reserved
    if process is not None:
        yield f"{use.device} process", process


# -- Sampling of this process


REASON = "memory is sampled"
MIB = 1 << 20
HEADS = ("#Trace", "#Tag", "used", "alloc")

_buffer = SampleBuffer()
_samplers: list[Sampler] = []


def start(sample_rate: int = 1) -> None:
    """Sample at the end of every ``sample_rate``-th op from now on.

    Earlier samples are kept until `reset`.

    Ops are ranges of this library's annotations. Each sample is also recorded as counters. Raises
    ValueError for a rate below 1.
    """
    every = checked_rate(sample_rate, minimum=1)
    stop()
    emitter, reason = emit.current(), state.reason
    emit.use(_sampler(emitter, every), reason or REASON)


def stop() -> None:
    """Stop sampling; the samples are kept. Does nothing if sampling is off."""
    while _samplers:
        sampler = _samplers.pop()
        sampler.every = 0  # open ranges close through it
        if state.emitter is sampler:
            emit.use(sampler.behind, state.reason)


def with_sampler(emitter: Emitter) -> Emitter:
    """Return ``emitter`` with the sampler before it, if memory is sampled now."""
    if not _samplers:
        return emitter
    before = _samplers.pop()
    every, before.every = before.every, 0
    return _sampler(emitter, every)


def without_sampler(emitter: Emitter) -> Emitter:
    """Return the emitter behind a sampler, or ``emitter`` itself."""
    return emitter.behind if isinstance(emitter, Sampler) else emitter


def _sampler(emitter: Emitter, every: int) -> Sampler:
    sampler = Sampler(emitter, every, sample)
    _samplers.append(sampler)
    return sampler


def taken() -> int:
    """Return how many samples were taken since the last `reset`."""
    return _buffer.count


def is_running() -> bool:
    """Return whether memory is sampled now."""
    return bool(_samplers)


def sample(tag: str = "") -> None:
    """Take one sample now, named ``tag``."""
    values = uses()
    _buffer.add(tag, values)
    if not state.idle:
        record(values)


def reset() -> None:
    """Delete all samples; the next one is number 0."""
    _buffer.clear()


os.register_at_fork(after_in_child=reset)  # the samples belong to the parent


def max_info(device: str | None = None) -> Peaks:
    """Return the peaks in bytes of a device such as ``cuda:0`` or ``cpu``.

    Default: the first GPU, if any.
    """
    return _buffer.peaks(device or _first())


def trace(device: str | None = None) -> str:
    """Return the samples of a device as a text table: number, op, used and reserved MiB.

    Returns '' if there are none.
    """
    rows = [
        (str(sample.number), sample.tag, _mib(sample.used), _mib(sample.reserved))
        for sample in _buffer.samples(device or _first())
    ]
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    lines = ["Sizes are in MiB.", *(_line(row, widths) for row in (HEADS, *rows))]
    return "\n".join(lines) + "\n"


def _first() -> str:
    return next((device for device in _buffer.devices if device != CPU), CPU)


def _mib(count: int) -> str:
    return "" if count < 0 else f"{count / MIB:.3f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    number, tag, used, reserved = widths
    return f"{row[0]:>{number}}  {row[1]:<{tag}}  {row[2]:>{used}}  {row[3]:>{reserved}}".rstrip()
