"""Replace callables of a module, class or object by ops, in place and reversibly.

A callable is replaced once, even if several callers request it. When the last of them undoes the
replacement, every attribute of its owner is as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from bridge.annotate.hooks import Hooks
from bridge.annotate.label import Label, checked, checked_name
from bridge.annotate.wrap import with_ranges

# -- Proxies of callable objects: calls become ranges, all else is forwarded


UNBOUND = 1 << 17  # Py_TPFLAGS_METHOD_DESCRIPTOR
ORIGINAL, CALL, AROUND = "_bridge_original", "_bridge_call", "_bridge_around"
MRO = "__mro_entries__"
Around = Callable[[Any], "Callable[..., Any] | CallHooks"]

# Python looks these up on the class, so a proxy's class defines those that its object has.
FORWARDED = (
    *"__getitem__ __setitem__ __delitem__ __len__ __iter__ __contains__ __enter__ __exit__".split(),
    *"__instancecheck__ __subclasscheck__ __or__ __ror__ __get__".split(),
)


class CallHooks(NamedTuple):
    """What surrounds each call of an object: ``begin`` returns a token, or None for a call without `end`."""

    begin: Callable[[], Any]
    end: Callable[[Any], None]


class Running(partial):  # type: ignore[type-arg]  # partial of anything
    """A callable for one call, which ends the token of the call as it goes."""

    token: Any
    end: Callable[[Any], None]

    def __del__(self) -> None:
        self.end(self.token)


def running(call: Callable[..., Any], hooks: CallHooks) -> Callable[..., Any]:
    """Return a callable for one call with hooks.

    Python looks up the `__call__` of an object's class at each call, and drops what it got behind it. So what
    gets this from there runs between the hooks, without a frame of ours in a traceback.
    """
    token = hooks.begin()
    if token is None:
        return call
    result = Running(call)
    result.token, result.end = token, hooks.end
    return result


class HookedCall:
    """A callable that runs between hooks; that it is looked up calls none of them."""

    __slots__ = ("call", "hooks")

    def __init__(self, call: Callable[..., Any], hooks: CallHooks) -> None:
        self.call, self.hooks = call, hooks

    @property
    def __call__(self) -> Callable[..., Any]:
        return running(self.call, self.hooks)


class ProxyCall:
    """The `__call__` of the class of proxies, for those of one class."""

    def __init__(self, original: Any) -> None:
        self.original = original  # the same of that class

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.original
        call = _proxy_own(instance, CALL)
        return running(_proxy_own(instance, ORIGINAL), call) if type(call) is CallHooks else call


class Proxy:
    """Stands for an object; calls go to `around(object)`, or run between the `CallHooks` that this returns.

    `isinstance` sees the object's class, and the class of the proxy has its name.
    """

    __slots__ = (ORIGINAL, CALL, AROUND, "__weakref__")

    def __init__(self, original: Any, around: Around) -> None:
        call = around(original) if callable(original) else None  # a descriptor returns the callable
        for name, value in ((ORIGINAL, original), (CALL, call), (AROUND, around)):
            object.__setattr__(self, name, value)

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
        return bool(_proxy_own(self, ORIGINAL) == original_of(other))

    def __hash__(self) -> int:
        return hash(_proxy_own(self, ORIGINAL))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _proxy_own(self, ORIGINAL).__reduce_ex__(protocol)

    # Python looks this up on the object, not on its class.
    def __mro_entries__(self, _bases: object) -> tuple[Any, ...]:
        return (
            _proxy_own(self, ORIGINAL),
        )  # `class Mine(cupy.RawKernel)` derives from the real class


_proxy_own = object.__getattribute__


def proxy(original: Any, around: Around) -> Any:
    """Return a proxy whose calls go to ``around(original)``.

    Also wraps callables from `[]` and `.`.
    """
    return _proxy_class_of(type(original))(original, around)


def ranged_proxy(original: Any, label: Label) -> Any:
    """Return a proxy whose calls are ranges with this label."""
    # A partial, because `wraps` would copy attributes of the object that do not fit a function.
    return proxy(original, lambda called: with_ranges(partial(called), label, None))


PLAIN = FunctionType | MethodType | BuiltinFunctionType  # `wraps` copies all that these have


def decorated(target: Any, around_of: Callable[[Any], Around], decorator: str) -> Any:
    """Return a function, method or callable object whose calls go through a wrapper.

    ``around_of(target)`` returns what makes the wrapper of a callable. A callable object keeps its
    attributes, as `cache_clear` of a cached function. Raises TypeError, with the name of the
    decorator, for what is none of these.
    """
    if isinstance(target, staticmethod | classmethod) and not is_proxy(target):
        return type(target)(decorated(target.__func__, around_of, decorator))
    if isinstance(target, type) or not callable(target):
        below = "; put it below @property" if isinstance(target, property) else ""
        raise TypeError(f"{decorator} decorates functions and methods, not {target!r}{below}")
    around = around_of(target)
    if isinstance(target, PLAIN) and not is_proxy(target):
        return around(target)
    # A partial, because `wraps` would copy attributes of the object that do not fit a function.
    return proxy(target, lambda called: around(partial(called)))


def is_proxy(candidate: Any) -> bool:
    """Return whether an object is a proxy; `isinstance` would see the class of its object."""
    return issubclass(type(candidate), Proxy)


def original_of(candidate: Any) -> Any:
    """Return the object of a proxy, or any other object itself."""
    return _proxy_own(candidate, ORIGINAL) if is_proxy(candidate) else candidate


_proxy_classes: dict[type, type[Proxy]] = {}


def _proxy_class_of(original: type) -> type[Proxy]:
    """Return the proxy class for objects of a class."""
    if original not in _proxy_classes:
        _proxy_classes[original] = _proxy_class(original)
    return _proxy_classes[original]


def _proxy_class(original: type) -> type[Proxy]:
    attributes = {
        name for base in original.__mro__ for name in vars(base)
    }  # without those of its metaclass
    methods: dict[str, Any] = {name: _forward(name) for name in FORWARDED if name in attributes}
    if "__call__" in attributes:
        methods["__call__"] = ProxyCall(original.__call__)
    if original.__flags__ & UNBOUND:
        methods["__get__"] = _bind
    named = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    return type(original.__name__, (Proxy,), {"__slots__": (), **named, **methods})


def _bind(self: Proxy, instance: Any, _owner: Any = None) -> Any:
    """Bind a method without a new proxy for every call."""
    return self if instance is None else MethodType(self, instance)  # type: ignore[arg-type]  # its class has `__call__`


def _forward(name: str) -> Callable[..., Any]:
    """Return a special method that forwards to the object.

    A callable that it returns is wrapped, as in `kernel[grid](x)`.
    """
    returns_callables = name in {"__getitem__", "__get__"}

    def forward(self: Proxy, *args: Any) -> Any:
        original = _proxy_own(self, ORIGINAL)
        result = getattr(type(original), name)(original, *args)
        if result is original:
            return self
        if returns_callables and callable(result):
            return proxy(result, _proxy_own(self, AROUND))
        return result

    return forward


# -- Replacing attributes in place


ABSENT = object()


class Patch:
    """One replaced attribute; ``holders`` counts the callers that requested it."""

    def __init__(self, owner: Any, name: str, new: Any) -> None:
        self.owner, self.name, self.new = owner, name, new
        self.before = _raw_attribute(owner, name)
        self.holders = 0

    def put(self) -> None:
        """Replace the attribute.

        Raises TypeError or AttributeError if the owner does not allow it.
        """
        setattr(self.owner, self.name, self.new)
        self.new = _raw_attribute(self.owner, self.name)

    def take_back(self) -> None:
        """Restore the original attribute, unless other code has replaced it since."""
        if _raw_attribute(self.owner, self.name) is not self.new:
            return
        if self.before is ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


class Replacement(NamedTuple):
    """An attribute to replace, and the function that makes the new value from the old one."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


