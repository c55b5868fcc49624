"""A benchmark: warm up, find how many calls make a run, time the runs.

The invariant: each timed run is within a range of the op's name, all of them within ``bench:<name>``; nothing else is between
the clock's two readings but the calls and the loop around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from bridge.annotate import nvtx_op
from bridge.bench import cache as kept
from bridge.bench.devices import Call, Device, Label
from bridge.bench.devices import device as chosen
from bridge.bench.errors import BenchError
from bridge.bench.result import MANY, UNKNOWN, Group, Ints, Options, Result
from bridge.bench.subject import Subject, backward, finished

CATEGORY = "bench"
GROWTH = 10  # at most, from one try of a run's length to the next
PATIENCE_NS = 20_000_000  # of the host for one try, where the device has next to nothing to do
IN_A_GRAPH = 1000  # calls at most
JOINT = " + "


def op(  # noqa: PLR0913 - all but the call by keyword
    fn: Callable[..., Any],
    *inputs: Any,
    streams: Sequence[int] | None = None,
    device: Any = None,
    name: str = "",
    flops: str | int | None = "auto",
    cache: bool = True,
    kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Time a call, ``fn(*inputs, **kwargs)``.

    ``options`` are those of `Options`: warmup=10, runs=10, repeat=1, number, cold, graph, backward. ``device`` is where it runs,
    told by its tensors if it is None; ``flops`` those of a call, "auto" by the name's formula. With ``streams`` the call runs at once
    on each of them, and a run lasts until the last is done. What was measured before under the same key is returned again,
    unless ``cache`` is False. Raises ValueError for what cannot be done, and whatever the function raises.
    """
    subject = Subject(fn, inputs, kwargs, name, flops)
    wanted = Options.of(options)
    if streams is not None:
        together = [subject] * len(list(streams))
        whole = _group(together, tuple(streams), wanted, device, cache=cache).whole
        return replace(whole, name=subject.title, shapes=subject.shapes)
    where = _device(device, [subject])
    key = kept.key(where, (wanted, name, flops), fn, inputs, kwargs)
    measure = partial(_measured, subject, wanted, device, where)
    found, known = kept.remembered(key, measure) if cache else (measure(), False)
    return replace(found, cached=known)


def group(
    calls: Iterable[Any],
    streams: Sequence[int] | None = None,
    *,
    device: Any = None,
    cache: bool = True,
    **options: Any,
) -> Group:
    """Time several calls at once: each is a function, or a function and a tuple of its inputs; each on its stream, by number.

    Without ``streams`` each has its own. A run lasts from when the first began to when the last was done. Streams are CUDA's; on the
    CPU each is a thread. Raises ValueError for what cannot be done, and whatever a function raises.
    """
    subjects = [_subject(one) for one in calls]
    places = tuple(range(len(subjects)) if streams is None else streams)
    return _group(subjects, places, Options.of(options), device, cache=cache)


def _subject(one: Any) -> Subject:
    if isinstance(one, Subject):
        return one
    if isinstance(one, tuple):
        function, inputs = one if len(one) == 2 else (one[0], one[1:])  # noqa: PLR2004 (a function and its inputs)
        return Subject(function, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))
    return Subject(one)


def _device(asked: Any, subjects: Sequence[Subject]) -> Device:
    return chosen(asked, [one for subject in subjects for one in subject.given])


def _measured(subject: Subject, wanted: Options, asked: Any, device: Device) -> Result:
    """Time a call that nobody has timed before."""
    forward = subject
    subject = backward(subject) if wanted.backward else subject
    title = subject.title
    result = subject.call()  # which may load libraries
    if asked is None and not forward.given:  # it makes its tensors itself
        device = chosen(None, [result])
    device.wait()
    workspace = device.workspace(subject.call)
    call = finished(subject.call, result)
    costs = subject.costs(result)
    del result
    with nvtx_op(f"bench:{title}", category=CATEGORY):
        with nvtx_op(f"{title} warm-up", category=CATEGORY):
            for _ in range(wanted.warmup):
                call()
            device.wait()
        timed, number, calls = _ready(call, wanted, device)
        label = _label(title)
        elapsed = device.runs(timed, wanted.times, calls, label, cold=wanted.cold)
    return Result(
        name=title,
        device=device.name,
        clock=device.clock,
        elapsed=np.array(elapsed, np.int64),
        number=number,
        options=wanted,
        shapes=forward.shapes,
        workspace=workspace,
        flops=costs[0],
        bytes=costs[1],
        loop_ns=device.loop_ns,
    )


