"""Details of single calls: shapes, dtypes, arguments, FLOPs and bytes, for the process's recording.

They are described once for all calls that are alike; each call is then two numbers. The invariant:
what looks at a call never raises, and keeps nothing of it alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from bridge.annotate.emit import current, state
from bridge.annotate.plain_values import (
    Tensor,
    plain,
    plain_tensors,
    str_dtype,
    tensors,
    written_shapes,
)
from bridge.annotate.warning import warn

# What the formulas of bridge.knowledge.formulas ask for besides shapes.
ARGUMENTS = (
    "stride", "padding", "dilation", "groups", "transposed", "output_padding", "is_causal", "dim",
    "axis", "equation", "kernel_size", "output_mask", "bias",
)  # fmt: skip
SELF = ("self", "cls")  # first parameters that are no inputs


class Wanted(NamedTuple):
    """Which details: shapes and dtypes, arguments by name, FLOPs ("auto", a number, a function)."""

    shapes: Any = False
    args: Any = ()
    flops: Any = None


# What was seen of a call before it ran: its inputs, and its arguments by name.
Seen = tuple[tuple[Tensor, ...], tuple[tuple[str, Any], ...]]


def wanted(shapes: Any, args: Any, flops: Any, payload: Any = None) -> Wanted:
    """Check what the user asked for."""
    if payload is not None:
        raise TypeError("nvtx_op: details are found by the call's id: give no payload with them")
    if isinstance(args, str):
        raise TypeError(f"nvtx_op: args are a sequence of names, not {args!r}: args=({args!r},)")
    if isinstance(flops, str) and flops != "auto":
        raise TypeError(f"nvtx_op: flops are 'auto', a number or a function, not {flops!r}")
    return Wanted(shapes, args if hasattr(args, "items") else tuple(args or ()), flops)


class Place(NamedTuple):
    """Where a call has an argument: its position, -1 for none, and what it is if not given."""

    name: str
    at: int
    default: Any


class Observer:
    """Looks at the calls of one function, whose parameters are in order, or at one block."""

    __slots__ = ("_flops", "_kind", "_name", "_named", "_order", "_shapes", "_skip", "details")

    def __init__(
        self,
        name: str,
        details: Wanted,
        places: Iterable[Place] = (),
        *,
        open_ended: bool = True,
        skip: int = 0,
    ) -> None:
        of_name = {place.name: place for place in places}
        self.details = details
        self._name = name
        self._order = tuple(of_name)
        self._skip = skip  # first arguments that are no inputs: a method's object
        self._shapes = bool(details.shapes) or details.flops == "auto"
        self._flops = details.flops
        self._named = tuple(_wanted_places(of_name, details, None if open_ended else name))
        self._kind = (name, self._shapes, details.flops == "auto")

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Seen | None:
        """See what a call is about to be given."""
        try:
            inputs: tuple[Tensor, ...] = ()
            if self._shapes:
                given = args[self._skip :] if self._skip else args
                inputs = tensors((*given, *self._ordered(kwargs)) if kwargs else given)
            if not self._named:
                return inputs, ()
            return inputs, tuple([(p.name, _value(p, args, kwargs)) for p in self._named])
        except Exception as error:  # noqa: BLE001 - the program is not to fail for being looked at
            _failed(self._name, error)
            return None

    def _ordered(self, kwargs: Mapping[str, Any]) -> list[Any]:
        """Return what was given by name as if it had been given by position."""
        known = [kwargs[name] for name in self._order if name in kwargs]
        return [*known, *(value for name, value in kwargs.items() if name not in self._order)]

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
            outputs = tensors((result,)) if self._shapes and result is not None else ()
            counted = None if self._flops is None else self._counted(given)
            try:
                self._hand_on(call, seen, outputs, counted)
            except TypeError:  # a length that is a symbol has no hash
                seen = plain_tensors(seen[0]), seen[1]
                self._hand_on(call, seen, plain_tensors(outputs), counted)
        except Exception as error:  # noqa: BLE001 - as above
            _failed(self._name, error)

    def _hand_on(self, call: int, seen: Seen, outputs: tuple[Tensor, ...], counted: Any) -> None:
        inputs, values = seen
        # As text, for 1, 1.0 and True are equal.
        key = (self._kind, inputs, repr(values) if values else "", outputs, counted)
        for writer in recordings():
            if not writer.note_alike(call, key):
                writer.note(call, key, self._described(seen, outputs, counted))

    def _counted(self, given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Any:
        """Return the FLOPs that the program itself tells, of each call anew."""
        if self._flops == "auto":
            return None
        counted = self._flops(*given[0], **given[1]) if callable(self._flops) else self._flops
        return None if counted is None else plain(int(counted))

    def _described(self, seen: Seen, outputs: tuple[Tensor, ...], counted: Any) -> dict[str, Any]:
        """Return the details as they are written."""
        inputs, values = seen
        found: dict[str, Any] = {}
        if inputs or outputs:
            found |= written_shapes("", inputs) | written_shapes("output_", outputs)
        if values:
            found["args"] = dict(values)
        if counted is not None:
            found["flops"] = counted
        return found | (self._costs(seen, outputs) if self._shapes else {})

    def _costs(self, seen: Seen, outputs: tuple[Tensor, ...]) -> dict[str, int]:
        """Return bytes, and on demand FLOPs, where a formula knows them."""
        from bridge.knowledge.formulas import Call, bytes_moved, flops  # once for each kind of call

        inputs, values = seen
        call = Call(
            self._name,
            tuple(shape for shape, _ in inputs),
            tuple(str_dtype(dtype) for _, dtype in inputs),
            dict(values),
            tuple(shape for shape, _ in outputs),
            tuple(str_dtype(dtype) for _, dtype in outputs),
        )
        auto = self._flops == "auto"
        found = {"flops": flops(call) if auto else None, "bytes": bytes_moved(call)}
        return {name: value for name, value in found.items() if value is not None}


def note_block(call: int, name: str, details: Wanted) -> None:
    """Hand on what a block says of itself: its inputs, and its arguments as a mapping."""
    try:
        observer = Observer(name, details._replace(args=()))
        one = hasattr(details.shapes, "shape")  # given by itself
        seen = observer.look((details.shapes,) if one else tuple(details.shapes or ()), {})
        values = tuple((str(key), plain(value)) for key, value in dict(details.args).items())
    except Exception as error:  # noqa: BLE001 - as above
        _failed(name, error)
    else:
        observer.note(call, seen and (seen[0], values))


def checked_block(name: str, details: Wanted) -> None:
    """Refuse what only a function has."""
    if details.shapes is True:
        raise TypeError(f"nvtx_op: a block has no arguments: with nvtx_op({name!r}, shapes=(a, b))")
    if not hasattr(details.args, "items") and details.args:
        raise TypeError(f"nvtx_op: the args of a block are a mapping, not {details.args!r}")
    if callable(details.flops):
        raise TypeError("nvtx_op: the flops of a block are a number or 'auto'")


class _Beside:
    """The recording beside the profiler's report, once it is known where details go."""

    writer: Callable[[], Any] | None = None


