"""Scaled dot product attention, forward and backward.

The invariant: a causal mask halves nothing, as what a kernel skips is its own matter; of sequences packed into one
tensor nothing is counted, for their lengths are values.
"""

from __future__ import annotations

from math import prod

from bridge.knowledge.formulas.call import Call, Counting, Shape, broadcast, counting, need, tensor

HEADS_FIRST, HEADS_LAST = -3, -2  # where the axis of the heads is; the other one is the sequence's
BACKWARD_OF_K, BACKWARD_OF_V = 3, 2  # products as long as a query, and as long as a value
PLAIN = 3  # dimensions without heads: batch, sequence, width


def attention(heads: int = HEADS_FIRST, *, packed: int | None = None) -> Counting:
    """Count a forward pass; where ``packed`` is a tensor, it says where each sequence begins."""

    def made(call: Call) -> tuple[int, Shape]:
        need(not _given(call, packed))
        q, k, v = (_heads_first(tensor(call, place), heads) for place in range(3))
        pairs, wide = _pairs(q, k, v)
        return 2 * pairs * (wide + v[-1]), (*tensor(call, 0)[:-1], v[-1])

    return counting(made)


def backward(heads: int = HEADS_FIRST, *, packed: int | None = None) -> Counting:
    """Count a backward pass: the scores once more, then two gradients of each of the two products."""

    def count(call: Call) -> int:
        need(not _given(call, packed))
        gradient, q, k, v = (_heads_first(tensor(call, place), heads) for place in range(4))
        pairs, wide = _pairs(q, k, v)
        need(gradient == (*q[:-1], v[-1]))
        return 2 * pairs * (BACKWARD_OF_K * wide + BACKWARD_OF_V * v[-1])

    return count, lambda call: [tensor(call, place) for place in (1, 2, 3)]


def _given(call: Call, place: int | None) -> bool:
    """Tell whether there is a tensor at a position; PyTorch writes the shape () for what is none."""
    return place is not None and place < len(call.shapes) and bool(call.shapes[place])


def _heads_first(shape: Shape, heads: int) -> Shape:
    if heads == HEADS_FIRST or len(shape) <= PLAIN:
        return shape
    *batch, sequence, head, width = shape
    return (*batch, head, sequence, width)


def _pairs(q: Shape, k: Shape, v: Shape) -> tuple[int, int]:
    """Return how many queries meet a key, over all heads, and how wide both are; keys may have fewer heads."""
    need(len(q) == len(k) == len(v) and q[-1] == k[-1] and k[:-1][-2:] == v[:-1][-2:])
    batch = broadcast(q[:-3], k[:-3], v[:-3])
    heads, of_keys = (prod(shape[-3:-2]) for shape in (q, k))
    need(heads == of_keys or heads % of_keys == 0)
    return prod(batch) * heads * q[-2] * k[-2], q[-1]