_patches: dict[tuple[int, str], Patch] = {}  # by id of the owner, which they keep alive, and name
_originals: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the wrapper made here
_changing = Lock()


class Patches:
    """The replacements of `wrap`, until `undo` or the end of the block.

    `names` are the names of the ops.
    """

    def __init__(
        self, names: Iterable[str], patches: list[Patch], hooks: Iterable[Hooks] = ()
    ) -> None:
        self.names = tuple(names)
        self._patches, self._hooks = patches, list(hooks)
        for hook in self._hooks:
            hook.request(+1)

    def undo(self) -> None:
        """Restore all attributes; a second call does nothing."""
        with _changing:
            while self._patches:
                _release(self._patches.pop())
            while self._hooks:
                self._hooks.pop().request(-1)

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
) -> Patches:
    """Replace named callables of a module, class or object by ops, in place; the result undoes it.

    A name may be dotted. Without names, all public functions are replaced that a module lists in
    `__all__` or defines, or that a class defines. An op is called ``prefix.name``; the default
    prefix is the name of the module or class. Raises AttributeError for a name that does not exist,
    and TypeError for an object that is not a function or cannot be replaced; then nothing is
    replaced.
    """
    extras = checked(domain, category, color)
    first = _name_of(target) if prefix is None else checked_name(prefix)
    requested = [names] if isinstance(names, str) else names
    listed = public_functions(target) if requested is None else list(dict.fromkeys(requested))
    labels = [Label(f"{first}.{name}" if first else name, *extras) for name in listed]
    replacements = map(partial(_find, target), listed, labels)
    return replace_attributes(replacements, (label.name for label in labels))


