"""Which formula an op's name has, and what it says of a call.

The invariant: a question about any call is answered, with None where there is no number; nothing is raised, for it
may be asked within a user's program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from bridge.knowledge.formulas.call import Call, Count, Formula, keys, lawful
from bridge.knowledge.formulas.table import TABLE
from bridge.knowledge.formulas.traffic import moved

_built_in = {name: formula for names, formula in TABLE for name in names.split()}
_registered: dict[str, Formula] = {}


def formula(name: str) -> Formula | None:
    """Return the formula of the op with this name, None if it has none."""
    if not isinstance(name, str):
        return None
    own = (_registered.get(key) for key in (name, *keys(name)))
    return next(filter(None, chain(own, map(_built_in.get, keys(name)))), None)


def our_flops(call: Call) -> int | None:
    """Return the floating-point operations of a call, two for a multiply-add; None where they are not known."""

    def count(call: Call) -> int | None:
        found = formula(call.name)
        return None if found is None else found.flops(call)

    return answered(count, call)


def bytes_moved(call: Call) -> int | None:
    """Return the fewest bytes that a call can move, inputs read and outputs written once; None if not known.

    An op without a formula is taken to read all of its inputs.
    """
    return answered(lambda call: moved(call, formula(call.name)), call)


def register(
    names: str | Iterable[str],
    flops: Count,
    *,
    text: str = "",
    source: str = "registered",
    exact: bool = True,
) -> None:
    """Count these ops by a formula of your own, which comes before the built-in one.

    ``gemm`` is an op of that name in whatever library, ``mylib::gemm`` only the one so written. The formula
    gets a `Call` and returns FLOPs or None; if it raises, the call has no number. Raises TypeError for what is
    no name or no formula.
    """
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not listed or not all(isinstance(name, str) and name for name in listed):
        raise TypeError(f"names of ops are wanted, not {names!r}")
    if not callable(flops):
        raise TypeError(f"flops is a function of a Call, not {flops!r}")
    _registered.update(dict.fromkeys(listed, Formula("registered", text, source, exact, flops)))


def answered(question: Callable[[Call], Any], call: Call) -> int | None:
    """Return the number that a call has, None where none is known or asking raises."""
    try:
        number = question(lawful(call))
        return None if number is None or number < 0 else int(number)
    except Exception:  # noqa: BLE001 (arguments and registered formulas are anybody's)
        return None
