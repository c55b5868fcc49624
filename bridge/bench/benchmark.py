"""Benchmarks: warm up, find how many calls make a run, and time the runs.

Each timed run is within a range of the op's name, and all of them within ``bench:<name>``. Between
the two readings of the clock are only the calls and the loop around them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns
from typing import Any, Unpack

import numpy as np

from bridge.annotate import nvtx_op
from bridge.annotate.details import ARGUMENTS, Tensor, plain_specs, plain_value, tensor_specs
from bridge.annotate.wrap import op_name_of
from bridge.bench import cache as results_cache
from bridge.bench.devices import Call, Device, Label, find_device
from bridge.bench.devices.base import UNKNOWN, BenchError
from bridge.bench.result import MAX_CALLS, Group, Ints, OptionFields, Options, Result
from bridge.knowledge import formulas

# -- Subjects: functions with their inputs


BACKWARD = "{} backward"


@dataclass(frozen=True)
class Subject:
    """A function with its inputs and a name.

    ``flops`` is "auto" (by a formula for the name), a number, or None.
    """

    function: Any
    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None
    name: str = ""
    flops: str | int | None = "auto"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"a callable is required, not {self.function!r}")
        if not (self.flops is None or self.flops == "auto" or isinstance(self.flops, int | float)):
            raise BenchError(f"flops are 'auto', a number or None, not {self.flops!r}")

    @property
    def title(self) -> str:
        """The name of the function, unless one is given."""
        return self.name or op_name_of(self.function)

    @property
    def call(self) -> Call:
        """The function bound to its inputs."""
        if not self.inputs and not self.named:
            bare: Call = self.function
            return bare
        return partial(self.function, *self.inputs, **(self.named or {}))

    @property
    def values(self) -> tuple[Any, ...]:
        """All inputs; keyword arguments come last."""
        return (*self.inputs, *(self.named or {}).values())

    @property
    def shapes(self) -> tuple[Tensor, ...]:
        """Shape and dtype of each input that is a tensor, also of tensors in lists."""
        return plain_specs(tensor_specs(self.values))

    def costs(self, result: Any) -> tuple[int, int]:
        """Return the FLOPs and the minimum of bytes of a call, -1 without a formula."""
        outputs = plain_specs(tensor_specs((result,))) if result is not None else ()
        call = formulas.Call(
            name=self.title,
            shapes=tuple(shape for shape, _ in self.shapes),
            dtypes=tuple(dtype for _, dtype in self.shapes),
            arguments=self._arguments(),
            outputs=tuple(shape for shape, _ in outputs),
            output_dtypes=tuple(dtype for _, dtype in outputs),
        )
        flops = formulas.flops(call) if self.flops == "auto" else self.flops
        has_formula = formulas.flops(call) is not None
        moved = formulas.bytes_moved(call) if has_formula else None
        return _or_unknown(flops), _or_unknown(moved)

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that formulas use, by name or by position."""
        positional = {
            str(i): plain_value(value)
            for i, value in enumerate(self.inputs)
            if not hasattr(value, "shape")
        }
        return positional | {
            name: plain_value(value)
            for name, value in (self.named or {}).items()
            if name in ARGUMENTS
        }


def _or_unknown(number: Any) -> int:
    return UNKNOWN if number is None else int(number)


def backward(subject: Subject) -> Subject:
    """Return the backward pass of a PyTorch call: gradients for its inputs and parameters.

    If no input requires a gradient, all floating-point ones do. The forward pass runs once, here.
    Raises ValueError if the result has no gradient.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in subject.values):
        raise BenchError("backward=True needs PyTorch tensors, and no input is one")
    inputs = _with_gradients(torch, subject.inputs)
    result = subject.function(*inputs, **(subject.named or {}))
    outputs = [
        value
        for value in _flatten(result)
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]
    if not outputs:
        raise BenchError(
            f"{subject.title}: its result has no gradient, so there is no backward pass"
        )
    parameters = (
        list(subject.function.parameters()) if hasattr(subject.function, "parameters") else []
    )
    leaves = [
        value
        for value in (*_flatten(inputs), *parameters)
        if getattr(value, "requires_grad", False)
    ]
    seeds = [torch.ones_like(value) for value in outputs]
    gradients = partial(
        torch.autograd.grad, outputs, leaves, seeds, retain_graph=True, allow_unused=True
    )
    number = subject.flops if isinstance(subject.flops, int | float) else None
    return Subject(
        function=gradients, inputs=(), named=None, name=BACKWARD.format(subject.title), flops=number
    )


def _with_gradients(torch: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the inputs; if none requires a gradient, copies that do.

    The copies are new leaves: the user's tensors do not change.
    """
    if any(getattr(value, "requires_grad", False) for value in _flatten(inputs)):
        return tuple(inputs)
    return tuple(
        value.detach().clone().requires_grad_()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for value in inputs
    )


