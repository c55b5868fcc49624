"""Products of two tensors that are summed along axes: einsum, the matmul family, attention.

A multiply-add counts two; a product without a sum counts one per element. A bias counts nothing:
the sum begins with it and then has K additions, K - 1 without it.
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

# -- einsum: one or two tensors; the order of more products is unknown


Indices = list[str]
Lengths = dict[str, int]


def _einsum(call: Call) -> tuple[int, Shape]:
    shapes = tensors(call)
    terms, result = _parse_equation(argument(call, "equation", 0, ""), shapes)
    need(len(terms) == len(shapes) <= 2)  # noqa: PLR2004 - a pair
    lengths = _lengths(terms, shapes)
    shape = tuple(lengths[letter] for letter in result)
    if len(terms) == 1:
        return _product_of_lengths(set(terms[0]), lengths) if set(terms[0]) - set(
            result
        ) else 0, shape
    return _pair(terms, set(result), lengths), shape


def _pair(terms: Sequence[Indices], result: set[str], lengths: Lengths) -> int:
    count, (a, b) = 0, (set(term) for term in terms)
    remaining = [letters & (other | result) for letters, other in ((a, b), (b, a))]
    for letters, rest in zip((a, b), remaining, strict=True):
        count += _product_of_lengths(letters, lengths) if letters != rest else 0
    all_letters = remaining[0] | remaining[1]
    return count + _product_of_lengths(all_letters, lengths) * (2 if all_letters - result else 1)


def _product_of_lengths(letters: set[str], lengths: Lengths) -> int:
    return prod(lengths[letter] for letter in letters)


def _parse_equation(equation: str, shapes: Sequence[Shape]) -> tuple[list[Indices], Indices]:
    """Return the indices of each tensor and of the result of an equation.

    Indices under an ellipsis are called `.1` and so on, from the right.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    ranks = [len(shape) for shape in shapes]
    terms = [_letters(term, rank) for term, rank in zip(inputs, ranks, strict=True)]
    counts = Counter(letter for term in terms for letter in term)
    if not arrow:
        once = sorted(letter for letter, count in counts.items() if letter.isalpha() and count == 1)
        right = "".join(("...", *once))
    dots = sum(not letter.isalpha() for letter in counts)
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
    """Return the length of each index; 1 is broadcast."""
    lengths: Lengths = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, length in zip(term, shape, strict=True):
            previous = lengths.get(letter, 1)
            need(1 in (previous, length) or previous == length)
            lengths[letter] = length if previous == 1 else previous
    return lengths


einsum = counting(_einsum)


# -- The matmul family


Axes = tuple[Sequence[int], Sequence[int]]  # of the first tensor, and of the second
NONE: Axes = ((), ())
LAST: Axes = ((-1,), (-1,))
INNER: Axes = ((-1,), (-2,))
MATRIX = 2  # dimensions


def contract(a: Shape, b: Shape, summed: Axes, batch: Axes = NONE) -> tuple[int, Shape]:
    """Return FLOPs and shape of a product: summed along axes, by element along ``batch``."""
    sums, batches = _positive_axes(a, b, summed), _positive_axes(a, b, batch)
    for x, y in (*zip(*sums, strict=True), *zip(*batches, strict=True)):
        need(a[x] == b[y])
    result = tuple(a[axis] for axis in batches[0])
    for shape, *axes in ((a, sums[0], batches[0]), (b, sums[1], batches[1])):
        result += _lengths_without(shape, [*axes[0], *axes[1]])
    products = prod(result) * prod(a[axis] for axis in sums[0])
    return products * (2 if sums[0] else 1), result


def _positive_axes(a: Shape, b: Shape, axes: Axes) -> Axes:
    return [range(len(a))[axis] for axis in axes[0]], [range(len(b))[axis] for axis in axes[1]]


def _lengths_without(shape: Shape, axes: Sequence[int]) -> Shape:
    need(len(set(axes)) == len(axes))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def product(
    ranks: tuple[int, int], summed: Axes, batch: Axes = NONE, *, first: int = 0
) -> Counting:
    """Count an op of two tensors with these ranks, from position ``first`` on."""

    def count_and_shape(call: Call) -> tuple[int, Shape]:
        a, b = tensor(call, first), tensor(call, first + 1)
        need((len(a), len(b)) == ranks)
        return contract(a, b, summed, batch)

    return counting(count_and_shape)


