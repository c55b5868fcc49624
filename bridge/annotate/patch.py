"""Make named callables of a module, a class or an object ops, in place and to be undone.

The invariant: a callable is replaced once, however often it is asked for, and when the last who asked
for it undoes that, its owner is as it was, attribute by attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from bridge.annotate.label import Label, checked, checked_name
from bridge.annotate.wrap import wrapped

# -- Stand for a callable object: its calls become ranges, all else is asked of the object itself


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
        return _proxy_own(self, CALL)(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name == MRO and isinstance(_proxy_own(self, ORIGINAL), type):
            return _proxy_own(self, name)
        return getattr(_proxy_own(self, ORIGINAL), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_proxy_own(self, ORIGINAL), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_proxy_own(self, ORIGINAL), name)

    def __dir__(self) -> list[str]:
        return dir(_proxy_own(self, ORIGINAL))

    def __repr__(self) -> str:
        return repr(_proxy_own(self, ORIGINAL))

    def __str__(self) -> str:
        return str(_proxy_own(self, ORIGINAL))

    def __eq__(self, other: object) -> bool:
        return bool(_proxy_own(self, ORIGINAL) == inside(other))

    def __hash__(self) -> int:
        return hash(_proxy_own(self, ORIGINAL))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _proxy_own(self, ORIGINAL).__reduce_ex__(protocol)

    # Asked of the object, not of its class.
    def __mro_entries__(self, _bases: object) -> tuple[Any, ...]:
        return (
            _proxy_own(self, ORIGINAL),
        )  # `class Mine(cupy.RawKernel)` is one of the real class


_proxy_own = object.__getattribute__


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
    return _proxy_own(candidate, ORIGINAL) if is_proxy(candidate) else candidate


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
        original = _proxy_own(self, ORIGINAL)
        given = getattr(type(original), name)(original, *args)
        if given is original:
            return self
        if gives_callables and callable(given):
            return proxy(given, _proxy_own(self, AROUND))
        return given

    return forward


# -- Make named callables of a module, a class or an object ops, in place and to be undone


ABSENT = object()


class Patch:
    """One replaced attribute; `holders` count those who asked for it."""

    def __init__(self, owner: Any, name: str, new: Any) -> None:
        self.owner, self.name, self.new = owner, name, new
        self.before = _own(owner, name)
        self.holders = 0

    def put(self) -> None:
        """Replace the attribute; where the owner takes no attributes, raise TypeError or AttributeError."""
        setattr(self.owner, self.name, self.new)
        self.new = _own(self.owner, self.name)

    def take_back(self) -> None:
        """Restore what was there before, unless somebody else has put a thing of his own there since."""
        if _own(self.owner, self.name) is not self.new:
            return
        if self.before is ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


class Wanted(NamedTuple):
    """An attribute to be replaced, and how what replaces it is made of what was there."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


_patches: dict[tuple[int, str], Patch] = {}  # by owner, which they keep alive, and name
_originals: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # of the functions made here
_changing = Lock()


