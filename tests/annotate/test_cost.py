"""With nothing attached annotations cost next to nothing; generous limits, for busy machines."""

from __future__ import annotations

from collections.abc import Callable
from timeit import Timer
from typing import Any

import pytest

from bridge import nvtx_op

pytestmark = pytest.mark.slow


def function(x: int) -> int:
    return x


def wrapper(inner: Callable[..., Any]) -> Callable[..., Any]:
    def bare(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return bare


@pytest.mark.parametrize(
    ("statement", "times"),
    [("decorated(1)", 3), ("decorated(x=1)", 4), ("with nvtx_op('name'): pass", 6)],
)
def test_it_costs_about_as_much_as_a_bare_wrapper(
    detached: None, statement: str, times: float
) -> None:
    names = {"bare": wrapper(function), "decorated": nvtx_op(function), "nvtx_op": nvtx_op}
    bare, annotated = Timer("bare(1)", globals=names), Timer(statement, globals=names)
    pairs = [(bare.timeit(5000), annotated.timeit(5000)) for _ in range(30)]
    assert min(cost for _, cost in pairs) <= times * min(cost for cost, _ in pairs)
