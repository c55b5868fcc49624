"""Details of calls: shapes, dtypes, arguments, FLOPs and bytes, for the recording of the process.

Equal details are described once, so that each further call is two numbers. Observing a call never
raises, never waits for a device, and keeps no tensor and no other object of the program alive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from bridge.annotate.emit import current, state, when_attached
from bridge.annotate.emitter import warn
from bridge.annotate.guard import error_text

# -- Plain values: what is recorded of arguments and tensors


MAX_ENTRIES = 64  # recorded tensors per call, and recorded entries per list
MAX_TEXT = 200  # characters of a value that is not a number
SCALARS = frozenset([type(None), bool, int, float])
INTEGER_BITS = 64  # larger integers are recorded as text

Tensor = tuple[tuple[int, ...] | None, Any]  # shape and dtype
NO_TENSOR: Tensor = (None, "")


def plain_value(value: Any, limit: int = MAX_ENTRIES) -> Any:
    """Return a value as a number, text or tuple of these; other objects as their ``repr``."""
    if type(value) in SCALARS and (type(value) is not int or value.bit_length() < INTEGER_BITS):
        return value
    if isinstance(value, str):
        return str(value)[:MAX_TEXT]
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, tuple | list):
        return _list(value, limit)
    shape = getattr(value, "shape", None)
    return _array(value, shape, limit) if isinstance(shape, tuple) else repr(value)[:MAX_TEXT]


def _number(value: float) -> Any:
    """Return a number of a subclass (for example an enumeration), or one with many digits."""
    if isinstance(value, float):
        return float(value)
    return int(value) if int(value).bit_length() < INTEGER_BITS else hex(value)[:MAX_TEXT]


def _array(value: Any, shape: tuple[Any, ...], limit: int) -> Any:
    """Return dtype and shape as text, or the number in a NumPy scalar.

    Does not wait for a device.
    """
    if not shape and type(value).__module__ == "numpy" and limit:
        return plain_value(value.item(), 0)
    return f"{dtype_name(getattr(value, 'dtype', ''))}{[_length(length) for length in shape]}"


def _list(values: tuple[Any, ...] | list[Any], limit: int) -> Any:
    """Return the first entries, fewer for nested lists; "…" stands for the rest."""
    first = tuple(plain_value(item, limit // 8) for item in values[:limit])
    return first if len(values) <= limit else (*first, "…")


def tensor_specs(values: Iterable[Any], limit: int = MAX_ENTRIES) -> tuple[Tensor, ...]:
    """Return shape and dtype of each value, and of the first entries of lists."""
    result: list[Tensor] = []
    for value in values:
        try:
            shape = getattr(value, "shape", None)
            if isinstance(shape, tuple):
                result.append((shape, getattr(value, "dtype", "")))
                continue
        except Exception:  # noqa: BLE001 - a nested tensor has no shape, and raises
            shape = None
        if isinstance(value, tuple | list):
            result += _list_specs(value, limit) if len(result) < MAX_ENTRIES else ()
        elif isinstance(shape, list):  # PaddlePaddle's
            result.append((tuple(shape), getattr(value, "dtype", "")))
        else:
            result.append(NO_TENSOR)
    return tuple(result[:MAX_ENTRIES] if len(result) > MAX_ENTRIES else result)


def _list_specs(values: tuple[Any, ...] | list[Any], limit: int) -> Iterable[Tensor]:
    """Return the tensors in a list; a list without tensors, such as a stride, is one value."""
    result = tensor_specs(islice(values, limit), limit // 8)
    return result if any(shape is not None for shape, _ in result) else (NO_TENSOR,)


def plain_specs(specs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return shapes with plain integers (-1 for symbolic lengths), and dtypes as text."""
    return tuple(
        (None if shape is None else tuple(map(_length, shape)), dtype_name(dtype))
        for shape, dtype in specs
    )