class Wrapped:
    """What `wrap` has replaced, until `undo` or the end of the block; `names` are those of its ops."""

    def __init__(self, names: Iterable[str], held: list[Patch]) -> None:
        self.names = tuple(names)
        self._held = held

    def undo(self) -> None:
        """Leave all as it was before; if that has been done, do nothing."""
        with _changing:
            while self._held:
                _release(self._held.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.undo()


def wrap(
    target: Any,
    names: str | Iterable[str] | None = None,
    *,
    prefix: str | None = None,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
) -> Wrapped:
    """Make every named callable of a module, class or object an op, in place; return what undoes it.

    A name may be dotted; without names all public functions are taken that a module lists in `__all__`
    or defines, or that a class defines. An op is called ``prefix.name``, by default after the module or
    class. Raises AttributeError for a name that does not exist and TypeError for what is no function,
    or cannot be replaced; nothing is replaced then.
    """
    extras = checked(domain, category, color)
    first = _name_of(target) if prefix is None else checked_name(prefix)
    chosen = [names] if isinstance(names, str) else names
    listed = public(target) if chosen is None else list(dict.fromkeys(chosen))
    labels = [Label(f"{first}.{name}" if first else name, *extras) for name in listed]
    return replaced(map(partial(_find, target), listed, labels), (one.name for one in labels))


def replaced(wanted: Iterable[Wanted], names: Iterable[str] = ()) -> Wrapped:
    """Replace attributes, all or none; ``names`` are those of the ops that this makes."""
    listed = list(wanted)  # what is wrong with one of them is said before the first is replaced
    with _changing:
        return Wrapped(names, _hold_all(listed))


def public(target: Any) -> list[str]:
    """List the functions that `wrap` takes without names: no classes, no modules, none but its own."""
    if not isinstance(target, ModuleType):
        owner = target if isinstance(target, type) else type(target)
        return [name for name in vars(owner) if name[0] != "_" and _is_function(owner, name)]
    listed = getattr(target, "__all__", None)
    if listed is not None:
        return [name for name in listed if _is_function(target, name)]
    return [
        name
        for name, value in vars(target).items()
        if name[0] != "_"
        and getattr(value, "__module__", None) == target.__name__
        and _is_function(target, name)
    ]


def _is_function(owner: Any, name: str) -> bool:
    found = getattr(owner, name)
    return callable(found) and not isinstance(found, type | ModuleType)


def _name_of(target: Any) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    named = target if isinstance(target, type) else type(target)
    return f"{named.__module__}.{named.__qualname__}".replace("<locals>.", "")


def _find(target: Any, dotted: str, label: Label) -> Wanted:
    """Look a name up, which must exist and be a function's."""
    owner, found = None, target
    for step in dotted.split("."):
        owner, found = found, getattr(found, step, ABSENT)
        if found is ABSENT:
            raise AttributeError(f"wrap: {_name_of(target)} has no {dotted}")
    if isinstance(found, type | ModuleType):
        raise TypeError(f"wrap: {dotted} is {found!r}: name what in it is to be an op")
    if not callable(found):
        raise TypeError(f"wrap: {dotted} is no function but {found!r}")
    return Wanted(owner, dotted.rpartition(".")[2], partial(_as_it_is, label=label))


def _hold_all(wanted: list[Wanted]) -> list[Patch]:
    held: list[Patch] = []
    try:
        held += map(_hold, wanted)
    except BaseException:
        for patch in reversed(held):
            _release(patch)
        raise
    return held


def _hold(want: Wanted) -> Patch:
    """Replace an attribute, unless that has been done already."""
    key = id(want.owner), want.name
    patch = _patches.get(key)
    if patch is None or _own(want.owner, want.name) is not patch.new:
        raw = _inherited(want.owner, want.name) if isinstance(want.owner, type) else ABSENT
        there = getattr(want.owner, want.name) if raw is ABSENT else raw
        patch = Patch(want.owner, want.name, want.make(there))
        patch.put()
        _patches[key] = patch
    patch.holders += 1
    return patch


def _release(patch: Patch) -> None:
    patch.holders -= 1
    if patch.holders:
        return
    patch.take_back()
    key = id(patch.owner), patch.name
    if _patches.get(key) is patch:
        del _patches[key]


def _as_it_is(found: Any, label: Label) -> Any:
    """Wrap what was found as what it is: a static method, a class method, a method, a function."""
    if isinstance(found, staticmethod | classmethod) and not is_proxy(found):
        return type(found)(around(found.__func__, label))
    return around(found, label)


def around(function: Any, label: Label) -> Any:
    """Return a function or object whose calls are ranges, without the range that it may have of ours."""
    bare = _bare(function)
    if not isinstance(bare, FunctionType | MethodType):
        return ranged(bare, label)
    made = wrapped(bare, label, None)
    _originals[made] = bare
    return made


def _bare(function: Any) -> Any:
    """Return what we put a range around; anything else as it is."""
    if is_proxy(function):
        return inside(function)
    if isinstance(function, MethodType):
        return MethodType(_bare(function.__func__), function.__self__)
    return _originals.get(function, function) if isinstance(function, FunctionType) else function


def _own(owner: Any, name: str) -> Any:
    """Return what the owner itself has under a name, as it is kept there."""
    kept = getattr(owner, "__dict__", {}).get(name, ABSENT)
    if kept is ABSENT and hasattr(_inherited(type(owner), name), "__set__"):
        return getattr(owner, name, ABSENT)  # in a slot
    return kept


def _inherited(owner: type, name: str) -> Any:
    """Return what a class has, or the first that it inherits from."""
    return next((vars(one)[name] for one in owner.__mro__ if name in vars(one)), ABSENT)
