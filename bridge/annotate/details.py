"""Details of single calls: shapes, dtypes, arguments, FLOPs and bytes, for the process's recording.

They are described once for all calls that are alike; each call is then two numbers. The invariant:
what looks at a call never raises, and keeps nothing of it alive.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from bridge.annotate.emit import state

MOST = 64  # tensors of one call
LONGEST = 200  # characters of a value that is no number
# What the formulas of bridge.formulas ask for besides shapes.
ARGUMENTS = (
    "stride", "padding", "dilation", "groups", "transposed", "output_padding", "is_causal", "dim",
    "axis", "equation", "kernel_size", "output_mask", "bias",
)  # fmt: skip
SELF = ("self", "cls")  # first parameters that are no inputs

Tensor = tuple[tuple[int, ...] | None, Any]  # shape and dtype
NOTHING: Tensor = (None, "")


class Wanted(NamedTuple):
    """Which details: shapes and dtypes, arguments by name, FLOPs ("auto", a number, a function)."""

    shapes: Any = False
    args: Any = ()
    flops: Any = None


class Seen(NamedTuple):
    """What was seen of a call before it ran; `key` is the same for calls that are alike."""

    inputs: tuple[Tensor, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()


def wanted(shapes: Any, args: Any, flops: Any, payload: Any = None) -> Wanted:
    """Check what the user asked for."""
    if payload is not None:
        raise TypeError("nvtx_op: details are found by the call's id: give no payload with them")
    if isinstance(args, str):
        raise TypeError(f"nvtx_op: args are a sequence of names, not {args!r}: args=({args!r},)")
    if isinstance(flops, str) and flops != "auto":
        raise TypeError(f"nvtx_op: flops are 'auto', a number or a function, not {flops!r}")
    return Wanted(shapes, args or (), flops)


class Place(NamedTuple):
    """Where a call has an argument: its position, -1 for none, and what it is if not given."""

    name: str
    at: int
    default: Any


class Observer:
    """Looks at the calls of one function, or at one block."""

    __slots__ = ("_flops", "_name", "_named", "_shapes", "_skip", "_warned", "details")

    def __init__(self, function: Callable[..., Any] | None, name: str, details: Wanted) -> None:
        parameters = _parameters(function)
        self.details = details
        self._name = name
        self._skip = 1 if next(iter(parameters), "") in SELF else 0  # a method's object is no input
        self._shapes = bool(details.shapes) or details.flops == "auto"
        self._flops = details.flops
        self._named = tuple(_placed(parameters, details, name))
        self._warned = False

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Seen | None:
        """See what a call is about to be given."""
        try:
            inputs = _tensors((*args[self._skip :], *kwargs.values())) if self._shapes else ()
            values = tuple((place.name, _value(place, args, kwargs)) for place in self._named)
            seen = Seen(inputs, values)
            hash(seen)
        except Exception as error:  # noqa: BLE001 - the program is not to fail for being looked at
            self._failed(error)
            return None
        return seen

    def note(
        self,
        call: int,
        seen: Seen | None,
        result: Any = None,
        given: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {}),
    ) -> None:
        """Hand the details of a call to the recordings."""
        if seen is None:
            return
        try:
            outputs = _tensors((result,)) if self._shapes and result is not None else ()
            key = (self._name, self._flops, *seen, outputs)
            for writer in recordings():
                writer.note(call, key, lambda: self._described(seen, outputs, given))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _described(self, seen: Seen, outputs: tuple[Tensor, ...], given: Any) -> dict[str, Any]:
        """Return the details as they are written."""
        found: dict[str, Any] = {}
        if self._shapes and (seen.inputs or outputs):
            found |= _shapes("", seen.inputs) | _shapes("output_", outputs)
        if seen.values:
            found["args"] = dict(seen.values)
        found |= self._costs(seen, outputs, given)
        return found

    def _costs(self, seen: Seen, outputs: tuple[Tensor, ...], given: Any) -> dict[str, int]:
        """Return FLOPs and bytes, those that are known."""
        from bridge.formulas import Call, bytes_moved, flops  # noqa: PLC0415 (once for each kind of call)

        if not self._shapes and not self._flops:
            return {}
        call = Call(
            self._name,
            tuple(shape for shape, _ in seen.inputs),
            tuple(str_dtype(dtype) for _, dtype in seen.inputs),
            dict(seen.values),
            tuple(shape for shape, _ in outputs),
            tuple(str_dtype(dtype) for _, dtype in outputs),
        )
        found = {"flops": self._count(flops, call, given), "bytes": bytes_moved(call)}
        return {name: value for name, value in found.items() if value is not None}

    def _count(self, formula: Callable[[Any], int | None], call: Any, given: Any) -> int | None:
        if self._flops == "auto":
            return formula(call)
        counted = self._flops(*given[0], **given[1]) if callable(self._flops) else self._flops
        return None if counted is None else int(counted)

    def _failed(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            message = (
                f"bridge: details of {self._name!r} are left out: {type(error).__name__}: {error}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def note_block(call: int, name: str, details: Wanted) -> None:
    """Hand on what a block says of itself: its inputs, and its arguments as a mapping."""
    observer = Observer(None, name, details._replace(args=()))
    seen = observer.look(tuple(details.shapes or ()), {})
    if seen is not None:
        values = tuple((str(key), _plain(value)) for key, value in dict(details.args).items())
        observer.note(call, seen._replace(values=values))


def checked_block(name: str, details: Wanted) -> None:
    """Refuse what only a function has."""
    if details.shapes is True:
        raise TypeError(f"nvtx_op: a block has no arguments: with nvtx_op({name!r}, shapes=(a, b))")
    if not hasattr(details.args, "items") and details.args:
        raise TypeError(f"nvtx_op: the args of a block are a mapping, not {details.args!r}")
    if callable(details.flops):
        raise TypeError("nvtx_op: the flops of a block are a number or 'auto'")


def recordings() -> Iterable[Any]:
    """Return the writers that details go to: the session's, and with a tool attached the sidecar."""
    session = state.writer
    if session is not None:
        yield session
    if state.attached:
        from bridge.recording import sidecar  # noqa: PLC0415 (only where a tool is attached)

        beside = sidecar.writer()
        if beside is not None:
            yield beside