def replace_attributes(
    replacements: Iterable[Replacement], names: Iterable[str] = (), hooks: Iterable[Hooks] = ()
) -> Patches:
    """Replace all attributes or none, and enable ``hooks``; ``names`` are the names of the resulting ops."""
    listed = list(replacements)  # errors are raised before the first replacement
    with _changing:
        return Patches(names, _hold_all(listed), hooks)


def public_functions(target: Any) -> list[str]:
    """Return the default names of `wrap`: functions that the target defines or lists."""
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
    result = getattr(owner, name)
    return callable(result) and not isinstance(result, type | ModuleType)


def _name_of(target: Any) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    named = target if isinstance(target, type) else type(target)
    return f"{named.__module__}.{named.__qualname__}".replace("<locals>.", "")


def _find(target: Any, dotted: str, label: Label) -> Replacement:
    """Return the replacement of a dotted name; raises if it does not exist or is not a function."""
    owner, result = None, target
    for step in dotted.split("."):
        owner, result = result, getattr(result, step, ABSENT)
        if result is ABSENT:
            raise AttributeError(f"wrap: {_name_of(target)} has no {dotted}")
    if isinstance(result, type | ModuleType):
        raise TypeError(f"wrap: {dotted} is {result!r}; name the functions in it")
    if not callable(result):
        raise TypeError(f"wrap: {dotted} is not a function but {result!r}")
    return Replacement(owner, dotted.rpartition(".")[2], partial(_wrap_descriptor, label=label))


def _hold_all(replacements: list[Replacement]) -> list[Patch]:
    patches: list[Patch] = []
    try:
        patches += map(_hold, replacements)
    except BaseException:
        for patch in reversed(patches):
            _release(patch)
        raise
    return patches


def _hold(replacement: Replacement) -> Patch:
    """Replace an attribute, unless it has already been replaced."""
    key = id(replacement.owner), replacement.name
    patch = _patches.get(key)
    if patch is None or _raw_attribute(replacement.owner, replacement.name) is not patch.new:
        raw = (
            _inherited(replacement.owner, replacement.name)
            if isinstance(replacement.owner, type)
            else ABSENT
        )
        original = getattr(replacement.owner, replacement.name) if raw is ABSENT else raw
        patch = Patch(replacement.owner, replacement.name, replacement.make(original))
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


def _wrap_descriptor(result: Any, label: Label) -> Any:
    """Wrap a static method, class method, method or function as the same kind."""
    if isinstance(result, staticmethod | classmethod) and not is_proxy(result):
        return type(result)(ranged_callable(result.__func__, label))
    return ranged_callable(result, label)


def ranged_callable(function: Any, label: Label) -> Any:
    """Return a function or object whose calls are ranges; an existing range of ours is replaced."""
    bare = _without_range(function)
    if not isinstance(bare, FunctionType | MethodType):
        return ranged_proxy(bare, label)
    wrapper = with_ranges(bare, label, None)
    _originals[wrapper] = bare
    return wrapper


def _without_range(function: Any) -> Any:
    """Return the function inside our wrapper, or any other object itself."""
    if is_proxy(function):
        return original_of(function)
    if isinstance(function, MethodType):
        return MethodType(_without_range(function.__func__), function.__self__)
    return _originals.get(function, function) if isinstance(function, FunctionType) else function


def _raw_attribute(owner: Any, name: str) -> Any:
    """Return the raw attribute of the owner itself, or ABSENT."""
    value = getattr(owner, "__dict__", {}).get(name, ABSENT)
    if value is ABSENT and hasattr(_inherited(type(owner), name), "__set__"):
        return getattr(owner, name, ABSENT)  # in a slot
    return value


def _inherited(owner: type, name: str) -> Any:
    """Return the raw attribute of a class or of its first base that has it, or ABSENT."""
    return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), ABSENT)