def _flatten(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [inner for value in values for inner in _flatten(value)]
    return [values]


def waiting_for_result(call: Call, result: Any) -> Call:
    """Return a call that waits for its own result if the library computes it asynchronously.

    JAX returns such results.
    """
    if not any(hasattr(value, "block_until_ready") for value in _flatten(result)):
        return call

    def waiting() -> Any:
        output = call()
        for value in _flatten(output):
            value.block_until_ready()
        return output

    return waiting


# -- Measuring


CATEGORY = "bench"
MAX_GROWTH = 10  # of the number of calls, from one try to the next
MAX_TRY_NS = 20_000_000  # of the host, for calls with next to no work on the device
MAX_CALLS_IN_GRAPH = 1000
SEPARATOR = " + "


def op(  # noqa: PLR0913 - keyword arguments
    fn: Callable[..., Any],
    *inputs: Any,
    streams: Sequence[int] | None = None,
    device: Any = None,
    name: str = "",
    flops: str | int | None = "auto",
    cache: bool = True,
    kwargs: dict[str, Any] | None = None,
    **options: Unpack[OptionFields],
) -> Result:
    """Time a call, ``fn(*inputs, **kwargs)``.

    ``options`` are those of `Options`: warmup=10, runs=10, repeat=1, number, cold, graph,
    backward. ``device`` is where the call runs, by default the device of its tensors. ``flops`` is
    the number of FLOPs of a call, or "auto" for the formula of its name. With ``streams`` the call
    runs concurrently on each of them, and a run ends with the last one. The result of an earlier
    measurement with the same key is returned again, unless ``cache`` is False. Raises ValueError
    for invalid options, and any exception of the function.
    """
    subject = Subject(function=fn, inputs=inputs, named=kwargs, name=name, flops=flops)
    parsed = Options.of(options)
    if streams is not None:
        copies = [subject] * len(list(streams))
        whole = _group(copies, tuple(streams), parsed, device, cache=cache).whole
        return replace(whole, name=subject.title, shapes=subject.shapes)
    where = _device(device, [subject])
    key = results_cache.key(where, (parsed, name, flops), fn, inputs, kwargs)
    measure = partial(_measure, subject, parsed, device, where)
    result, is_cached = results_cache.measure_once(key, measure) if cache else (measure(), False)
    return replace(result, cached=is_cached)


def group(
    calls: Iterable[Any],
    streams: Sequence[int] | None = None,
    *,
    device: Any = None,
    cache: bool = True,
    **options: Unpack[OptionFields],
) -> Group:
    """Time several calls that run concurrently.

    Each of ``calls`` is a function, or a function and a tuple of its inputs. ``streams`` has the
    number of a stream for each; by default each has its own. A run lasts from the begin of the
    first call to the end of the last. Streams are CUDA streams; on the CPU they are threads.
    Raises ValueError for invalid options, and any exception of a function.
    """
    subjects = [_subject(call) for call in calls]
    places = tuple(range(len(subjects)) if streams is None else streams)
    return _group(subjects, places, Options.of(options), device, cache=cache)


def _subject(call: Any) -> Subject:
    if isinstance(call, Subject):
        return call
    if isinstance(call, tuple):
        function, inputs = call if len(call) == 2 else (call[0], call[1:])  # noqa: PLR2004 - a pair
        return Subject(function, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))
    return Subject(call)


def _device(request: Any, subjects: Sequence[Subject]) -> Device:
    return find_device(request, [value for subject in subjects for value in subject.values])


def _measure(subject: Subject, options: Options, request: Any, device: Device) -> Result:
    """Measure a call."""
    forward = subject
    subject = backward(subject) if options.backward else subject
    title = subject.title
    result = subject.call()  # may load libraries
    if request is None and not forward.values:  # the function creates its tensors
        device = find_device(None, [result])
    device.wait()
    workspace = device.workspace(subject.call)
    call = waiting_for_result(subject.call, result)
    costs = subject.costs(result)
    del result
    with nvtx_op(f"bench:{title}", category=CATEGORY):
        with nvtx_op(f"{title} warm-up", category=CATEGORY):
            for _ in range(options.warmup):
                call()
            device.wait()
        timed, number, calls = _prepare(call, options, device)
        label = _label(title)
        elapsed = device.runs(timed, options.times, calls, label, cold=options.cold)
    return Result(
        name=title,
        device=device.name,
        clock=device.clock,
        elapsed=np.array(elapsed, np.int64),
        number=number,
        options=options,
        shapes=forward.shapes,
        workspace=workspace,
        flops=costs[0],
        bytes=costs[1],
        loop_ns=device.loop_ns,
    )


