"""Sums of products by an equation, as `ij,jk->ik`, of one or two tensors; of more the order is not known.

The invariant: an index that is in one tensor alone and not in the result is summed before anything is multiplied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from bridge.knowledge.formulas.call import Call, Shape, argument, counting, need, tensors

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
