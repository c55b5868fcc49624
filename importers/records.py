"""`record`: a frozen dataclass without code of its own, as `dataclasses.dataclass` compiles six functions per class.

These take a third of a millisecond each time a program starts, and small reports load two hundred classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def _init(self: Any, /, *args: Any, **named: Any) -> None:
    names, values = self.__match_args__, self.__dict__
    if len(args) + len(named) > len(names):
        raise _wrong_arguments(self)
    values.update(zip(names, args, strict=False))
    for name, value in named.items():
        if name in values or name not in names:
            raise _wrong_arguments(self)
        values[name] = value
    if len(values) < len(self.__dataclass_fields__):
        _fill_defaults(self, values)
    if after := getattr(self, "__post_init__", None):
        after()


def _wrong_arguments(self: Any) -> TypeError:
    return TypeError(f"{type(self).__name__} takes {', '.join(self.__match_args__)}, each once")


def _fill_defaults(self: Any, values: dict[str, Any]) -> None:
    for one in fields(self):
        if one.name in values:
            continue
        if one.default_factory is not MISSING:
            values[one.name] = one.default_factory()
        elif one.default is not MISSING:
            values[one.name] = one.default
        elif one.init:
            raise TypeError(f"{type(self).__name__} needs {one.name}")


def _eq(self: Any, other: object) -> Any:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _compared(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, f.name) for f in fields(one) if f.compare)


def _repr(self: Any) -> str:
    said = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(said)})"


def _set(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


METHODS: Mapping[str, Callable[..., Any]] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _set,
    "__delattr__": _delete,
}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class what ``dataclass(frozen=True)`` makes of it; `fields`, `replace` and `asdict` take it."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # dataclass would write the signature
    made = dataclass(init=False, repr=False, eq=False)(cls)
    for name, function in METHODS.items():
        if name not in cls.__dict__:
            setattr(made, name, function)
    return made