def shape_fields(kind: str, specs: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return the fields for shapes and dtypes.

    Null for values that are not tensors, -1 for symbolic lengths.
    """
    plain = plain_specs(specs)
    return {
        f"{kind}shapes": [shape for shape, _ in plain],
        f"{kind}dtypes": [d for _, d in plain],
    }


def _length(length: Any) -> int:
    return int(length) if isinstance(length, int) or type(length).__module__ == "numpy" else -1


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype without its library, for example `float32` for `torch.float32`."""
    return str(dtype).rpartition(".")[2][:MAX_TEXT]


def tensor_strides(values: Iterable[Any], limit: int = MAX_ENTRIES) -> tuple[Any, ...]:
    """Return the stride of each value in elements, None for what has none; as `tensor_specs`."""
    result: list[Any] = []
    for value in values:
        if isinstance(value, tuple | list) and not hasattr(value, "shape"):
            inner = tensor_strides(islice(value, limit), limit // 8)
            is_list = _list_specs(value, limit) != (NO_TENSOR,)
            result += inner if is_list else (None,)
        else:
            result.append(_stride(value))
    return tuple(result[:MAX_ENTRIES])


def _stride(value: Any) -> tuple[int, ...] | None:
    """Return the stride of an array; None for sparse and nested tensors, which have none."""
    try:
        if callable(getattr(value, "stride", None)):
            return tuple(value.stride()) if str(value.layout).endswith("strided") else None
        strides, size = getattr(value, "strides", None), getattr(value, "itemsize", 0)
        return tuple(stride // size for stride in strides) if strides is not None and size else None
    except Exception:  # noqa: BLE001 - such tensors raise
        return None


# -- Call stacks


Stack = tuple[tuple[CodeType, int], ...]  # code and line of each frame, the innermost first
_is_program: dict[CodeType, bool] = {}
PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 (no pathlib)
LIBRARY = f"{os.sep}site-packages{os.sep}torch{os.sep}"


def program_stack(limit: int) -> Stack:
    """Return the innermost frames of the running thread, without those of bridge and PyTorch."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 (as inspect.currentframe)
    result: list[tuple[CodeType, int]] = []
    while frame is not None and len(result) < limit:
        code = frame.f_code
        known = _is_program.get(code)
        if known is None:
            known = _is_program[code] = not _is_of_library(code.co_filename)
        if known:
            result.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(result)


def _is_of_library(file: str) -> bool:
    return file.startswith((PACKAGE, "<")) or LIBRARY in file


def frame_text(code: CodeType, line: int) -> str:
    """Return a frame as PyTorch's profiler writes it: ``train.py(12): step``."""
    return f"{code.co_filename}({line}): {code.co_name}"


# -- Observers of calls


# Arguments that the formulas of bridge.knowledge.formulas need besides shapes.
ARGUMENTS = (
    "stride", "padding", "dilation", "groups", "transposed", "output_padding", "is_causal", "dim",
    "axis", "equation", "kernel_size", "output_mask", "bias",
)  # fmt: skip
SELF_NAMES = ("self", "cls")  # first parameters that are not inputs


class DetailOptions(NamedTuple):
    """The details to record: shapes, arguments by name, FLOPs ("auto", number or function).

    ``costs`` are bytes by formula, recorded with shapes; ``strides`` are those of the inputs, in
    elements. ``stacks`` is the number of frames of the program's call stack.
    """

    shapes: Any = False
    args: Any = ()
    flops: Any = None
    costs: bool = True
    strides: bool = False
    stacks: int = 0


def merged(requests: Iterable[DetailOptions | None]) -> DetailOptions | None:
    """Return options that record what any request asks of an op, which has no arguments by name."""
    known = [request for request in requests if request is not None]
    if not known:
        return None
    return DetailOptions(
        any(request.shapes for request in known),
        flops=next((request.flops for request in known if request.flops is not None), None),
        costs=any(request.costs for request in known),
        strides=any(request.strides for request in known),
        stacks=max(request.stacks for request in known),
    )


class Seen(NamedTuple):
    """What is observed before a call runs: inputs, arguments by name, strides, call stack."""

    inputs: tuple[Tensor, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()
    strides: tuple[tuple[int, ...] | None, ...] = ()
    stack: Stack = ()


_seen = tuple.__new__  # as Seen(...), without a Python call


def checked_details(
    shapes: Any, args: Any, flops: Any, payload: Any = None, *, strides: bool = False
) -> DetailOptions:
    """Return checked options; raises TypeError for options that make no sense."""
    if payload is not None:
        raise TypeError("nvtx_op: give no payload with details, which need the call id as payload")
    if isinstance(args, str):
        raise TypeError(f"nvtx_op: args are a sequence of names, not {args!r}: args=({args!r},)")
    if isinstance(flops, str) and flops != "auto":
        raise TypeError(f"nvtx_op: flops are 'auto', a number or a function, not {flops!r}")
    names = args if hasattr(args, "items") else tuple(args or ())
    return DetailOptions(shapes, names, flops, strides=strides)


class Place(NamedTuple):
    """A parameter: its name, its position (-1 for none), and its default."""

    name: str
    at: int
    default: Any


class Observer:
    """Records the details of the calls of one function, or of one block."""

    __slots__ = (
        "_costs", "_fixed", "_flops", "_kind", "_name", "_named", "_order", "_shapes", "_skip", "_stacks",
        "_strides", "details"
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        details: DetailOptions,
        places: Iterable[Place] = (),
        *,
        open_ended: bool = True,
        skip: int = 0,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        of_name = {place.name: place for place in places}
        self.details = details
        self._name = name
        self._order = tuple(of_name)
        self._skip = skip  # number of first arguments that are not inputs, such as ``self``
        self._shapes = bool(details.shapes) or details.flops == "auto"
        self._flops = details.flops
        self._named = tuple(_places_of(of_name, details, None if open_ended else name))
        self._costs = (
            details.costs and self._shapes
        )  # bytes and FLOPs; not of ops whose parts have them
        self._fixed = dict(fixed or {})  # fields of all calls
        self._strides, self._stacks = details.strides, details.stacks
        self._kind = (name, self._shapes, details.flops == "auto", *self._fixed.values())

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Seen | None:
        """Return inputs and arguments of a call that is about to run, or None after a failure."""
        try:
            inputs: tuple[Tensor, ...] = ()
            strides: tuple[tuple[int, ...] | None, ...] = ()
            if self._shapes:
                positional = args[self._skip :] if self._skip else args
                given = (*positional, *self._ordered(kwargs)) if kwargs else positional
                inputs = tensor_specs(given)
                strides = tensor_strides(given) if self._strides else ()
            values: tuple[tuple[str, Any], ...] = ()
            if self._named:
                values = tuple([(p.name, _value(p, args, kwargs)) for p in self._named])
            stack = program_stack(self._stacks) if self._stacks else ()
            return _seen(Seen, (inputs, values, strides, stack))
        except Exception as error:  # noqa: BLE001 - observing must not make the program fail
            _failed(self._name, error)
            return None

    def _ordered(self, kwargs: Mapping[str, Any]) -> list[Any]:
        """Return keyword arguments in the order of the parameters."""
        known = [kwargs[name] for name in self._order if name in kwargs]
        return [*known, *(value for name, value in kwargs.items() if name not in self._order)]

    def note(
        self,
        call: int,
        seen: Seen | None,
        result: Any = None,
        arguments: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {}),
    ) -> None:
        """Write the details of a call to the recordings."""
        if seen is None:
            return
        try:
            outputs = tensor_specs((result,)) if self._shapes and result is not None else ()
            flops = None if self._flops is None else self._given_flops(arguments)
            try:
                self._write(call, seen, outputs, flops)
            except TypeError:  # a symbolic length has no hash
                strides = tuple(s and tuple(map(_length, s)) for s in seen.strides)
                seen = seen._replace(inputs=plain_specs(seen.inputs), strides=strides)
                self._write(call, seen, plain_specs(outputs), flops)
        except Exception as error:  # noqa: BLE001 - as above
            _failed(self._name, error)

    def _write(self, call: int, seen: Seen, outputs: tuple[Tensor, ...], flops: Any) -> None:
        inputs, values, strides, stack = seen
        # As text, because 1, 1.0 and True are equal.
        key: tuple[Any, ...]
        key = (self._kind, inputs, repr(values) if values else "", outputs, flops)
        if strides or stack:
            key = (*key, strides, stack)
        for writer in recordings():
            if not writer.note_alike(call, key):
                writer.note(call, key, self._described(seen, outputs, flops))

    def _given_flops(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Any:
        """Return the FLOPs that the program itself gives for a call, or None."""
        if self._flops == "auto":
            return None
        flops = self._flops(*arguments[0], **arguments[1]) if callable(self._flops) else self._flops
        return None if flops is None else plain_value(int(flops))

    def _described(self, seen: Seen, outputs: tuple[Tensor, ...], flops: Any) -> dict[str, Any]:
        """Return the details of a call as fields of the recording."""
        inputs, values, strides, stack = seen
        result: dict[str, Any] = dict(self._fixed)
        if inputs or outputs:
            result |= shape_fields("", inputs) | shape_fields("output_", outputs)
        if any(strides):
            result["strides"] = strides
        if stack:
            result["stack"] = [frame_text(code, line) for code, line in stack]
        if values:
            result["args"] = dict(values)
        if flops is not None:
            result["flops"] = flops
        return result | (self._formulas(seen, outputs) if self._costs else {})

    def _formulas(self, seen: Seen, outputs: tuple[Tensor, ...]) -> dict[str, int]:
        """Return bytes, and with "auto" FLOPs, if a formula gives them."""
        from bridge.knowledge.formulas import (
            Call,
            bytes_moved,
            flops,
        )  # needed once per distinct call

        inputs, values = seen.inputs, seen.values
        call = Call(
            self._name,
            tuple(shape for shape, _ in inputs),
            tuple(dtype_name(dtype) for _, dtype in inputs),
            dict(values),
            tuple(shape for shape, _ in outputs),
            tuple(dtype_name(dtype) for _, dtype in outputs),
        )
        auto = self._flops == "auto"
        result = {"flops": flops(call) if auto else None, "bytes": bytes_moved(call)}
        return {name: value for name, value in result.items() if value is not None}


def note_block(call: int, name: str, details: DetailOptions) -> None:
    """Write the details of a block to the recordings: its inputs and its arguments."""
    try:
        observer = Observer(name, details._replace(args=()))
        is_single = hasattr(details.shapes, "shape")  # a single tensor, not a sequence
        seen = observer.look((details.shapes,) if is_single else tuple(details.shapes or ()), {})
        values = tuple((str(key), plain_value(value)) for key, value in dict(details.args).items())
    except Exception as error:  # noqa: BLE001 - as above
        _failed(name, error)
    else:
        observer.note(call, seen and seen._replace(values=values))


def checked_block(name: str, details: DetailOptions) -> None:
    """Raise TypeError for details that only a function can have."""
    if details.shapes is True:
        raise TypeError(f"nvtx_op: a block has no arguments: with nvtx_op({name!r}, shapes=(a, b))")
    if not hasattr(details.args, "items") and details.args:
        raise TypeError(f"nvtx_op: the args of a block are a mapping, not {details.args!r}")
    if callable(details.flops):
        raise TypeError("nvtx_op: the flops of a block are a number or 'auto'")


class _Sidecar:
    """The writer of the sidecar, once it has been created."""

    writer: Callable[[], Any] | None = None


def recordings() -> list[Any]:
    """Return the writers for details: the session's, and the sidecar's if a tool is attached."""
    current()  # determines whether a tool is attached
    result = [] if state.writer is None else [state.writer]
    if state.attached:
        if _Sidecar.writer is None:
            from bridge.annotate.recording import recorder  # needed only with a tool

            _Sidecar.writer = recorder.sidecar_writer
        sidecar = _Sidecar.writer()
        if sidecar is not None:
            result.append(sidecar)
    return result


def record_process() -> None:
    """Have the process recorded without details of calls: its rank now, and what annotations cost at its end.

    Does nothing unless there is a folder for it: beside the program nobody asked for a file.
    """
    if os.environ.get("BRIDGE_SIDECAR", "") in ("", "off"):
        return
    from bridge.annotate.recording import lines, recorder, writer  # as above

    sidecar = recorder.sidecar_writer()
    if sidecar is not None and lines.ranks(os.environ):
        sidecar.begin()
    writer.expect()


when_attached.append(record_process)


def function_observer(function: Callable[..., Any], name: str, details: DetailOptions) -> Observer:
    """Return the observer of a function; raises TypeError for an argument that it does not have."""
    from inspect import signature  # takes 10 ms, and most ops have no details

    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return Observer(name, details)
    places = [
        Place(
            p.name,
            at if p.kind <= p.POSITIONAL_OR_KEYWORD else -1,
            None if p.default is p.empty else p.default,
        )
        for at, p in enumerate(parameters)
    ]
    open_ended = any(p.kind == p.VAR_KEYWORD for p in parameters)
    skip = 1 if places and places[0].name in SELF_NAMES else 0
    return Observer(name, details, places, open_ended=open_ended, skip=skip)


def _places_of(
    places: Mapping[str, Place], details: DetailOptions, closed: str | None
) -> Iterator[Place]:
    """Yield the arguments to record, and with "auto" FLOPs those that formulas need."""
    for name in details.args:
        if name not in places and closed is not None:
            raise TypeError(f"nvtx_op: {closed} has no argument {name!r}")
    needed = [name for name in ARGUMENTS if name in places] if details.flops == "auto" else []
    for name in dict.fromkeys([*details.args, *needed]):
        yield places.get(name) or Place(name, -1, None)


def _value(place: Place, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if place.name in kwargs:
        return plain_value(kwargs[place.name])
    return plain_value(args[place.at] if 0 <= place.at < len(args) else place.default)


_warned: set[str] = set()


def _failed(name: str, error: Exception) -> None:
    """Warn once per name that details of its calls are missing."""
    if name in _warned:
        return
    _warned.add(name)
    warn(f"details of {name!r} are not recorded: {error_text(error)}", 3)