def str_dtype(dtype: Any) -> str:
    """Return a dtype's name without its library's: `torch.float32` is `float32`."""
    return str(dtype).rpartition(".")[2]


def _parameters(function: Callable[..., Any] | None) -> Mapping[str, Any]:
    if function is None:
        return {}
    from inspect import signature  # noqa: PLC0415 (10 ms, and most ops have no details)

    try:
        return signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return {}


def _placed(parameters: Mapping[str, Any], details: Wanted, name: str) -> Iterator[Place]:
    """Find the arguments that are wanted, and for FLOPs those that formulas ask for."""
    open_ended = not parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    for one in details.args:
        if one not in parameters and not open_ended:
            raise TypeError(f"nvtx_op: {name} has no argument {one!r}")
    asked = [one for one in ARGUMENTS if one in parameters] if details.flops == "auto" else []
    positions = {one: at for at, one in enumerate(parameters)}
    for one in dict.fromkeys([*details.args, *asked]):
        found = parameters.get(one)
        positional = found is not None and found.kind <= found.POSITIONAL_OR_KEYWORD
        default = None if found is None or found.default is found.empty else found.default
        yield Place(one, positions[one] if positional else -1, default)


def _value(place: Place, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if place.name in kwargs:
        return _plain(kwargs[place.name])
    return _plain(args[place.at] if 0 <= place.at < len(args) else place.default)


def _plain(value: Any) -> Any:
    """Return what can be kept and written: numbers, texts, tuples of them; of others their text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, tuple | list):
        return tuple(_plain(one) for one in islice(value, MOST))
    return repr(value)[:LONGEST]


def _tensors(values: Iterable[Any]) -> tuple[Tensor, ...]:
    """Return shape and dtype of each value; of a list its tensors' one by one."""
    found: list[Tensor] = []
    for value in values:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            found.append((shape, getattr(value, "dtype", "")))
        elif isinstance(value, tuple | list):
            found += _tensors(islice(value, MOST))
        else:
            found.append(NOTHING)
    return tuple(found[:MOST])


def _shapes(kind: str, tensors: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return shapes and dtypes as they are written; what is no tensor is null, a symbolic length -1."""
    shapes = [None if shape is None else [_length(one) for one in shape] for shape, _ in tensors]
    return {f"{kind}shapes": shapes, f"{kind}dtypes": [str_dtype(dtype) for _, dtype in tensors]}


def _length(length: Any) -> int:
    return length if isinstance(length, int) else -1
