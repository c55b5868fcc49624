"""The part of autograd's graph that one call of a module made, known by sequence numbers.

Autograd numbers the nodes that a thread makes, and its engine runs what is ready from the latest to
the earliest: the backward work of a call is over when the earliest of its nodes has run. The
invariant: no node is kept once the call around has ended, so that no graph lives longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor
from torch._C._autograd import _get_sequence_nr

next_number = _get_sequence_nr  # of the node that this thread makes next

ACCUMULATES = 2**64 - 1  # the number of every node that adds to a leaf's `grad`
USE = "bridge"  # in the metadata of such a node: the first that leads to it, and whether it has run
DEEPEST = 8  # containers in containers that are looked into


class Part:
    """The nodes of one call: numbers from `begin` to below `end`, where they lead, the first of them."""

    __slots__ = ("begin", "end", "first", "number", "outside")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.first: Any = None  # the node that was made first
        self.number = end  # its own
        self.outside: list[Any] = []  # nodes made before, which follow those of the call

    def holds(self, node: Any) -> bool:
        """Tell whether a node was made in the call."""
        return bool(self.begin <= node._sequence_nr() < self.end)  # noqa: SLF001 (no public name)

    def explore(self, roots: Sequence[Any], inner: Sequence[Part]) -> None:
        """Find the first node and the nodes outside; ``inner`` calls are known, and ascend."""
        begins = [part.begin for part in inner]
        seen, todo = set(roots), list(roots)
        while todo:
            node = todo.pop()
            number = node._sequence_nr()  # noqa: SLF001
            if not self.begin <= number < self.end:
                self.outside += [node] if number != ACCUMULATES else []
                continue
            at = bisect_right(begins, number) - 1
            known = inner[at] if at >= 0 and number < inner[at].end else None
            if known:
                node, number = known.first, known.number
            if number < self.number:
                self.first, self.number = node, number
            found = known.outside if known else _followers(node, number)
            new = [other for other in found if other not in seen]
            seen.update(new)
            todo += new


def _followers(node: Any, number: int) -> list[Any]:
    """List the nodes that a node hands gradients to; those that accumulate learn of it."""
    found = [other for other, _ in node.next_functions if other is not None]
    for other in found:
        if other._sequence_nr() == ACCUMULATES:  # noqa: SLF001
            earliest, spent = other.metadata.get(USE, (number, False))
            other.metadata[USE] = (number if spent else min(earliest, number), False)
    return found


def accumulating(node: Any) -> list[Any]:
    """List the nodes behind this one that add to the `grad` of a leaf."""
    found = (other for other, _ in node.next_functions if other is not None)
    return [other for other in found if other._sequence_nr() == ACCUMULATES]  # noqa: SLF001


def comes_next(node: Any, number: int) -> bool:
    """Tell whether a node that accumulates runs after that of this number: it waits for no earlier one."""
    return bool(node.metadata.get(USE, (None,))[0] == number)


def ran(node: Any) -> None:
    """Note that a node has accumulated: what leads to it later is of another graph."""
    if USE in node.metadata:
        node.metadata[USE] = (node.metadata[USE][0], True)


def nodes(output: Any) -> list[Any]:
    """List the nodes that made the tensors of an output, each once."""
    if isinstance(output, Tensor):
        return [] if output.grad_fn is None else [output.grad_fn]
    made = (tensor.grad_fn for tensor in _tensors(output, DEEPEST))
    return list(dict.fromkeys(node for node in made if node is not None))


def _tensors(output: Any, depth: int) -> Iterator[Any]:
    """Find tensors in tuples, lists, sets, dictionaries and dataclasses."""
    if isinstance(output, Tensor):
        yield output
    elif depth:
        for value in _values(output):
            yield from _tensors(value, depth - 1)


def _values(output: Any) -> Any:
    if isinstance(output, Mapping):
        return output.values()
    if isinstance(output, list | tuple | set | frozenset):
        return output
    if is_dataclass(output) and not isinstance(output, type):
        return vars(output).values() if hasattr(output, "__dict__") else ()
    return ()
