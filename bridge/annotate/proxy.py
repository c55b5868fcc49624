"""Stand for a callable object: its calls become ranges, all else is asked of the object itself.

A function around it would lose what it has beside its call (`numpy.add.reduce`, the `lower` of a jitted
function). The invariant: a proxy keeps no state of its own but the object and the way to call it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from bridge.annotate.label import Label
from bridge.annotate.wrap import wrapped

UNBOUND = 1 << 17  # Py_TPFLAGS_METHOD_DESCRIPTOR: bound or called with the object first is the same
ORIGINAL, CALL, AROUND = "_bridge_original", "_bridge_call", "_bridge_around"
MRO = "__mro_entries__"
Around = Callable[[Any], Callable[..., Any]]

# Python looks for these on the class alone: a proxy has those that its object has.
FORWARDED = (
    *"__getitem__ __setitem__ __delitem__ __len__ __iter__ __contains__ __enter__ __exit__".split(),
    *"__instancecheck__ __subclasscheck__ __or__ __ror__ __get__".split(),
)


class Proxy:
    """The object, with `around` of it as its call; `isinstance` takes it for the object."""

    __slots__ = (ORIGINAL, CALL, AROUND, "__weakref__")

    def __init__(self, original: Any, around: Around) -> None:
        call = around(original) if callable(original) else None  # a descriptor gives what is called
        for name, value in ((ORIGINAL, original), (CALL, call), (AROUND, around)):
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the object, in a range."""
        return _own(self, CALL)(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name == MRO and isinstance(_own(self, ORIGINAL), type):
            return _own(self, name)
        return getattr(_own(self, ORIGINAL), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_own(self, ORIGINAL), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_own(self, ORIGINAL), name)

    def __dir__(self) -> list[str]:
        return dir(_own(self, ORIGINAL))

    def __repr__(self) -> str:
        return repr(_own(self, ORIGINAL))

    def __str__(self) -> str:
        return str(_own(self, ORIGINAL))

    def __eq__(self, other: object) -> bool:
        return bool(_own(self, ORIGINAL) == inside(other))

    def __hash__(self) -> int:
        return hash(_own(self, ORIGINAL))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _own(self, ORIGINAL).__reduce_ex__(protocol)

    # Asked of the object, not of its class.
    def __mro_entries__(self, _bases: object) -> tuple[Any, ...]:
        return (_own(self, ORIGINAL),)  # `class Mine(cupy.RawKernel)` is one of the real class


_own = object.__getattribute__


def proxy(original: Any, around: Around) -> Any:
    """Return a proxy whose calls go to ``around(original)``, and so for what it gives by `[]` or `.`."""
    return _kind(type(original))(original, around)


def ranged(original: Any, label: Label) -> Any:
    """Return a proxy whose calls are ranges of this label."""
    # Through a partial: of objects, `wraps` would copy what need not be fit for a function.
    return proxy(original, lambda called: wrapped(partial(called), label, None))


def is_proxy(candidate: Any) -> bool:
    """Tell whether an object is one of the proxies; `isinstance` would ask what it stands for."""
    return issubclass(type(candidate), Proxy)


def inside(candidate: Any) -> Any:
    """Return what a proxy stands for; anything else as it is."""
    return _own(candidate, ORIGINAL) if is_proxy(candidate) else candidate


_kinds: dict[type, type[Proxy]] = {}


def _kind(original: type) -> type[Proxy]:
    """Return the class of proxies for objects of one class."""
    if original not in _kinds:
        _kinds[original] = _made_for(original)
    return _kinds[original]


def _made_for(original: type) -> type[Proxy]:
    has = {name for base in original.__mro__ for name in vars(base)}  # none of its metaclass
    found = {name: _forward(name) for name in FORWARDED if name in has}
    if original.__flags__ & UNBOUND:
        found["__get__"] = _bind
    return type("Proxy", (Proxy,), {"__slots__": (), **found})


def _bind(self: Proxy, instance: Any, _owner: Any = None) -> Any:
    """Bind a method without a new proxy for every call."""
    return self if instance is None else MethodType(self, instance)


def _forward(name: str) -> Callable[..., Any]:
    """Make a special method; a callable that it gives is called in a range, as in `kernel[grid](x)`."""
    gives_callables = name in {"__getitem__", "__get__"}

    def forward(self: Proxy, *args: Any) -> Any:
        original = _own(self, ORIGINAL)
        given = getattr(type(original), name)(original, *args)
        if given is original:
            return self
        if gives_callables and callable(given):
            return proxy(given, _own(self, AROUND))
        return given

    return forward