def _prepare(call: Call, options: Options, device: Device) -> tuple[Call, int, int]:
    """Return the call of a run, how many calls of the op a run has, and how often to call it."""
    number = 1 if options.cold else options.number
    if not options.graph:
        number = number or long_enough(call, device)
        return call, number, number
    if number is None:
        replay = device.captured(call, 1)
        number = min(MAX_CALLS_IN_GRAPH, long_enough(replay, device))
    return device.captured(call, number), number, 1


def long_enough(call: Call, device: Device) -> int:
    """Return how many calls last as long as the clock of the device needs, by trying."""
    number = 1
    while number < MAX_CALLS:
        begin = perf_counter_ns()
        (elapsed,) = device.runs(call, 1, number, nullcontext, cold=False)
        if elapsed >= device.least_ns or perf_counter_ns() - begin > MAX_TRY_NS:
            break
        needed = -(-number * device.least_ns * 11 // (10 * max(1, elapsed)))  # 10 % more
        number = min(MAX_CALLS, max(number + 1, min(needed, number * MAX_GROWTH)))
    return number


def _label(name: str) -> Label:
    return partial(nvtx_op, name, category=CATEGORY)


def _group(
    subjects: Sequence[Subject],
    streams: tuple[int, ...],
    options: Options,
    request: Any,
    *,
    cache: bool,
) -> Group:
    if not subjects or len(subjects) != len(streams):
        raise BenchError(
            f"{len(subjects)} calls on {len(streams)} streams: give each call a stream"
        )
    if options.cold or options.graph or options.backward:
        raise BenchError("a group cannot be timed with cold, graph or backward")
    device = _device(request, subjects)
    parts = [(s.function, s.inputs, s.named, s.name, s.flops) for s in subjects]
    key = results_cache.key(device, (options, streams), "group", *parts)
    measure = partial(_measure_group, subjects, streams, options, device)
    result, is_cached = results_cache.measure_once(key, measure) if cache else (measure(), False)
    return replace(result, whole=replace(result.whole, cached=is_cached))


def _measure_group(
    subjects: Sequence[Subject], streams: tuple[int, ...], options: Options, device: Device
) -> Group:
    titles = [subject.title for subject in subjects]
    results = [subject.call() for subject in subjects]  # may load libraries
    device.wait()
    workspaces = [device.workspace(subject.call) for subject in subjects]
    calls = [
        waiting_for_result(s.call, result) for s, result in zip(subjects, results, strict=True)
    ]
    costs = [subject.costs(result) for subject, result in zip(subjects, results, strict=True)]
    del results
    # Enough calls of the slowest op; with more calls it would run long after the others.
    number = options.number or min(long_enough(call, device) for call in calls)
    labels = [_label(title) for title in titles]
    with nvtx_op(f"bench:{SEPARATOR.join(titles)}", category=CATEGORY):
        if options.warmup:
            device.at_once(
                calls, streams, runs=options.warmup, number=1, labels=[nullcontext] * len(calls)
            )
        spans = device.at_once(calls, streams, runs=options.times, number=number, labels=labels)
    starts, ends = (np.array(times, np.int64) for times in spans)
    whole = Result(
        name=SEPARATOR.join(titles),
        device=device.name,
        clock=device.clock,
        elapsed=ends.max(axis=1) - starts.min(axis=1),
        number=number,
        options=options,
        flops=_total_cost([flops for flops, _ in costs]),
        bytes=_total_cost([moved for _, moved in costs]),
        loop_ns=device.loop_ns,
        streams=streams,
    )
    parts = zip(subjects, workspaces, costs, (ends - starts).T, strict=True)
    ops = [_op_of_group(whole, place, *times) for place, times in enumerate(parts)]
    return Group(whole, tuple(ops), starts, ends)


def _total_cost(costs: Sequence[int]) -> int:
    """Return the cost of all calls, -1 if that of one is unknown."""
    return UNKNOWN if UNKNOWN in costs else sum(costs)


def _op_of_group(
    whole: Result,
    place: int,
    subject: Subject,
    workspace: int,
    costs: tuple[int, int],
    elapsed: Ints,
) -> Result:
    """Return the result of one op of a group."""
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