def _matmul(call: Call) -> tuple[int, Shape]:
    a, b = tensor(call, 0), tensor(call, 1)
    if min(len(a), len(b)) < MATRIX:
        return contract(a, b, INNER if len(b) > 1 else LAST)
    batch = broadcast(a[:-2], b[:-2])
    count, shape = contract(a[-2:], b[-2:], INNER)
    return prod(batch) * count, batch + shape


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
        first, second = map(_axis_list, axes)
        return contract(a, b, (first, second))
    need(0 <= index(axes) <= min(len(a), len(b)))
    return contract(a, b, (range(len(a) - axes, len(a)), range(axes)))


def _axis_list(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, Sequence) else [index(axes)]


def _dot_general(call: Call) -> tuple[int, Shape]:
    (a, b), (batch_a, batch_b) = argument(call, "dimension_numbers", 2, None)
    return contract(tensor(call, 0), tensor(call, 1), (a, b), (batch_a, batch_b))


def _grouped(call: Call) -> int:
    """Count matrices in groups: each row, or each term of the sums, belongs to one group."""
    a, b = tensor(call, 0), tensor(call, 1)
    need({len(a), len(b)} <= {MATRIX, MATRIX + 1})
    is_batched = len(a) == len(b) == MATRIX + 1
    need(not is_batched or a[0] == b[0])
    return contract(a[-2:], b[-2:], INNER)[0] * (a[0] if is_batched else 1)


matmul, dot, inner, linear = map(counting, (_matmul, _dot, _inner, _linear))
vdot, outer = map(counting, (_vdot, _outer))
tensordot, dot_general = map(counting, (_tensordot, _dot_general))
grouped: Counting = (_grouped, unknown)  # the output depends on the sizes of the groups


# -- Scaled dot product attention, forward and backward


HEADS_FIRST, HEADS_LAST = -3, -2  # the axis of the heads; the other one is that of the sequence
QUERY_PRODUCTS, VALUE_PRODUCTS = 3, 2  # products of the width of a query, and of a value
WITHOUT_HEADS = 3  # dimensions without heads: batch, sequence, width


def attention(heads: int = HEADS_FIRST, *, packed: int | None = None) -> Counting:
    """Count a forward pass.

    A tensor at position ``packed`` means packed sequences, for which there is no number.
    """

    def count_and_shape(call: Call) -> tuple[int, Shape]:
        need(not _has_tensor(call, packed))
        q, k, v = (_heads_first(tensor(call, place), heads) for place in range(3))
        pairs, width = _pairs(q, k, v)
        return 2 * pairs * (width + v[-1]), (*tensor(call, 0)[:-1], v[-1])

    return counting(count_and_shape)


def backward(heads: int = HEADS_FIRST, *, packed: int | None = None) -> Counting:
    """Count a backward pass: the scores again, then two gradients of each of the two products."""

    def count(call: Call) -> int:
        need(not _has_tensor(call, packed))
        gradient, q, k, v = (_heads_first(tensor(call, place), heads) for place in range(4))
        pairs, width = _pairs(q, k, v)
        need(gradient == (*q[:-1], v[-1]))
        return 2 * pairs * (QUERY_PRODUCTS * width + VALUE_PRODUCTS * v[-1])

    return count, lambda call: [tensor(call, place) for place in (1, 2, 3)]


def _has_tensor(call: Call, place: int | None) -> bool:
    """Return whether a tensor is at a position; PyTorch writes the shape () for none."""
    return place is not None and place < len(call.shapes) and bool(call.shapes[place])


def _heads_first(shape: Shape, heads: int) -> Shape:
    if heads == HEADS_FIRST or len(shape) <= WITHOUT_HEADS:
        return shape
    *batch, sequence, head, width = shape
    return (*batch, head, sequence, width)


def _pairs(q: Shape, k: Shape, v: Shape) -> tuple[int, int]:
    """Return the pairs of query and key over all heads, and their width."""
    need(len(q) == len(k) == len(v) and q[-1] == k[-1] and k[:-1][-2:] == v[:-1][-2:])
    batch = broadcast(q[:-3], k[:-3], v[:-3])
    # Keys may have fewer heads than queries.
    heads, key_heads = (prod(shape[-3:-2]) for shape in (q, k))
    need(heads == key_heads or heads % key_heads == 0)
    return prod(batch) * heads * q[-2] * k[-2], q[-1]
