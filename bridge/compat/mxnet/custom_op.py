"""The parts of custom operators: ``Op::pure_python`` and ``Op::sub``, in the domain `Custom Operator`.

A custom operator is a range of the category `custom_op`: PyTorch's `torch.autograd.Function`, or
``nvtx_op(category="custom_op")``. Its parts are the ops that run in it, each with all of its time,
and its own code, which is the rest of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bridge.compat.calls import Call, RecordedEvents, outer_first

CUSTOM_OP, API = "custom_op", "api"  # categories
DOMAIN = "Custom Operator"
PURE_PYTHON = "pure_python"
BACKWARD = "Backward"  # suffix of PyTorch's backward passes; MXNet puts _backward_ before the name


class _Part:
    """A custom operator that is open, and the end of what has run in it."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.name = _name(call.name)
        self.ran_until = call.start
        self.pieces: list[tuple[int, int]] = []  # of its own code: start, end

    def run(self, start: int, end: int) -> None:
        """Note an op that ran directly in it."""
        if start > self.ran_until:
            self.pieces.append((self.ran_until, start))
        self.ran_until = max(self.ran_until, end)

    def own_code(self) -> Iterator[Call]:
        """Yield the pieces of its own code as slices of one call."""
        self.run(self.call.end, self.call.end)
        name = f"{self.name}::{PURE_PYTHON}"
        whole = replace(self.call, name=name, domain=DOMAIN, category="")
        for number, (start, end) in enumerate(self.pieces or [(self.call.start,) * 2]):
            yield replace(whole, start=start, end=end, again=self.call.again or number > 0)


def split_custom_ops(recorded: RecordedEvents) -> RecordedEvents:
    """Return events in which custom operators are their parts; the others are unchanged."""
    if not any(call.category == CUSTOM_OP for call in recorded.calls):
        return recorded
    return replace(recorded, calls=tuple(sorted(_parts(recorded.calls), key=outer_first)))


def _parts(calls: Iterable[Call]) -> Iterator[Call]:
    """Yield calls, outer before inner, and the own code of custom operators when these have ended."""
    threads: dict[int, list[tuple[Call, _Part | None]]] = {}  # open calls, and their parts
    for call in calls:
        above = threads.setdefault(call.thread, [])
        while above and above[-1][0].end <= call.start:
            yield from _own_code(above.pop()[1])
        if call.phase or call.category == API:
            yield call
            continue
        around = _around(above)
        if _is_own_node(call, around):
            continue
        if around is not None and above[-1][1] is around:
            around.run(call.start, call.end)
        own = _Part(call) if call.category == CUSTOM_OP else None
        above.append((call, own))
        if own is None:
            yield call if around is None else _in_operator(call, around.name)
    for opened in threads.values():
        yield from (piece for _, part in reversed(opened) for piece in _own_code(part))


def _around(above: Sequence[tuple[Call, _Part | None]]) -> _Part | None:
    """Return the innermost open operator."""
    return next((part for _, part in reversed(above) if part is not None), None)


def _is_own_node(call: Call, around: _Part | None) -> bool:
    """Return whether a call is autograd's node of the operator itself, which is no part of it."""
    is_node = call.name.endswith(BACKWARD) and call.category != CUSTOM_OP
    return is_node and around is not None and call.name == around.call.name


def _in_operator(call: Call, operator: str) -> Call:
    return replace(call, name=f"{operator}::{call.name}", domain=DOMAIN)


def _own_code(part: _Part | None) -> Iterator[Call]:
    return iter(()) if part is None else part.own_code()


def _name(name: str) -> str:
    is_backward = name.endswith(BACKWARD) and name != BACKWARD
    return f"_backward_{name.removesuffix(BACKWARD)}" if is_backward else name
