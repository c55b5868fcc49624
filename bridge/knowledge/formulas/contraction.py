"""Products of two tensors that are summed along axes: the matmul family.

The invariant: a multiply-add is two, a product without a sum one for each element. A bias counts nothing: it
is what the sum begins with, which has K adds then, and K - 1 without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from bridge.knowledge.formulas.call import (
    Call,
    Counting,
    Shape,
    argument,
    broadcast,
    counting,
    need,
    tensor,
    tensors,
    unknown,
)

# -- Sums of products by an equation, as `ij,jk->ik`, of one or two tensors; of more the order is not known


Indices = list[str]
Lengths = dict[str, int]


def _einsum(call: Call) -> tuple[int, Shape]:
    shapes = tensors(call)
    terms, result = _read(argument(call, "equation", 0, ""), shapes)
    need(len(terms) == len(shapes) <= 2)  # noqa: PLR2004 (of a pair there is one order)
    lengths = _lengths(terms, shapes)
    shape = tuple(lengths[letter] for letter in result)
    if len(terms) == 1:
        return _size(set(terms[0]), lengths) if set(terms[0]) - set(result) else 0, shape
    return _pair(terms, set(result), lengths), shape


def _pair(terms: Sequence[Indices], result: set[str], lengths: Lengths) -> int:
    count, (a, b) = 0, (set(term) for term in terms)
    kept = [one & (other | result) for one, other in ((a, b), (b, a))]
    for one, left in zip((a, b), kept, strict=True):
        count += _size(one, lengths) if one != left else 0
    every = kept[0] | kept[1]
    return count + _size(every, lengths) * (2 if every - result else 1)


def _size(letters: set[str], lengths: Lengths) -> int:
    return prod(lengths[letter] for letter in letters)


def _read(equation: str, shapes: Sequence[Shape]) -> tuple[list[Indices], Indices]:
    """Return the indices of each tensor and of the result; those under an ellipsis are named `.1`, from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    given = left.split(",")
    ranks = [len(shape) for shape in shapes]
    terms = [_letters(term, rank) for term, rank in zip(given, ranks, strict=True)]
    seen = Counter(letter for term in terms for letter in term)
    if not arrow:
        once = sorted(letter for letter, times in seen.items() if letter.isalpha() and times == 1)
        right = "".join(("...", *once))
    dots = sum(not letter.isalpha() for letter in seen)
    return terms, _letters(right, dots + len(right.replace("...", "")))


def _letters(term: str, rank: int) -> Indices:
    before, _, after = term.partition("...")
    need((before + after).isalpha() or not before + after)
    dots = _dots(term, rank)
    need(dots >= 0 if "..." in term else dots == 0)
    return [*before, *(f".{number}" for number in range(dots, 0, -1)), *after]


def _dots(term: str, rank: int) -> int:
    return rank - len(term.replace("...", ""))


def _lengths(terms: Sequence[Indices], shapes: Sequence[Shape]) -> Lengths:
    """Return how long each index runs; 1 gives way to any other."""
    lengths: Lengths = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, length in zip(term, shape, strict=True):
            known = lengths.get(letter, 1)
            need(1 in (known, length) or known == length)
            lengths[letter] = length if known == 1 else known
    return lengths


einsum = counting(_einsum)


# -- Products of two tensors that are summed along axes: the matmul family


Axes = tuple[Sequence[int], Sequence[int]]  # of the one tensor, and of the other
NONE: Axes = ((), ())
LAST: Axes = ((-1,), (-1,))
INNER: Axes = ((-1,), (-2,))
MATRIX = 2  # dimensions


def contract(a: Shape, b: Shape, summed: Axes, batch: Axes = NONE) -> tuple[int, Shape]:
    """Return the FLOPs of a product summed along axes, one by one along ``batch``, and its shape."""
    sums, batches = _positive(a, b, summed), _positive(a, b, batch)
    for x, y in (*zip(*sums, strict=True), *zip(*batches, strict=True)):
        need(a[x] == b[y])
    made = tuple(a[axis] for axis in batches[0])
    for shape, *axes in ((a, sums[0], batches[0]), (b, sums[1], batches[1])):
        made += _left(shape, [*axes[0], *axes[1]])
    multiplied = prod(made) * prod(a[axis] for axis in sums[0])
    return multiplied * (2 if sums[0] else 1), made