def recordings() -> list[Any]:
    """Return the writers that details go to: the session's, and with a tool attached the sidecar."""
    current()  # whether a tool is attached is known from the first use on
    found = [] if state.writer is None else [state.writer]
    if state.attached:
        if _Beside.writer is None:
            from bridge.annotate.recording import sidecar  # only where a tool is attached

            _Beside.writer = sidecar.writer
        beside = _Beside.writer()
        if beside is not None:
            found.append(beside)
    return found


def of_function(function: Callable[..., Any], name: str, details: Wanted) -> Observer:
    """Return who looks at the calls of a function; raise TypeError for an argument that it has not."""
    from inspect import signature  # 10 ms, and most ops have no details

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
    skip = 1 if places and places[0].name in SELF else 0
    return Observer(name, details, places, open_ended=open_ended, skip=skip)


def _wanted_places(
    places: Mapping[str, Place], details: Wanted, closed: str | None
) -> Iterator[Place]:
    """Find the arguments that are wanted, and for FLOPs those that formulas ask for."""
    for one in details.args:
        if one not in places and closed is not None:
            raise TypeError(f"nvtx_op: {closed} has no argument {one!r}")
    asked = [one for one in ARGUMENTS if one in places] if details.flops == "auto" else []
    for one in dict.fromkeys([*details.args, *asked]):
        yield places.get(one) or Place(one, -1, None)


def _value(place: Place, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if place.name in kwargs:
        return plain(kwargs[place.name])
    return plain(args[place.at] if 0 <= place.at < len(args) else place.default)


_warned: set[str] = set()


def _failed(name: str, error: Exception) -> None:
    """Say once of each name that details of its calls are missing."""
    if name in _warned:
        return
    _warned.add(name)
    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception of the program's that cannot even say itself
        reason = type(error).__name__
    message = f"details of {name!r} are left out: {reason}"
    warn(message, 3)