def _ready(call: Call, wanted: Options, device: Device) -> tuple[Call, int, int]:
    """Return what to call in a run, how many calls of the op that makes, and how often to call it."""
    number = 1 if wanted.cold else wanted.number
    if not wanted.graph:
        number = number or long_enough(call, device)
        return call, number, number
    if number is None:
        replay = device.captured(call, 1)
        number = min(IN_A_GRAPH, long_enough(replay, device))
    return device.captured(call, number), number, 1


def long_enough(call: Call, device: Device) -> int:
    """Return how many calls take as long as the device's clock needs, found by trying more and more."""
    number = 1
    while number < MANY:
        begun = perf_counter_ns()
        (elapsed,) = device.runs(call, 1, number, nullcontext, cold=False)
        if elapsed >= device.least_ns or perf_counter_ns() - begun > PATIENCE_NS:
            break
        wanted = -(-number * device.least_ns * 11 // (10 * max(1, elapsed)))  # and a tenth more
        number = min(MANY, max(number + 1, min(wanted, number * GROWTH)))
    return number


def _label(name: str) -> Label:
    return partial(nvtx_op, name, category=CATEGORY)


def _group(
    subjects: Sequence[Subject],
    streams: tuple[int, ...],
    wanted: Options,
    asked: Any,
    *,
    cache: bool,
) -> Group:
    if not subjects or len(subjects) != len(streams):
        raise BenchError(
            f"{len(subjects)} calls on {len(streams)} streams: give each call a stream"
        )
    if wanted.cold or wanted.graph or wanted.backward:
        raise BenchError("a group is timed as it is: no cold, graph or backward")
    device = _device(asked, subjects)
    parts = [(s.function, s.inputs, s.named, s.name, s.flops) for s in subjects]
    key = kept.key(device, (wanted, streams), "group", *parts)
    measure = partial(_measured_group, subjects, streams, wanted, device)
    found, known = kept.remembered(key, measure) if cache else (measure(), False)
    return replace(found, whole=replace(found.whole, cached=known))


def _measured_group(
    subjects: Sequence[Subject], streams: tuple[int, ...], wanted: Options, device: Device
) -> Group:
    titles = [subject.title for subject in subjects]
    results = [subject.call() for subject in subjects]  # which may load libraries
    device.wait()
    workspaces = [device.workspace(subject.call) for subject in subjects]
    calls = [finished(s.call, result) for s, result in zip(subjects, results, strict=True)]
    costs = [subject.costs(result) for subject, result in zip(subjects, results, strict=True)]
    del results
    # As often as makes the slowest long enough: the others would be done long before it, else.
    number = wanted.number or min(long_enough(call, device) for call in calls)
    labels = [_label(title) for title in titles]
    with nvtx_op(f"bench:{JOINT.join(titles)}", category=CATEGORY):
        if wanted.warmup:
            device.at_once(calls, streams, wanted.warmup, 1, [nullcontext] * len(calls))
        spans = device.at_once(calls, streams, wanted.times, number, labels)
    starts, ends = (np.array(one, np.int64) for one in spans)
    whole = Result(
        name=JOINT.join(titles),
        device=device.name,
        clock=device.clock,
        elapsed=ends.max(axis=1) - starts.min(axis=1),
        number=number,
        options=wanted,
        flops=_together([flops for flops, _ in costs]),
        bytes=_together([moved for _, moved in costs]),
        loop_ns=device.loop_ns,
        streams=streams,
    )
    known = zip(subjects, workspaces, costs, (ends - starts).T, strict=True)
    ops = [_part(whole, place, *one) for place, one in enumerate(known)]
    return Group(whole, tuple(ops), starts, ends)


def _together(costs: Sequence[int]) -> int:
    """Return what all calls cost, -1 if that of one is not known."""
    return UNKNOWN if UNKNOWN in costs else sum(costs)


def _part(
    whole: Result,
    place: int,
    subject: Subject,
    workspace: int,
    costs: tuple[int, int],
    elapsed: Ints,
) -> Result:
    """Return one of the ops of a group, by its place."""
    return replace(
        whole,
        name=subject.title,
        elapsed=elapsed,
        shapes=subject.shapes,
        workspace=workspace,
        flops=costs[0],
        bytes=costs[1],
        streams=(whole.streams[place],),
    )