def _positive(a: Shape, b: Shape, axes: Axes) -> Axes:
    return [range(len(a))[axis] for axis in axes[0]], [range(len(b))[axis] for axis in axes[1]]


def _left(shape: Shape, axes: Sequence[int]) -> Shape:
    need(len(set(axes)) == len(axes))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def product(
    ranks: tuple[int, int], summed: Axes, batch: Axes = NONE, *, first: int = 0
) -> Counting:
    """Count an op whose two tensors, from position ``first`` on, have these ranks."""

    def made(call: Call) -> tuple[int, Shape]:
        a, b = tensor(call, first), tensor(call, first + 1)
        need((len(a), len(b)) == ranks)
        return contract(a, b, summed, batch)

    return counting(made)


def _matmul(call: Call) -> tuple[int, Shape]:
    a, b = tensor(call, 0), tensor(call, 1)
    if min(len(a), len(b)) < MATRIX:
        return contract(a, b, INNER if len(b) > 1 else LAST)
    batch = broadcast(a[:-2], b[:-2])
    count, made = contract(a[-2:], b[-2:], INNER)
    return prod(batch) * count, batch + made


def _dot(call: Call) -> tuple[int, Shape]:
    a, b = tensor(call, 0), tensor(call, 1)
    scalar = not a or not b
    return contract(a, b, NONE if scalar else INNER if len(b) > 1 else LAST)


def _inner(call: Call) -> tuple[int, Shape]:
    a, b = tensor(call, 0), tensor(call, 1)
    return contract(a, b, LAST if a and b else NONE)


def _linear(call: Call) -> tuple[int, Shape]:
    weight = tensor(call, 1)
    need(len(weight) <= MATRIX)
    return contract(tensor(call, 0), weight, LAST)


def _vdot(call: Call) -> tuple[int, Shape]:
    a, b = prod(tensor(call, 0)), prod(tensor(call, 1))
    return contract((a,), (b,), LAST)


def _outer(call: Call) -> tuple[int, Shape]:
    return contract((prod(tensor(call, 0)),), (prod(tensor(call, 1)),), NONE)


def _tensordot(call: Call) -> tuple[int, Shape]:
    a, b = tensor(call, 0), tensor(call, 1)
    axes = call.arguments["axes"] if "axes" in call.arguments else argument(call, "dims", 2, 2)
    if isinstance(axes, Sequence):
        one, other = map(_listed, axes)
        return contract(a, b, (one, other))
    need(0 <= index(axes) <= min(len(a), len(b)))
    return contract(a, b, (range(len(a) - axes, len(a)), range(axes)))


def _listed(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, Sequence) else [index(axes)]


def _dot_general(call: Call) -> tuple[int, Shape]:
    (a, b), (batch_a, batch_b) = argument(call, "dimension_numbers", 2, None)
    return contract(tensor(call, 0), tensor(call, 1), (a, b), (batch_a, batch_b))


def _grouped(call: Call) -> int:
    """Count matrices in groups: each row, or each term of the sums, is of one group."""
    a, b = tensor(call, 0), tensor(call, 1)
    need({len(a), len(b)} <= {MATRIX, MATRIX + 1})
    both = len(a) == len(b) == MATRIX + 1
    need(not both or a[0] == b[0])
    return contract(a[-2:], b[-2:], INNER)[0] * (a[0] if both else 1)


matmul, dot, inner, linear = map(counting, (_matmul, _dot, _inner, _linear))
vdot, outer = map(counting, (_vdot, _outer))
tensordot, dot_general = map(counting, (_tensordot, _dot_general))
grouped: Counting = (_grouped, unknown)  # what comes out depends on where the groups end


# -- Scaled dot product attention, forward and backward


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
