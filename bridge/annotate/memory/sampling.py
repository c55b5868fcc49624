"""Sample the memory of this process while it runs: `start`, `stop`, `reset`, and what was found.

The invariant: one sampling runs at a time, its sampler before all else that hears of annotations, so that it looks while
an op is open; annotations are handed on to whoever listened before, and sessions begin and end behind it.
"""

from __future__ import annotations

import os

from bridge.annotate import emit
from bridge.annotate.emit import Emitter, state
from bridge.annotate.memory import counters
from bridge.annotate.memory.kept import Kept, Peaks
from bridge.annotate.memory.sampler import Sampler, checked_rate
from bridge.annotate.memory.uses import CPU, uses

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
        counters.record(found)


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
