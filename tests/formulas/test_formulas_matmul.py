"""Products count the multiply-adds that nested loops make, and come out with the shapes that NumPy gives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.knowledge.formulas import Call, bytes_moved, flops

length = st.integers(0, 4)
positive = st.integers(1, 4)


def count(name, *shapes, **arguments):
    return flops(Call(name, shapes, arguments=arguments))


def made(name, *shapes, **arguments):
    """Return the elements that come out, by the bytes that are moved beyond the inputs."""
    call = Call(name, shapes, ("uint8",) * len(shapes), arguments, (), ("uint8",))
    return bytes_moved(call) - sum(int(np.prod(shape)) for shape in shapes if shape is not None)


def loops(m, n, k):
    """Multiply two matrices; count the floating-point operations."""
    done = 0
    for _row in range(m):
        for _column in range(n):
            for _term in range(k):
                done += 2
    return done


@pytest.mark.slow
@given(length, length, length)
def test_a_product_of_matrices(m, n, k):
    expected = loops(m, n, k)
    assert count("aten::mm", (m, k), (k, n)) == expected
    assert count("aten::addmm", (n,), (m, k), (k, n)) == expected
    assert count("matmul", (m, k), (k, n)) == expected
    assert count("einsum", None, (m, k), (k, n), equation="ik,kj->ij") == expected
    assert count("tensordot", (m, k), (k, n), dims=1) == expected
    assert count("linear", (m, k), (n, k), (n,)) == expected
    assert made("mm", (m, k), (k, n)) == m * n
    assert made("linear", (m, k), (n, k)) == m * n


@given(length, length, length, length)
def test_a_batch_of_products(b, m, n, k):
    expected = sum(loops(m, n, k) for _ in range(b))
    assert count("bmm", (b, m, k), (b, k, n)) == expected
    assert count("baddbmm", (m, n), (b, m, k), (b, k, n)) == expected
    assert count("addbmm", (m, n), (b, m, k), (b, k, n)) == expected
    assert made("addbmm", (m, n), (b, m, k), (b, k, n)) == m * n
    assert count("_grouped_mm", (b, m, k), (b, k, n)) == expected
    assert count("linear", (b, m, k), (n, k)) == expected
    dims = (((2,), (1,)), ((0,), (0,)))
    assert count("jax.lax.dot_general", (b, m, k), (b, k, n), dimension_numbers=dims) == expected


@pytest.mark.slow
@given(st.lists(positive, max_size=3), st.lists(st.booleans(), min_size=6, max_size=6), length, length, length)  # fmt: skip
def test_a_batch_counts_the_same_however_it_is_broadcast(batch, kept, m, n, k):
    one = tuple(size if keep else 1 for size, keep in zip(batch, kept[:3], strict=False))
    other = tuple(size if keep else 1 for size, keep in zip(batch, kept[3:], strict=False))
    whole = np.broadcast_shapes(one, other)
    expected = loops(m, n, k) * int(np.prod(whole))
    assert count("aten::matmul", (*one, m, k), (*other, k, n)) == expected
    assert count("aten::matmul", (*whole, m, k), (k, n)) == expected
    assert made("aten::matmul", (*one, m, k), (*other, k, n)) == int(np.prod(whole)) * m * n


@pytest.mark.slow
@given(st.lists(positive, min_size=1, max_size=3), st.lists(positive, min_size=1, max_size=3))
def test_what_comes_out_is_what_numpy_makes(a, b):
    for name in ("matmul", "dot", "inner", "outer"):
        function, x, y = getattr(np, name), np.ones(a), np.ones(b)
        try:
            shape = np.shape(function(x, y))
        except ValueError:
            assert count(name, tuple(a), tuple(b)) is None
        else:
            assert made(name, tuple(a), tuple(b)) == int(np.prod(shape))
            # Each element of a product of ones is how many terms it is the sum of.
            terms = int(np.sum(function(x, y)))
            assert count(name, tuple(a), tuple(b)) == (1 if name == "outer" else 2) * terms


@given(positive, positive, positive)
def test_twice_the_columns_are_twice_the_work(m, n, k):
    for name in ("mm", "matmul"):
        assert count(name, (m, k), (k, 2 * n)) == 2 * count(name, (m, k), (k, n))


@pytest.mark.parametrize(
    ("name", "shapes", "arguments", "expected"),
    [
        ("mv", ((3, 4), (4,)), {}, 24),
        ("addmv", ((3,), (3, 4), (4,)), {}, 24),
        ("dot", ((5,), (5,)), {}, 10),
        ("dot", ((), (5,)), {}, 5),
        ("np.dot", ((2, 3, 4), (5, 4, 6)), {}, 2 * 2 * 3 * 4 * 5 * 6),
        ("vdot", ((2, 3), (3, 2)), {}, 12),
        ("inner", ((2, 4), (3, 4)), {}, 48),
        ("outer", ((3,), (4,)), {}, 12),
        ("linear", ((7, 3), (3,)), {}, 42),
        ("_grouped_mm", ((9, 3), (4, 3, 5)), {}, 2 * 9 * 3 * 5),
        ("_grouped_mm", ((9, 3), (3, 5)), {}, 2 * 9 * 3 * 5),
        ("tensordot", ((2, 3, 4), (3, 4, 5)), {}, 2 * 2 * 12 * 5),
        ("tensordot", ((2, 3, 4), (4, 3, 5)), {"dims": ([1, 2], [1, 0])}, 2 * 2 * 12 * 5),
        ("tensordot", ((2, 3), (3, 5)), {"axes": (1, 0)}, 2 * 2 * 3 * 5),
        ("tensordot", ((2, 3), (4, 5)), {"2": 0}, 2 * 3 * 4 * 5),
        ("einsum", (None, (2, 3, 4), (2, 4, 5)), {"0": "bij,bjk->bik"}, 240),
        ("einsum", (None, (2, 3, 4), (2, 4, 5)), {"0": "bij, bjk"}, 240 // 2 * 2),
        ("einsum", (None, (7, 3, 4), (4, 5)), {"0": "...ij,jk->...ik"}, 2 * 7 * 3 * 4 * 5),
        ("einsum", (None, (6, 1, 3), (7, 3)), {"0": "...i,...i"}, 2 * 6 * 7 * 3),
        ("einsum", (None, (3,), (4,)), {"0": "i,j->ij"}, 12),
        ("einsum", (None, (3, 3)), {"0": "ii->"}, 3),
        ("einsum", (None, (3, 4)), {"0": "ij->ji"}, 0),
        ("einsum", (None, (3, 4)), {"0": "ij->j"}, 12),
        # i is summed first, where it stands alone: 12 additions, then 4·5 multiply-adds.
        ("einsum", (None, (3, 4), (4, 5)), {"0": "ij,jk->k"}, 12 + 2 * 20),
    ],
)
def test_by_hand(name, shapes, arguments, expected):
    assert count(name, *shapes, **arguments) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "arguments"),
    [
        ("mm", ((2, 3), (4, 5)), {}),
        ("mm", ((2, 3),), {}),
        ("mm", ((2, 3), None), {}),
        ("mm", ((1, 2, 3), (3, 4)), {}),
        ("bmm", ((2, 2, 3), (1, 3, 4)), {}),  # only matmul broadcasts
        ("matmul", ((2, 2, 3), (3, 3, 4)), {}),
        ("matmul", ((), (3,)), {}),
        ("linear", ((2, 3), (1, 4, 3)), {}),
        ("_grouped_mm", ((2, 3, 4), (3, 4, 5)), {}),
        ("tensordot", ((2, 3), (3, 4), None), {}),  # along what?
        ("tensordot", ((2, 3), (3, 4)), {"dims": 5}),
        ("tensordot", ((3, 3), (3, 3)), {"dims": ((0, 0), (0, 1))}),
        ("einsum", (None, (2, 3), (3, 4)), {}),  # no equation
        ("einsum", (None, (2, 3), (3, 4)), {"0": "ij,jk->iz"}),
        ("einsum", (None, (2, 3), (2, 3)), {"0": "...i,...i->"}),  # where is the ellipsis?
        ("einsum", (None, (2, 3), (4, 4)), {"0": "ij,jk->ik"}),
        ("einsum", (None, (2, 3), (3, 4)), {"0": "ijk,jk->ik"}),
        ("einsum", (None, (2, 3), (3, 4), (4, 5)), {"0": "ij,jk,kl->il"}),  # in which order?
    ],
)
def test_what_is_no_call_of_the_op_has_no_count(name, shapes, arguments):
    assert count(name, *shapes, **arguments) is None


@given(st.sampled_from(["ij,jk->ik", "ij,kj->ik", "ij,ij->", "ij,jk", "i,i", "ij,j->i", "bij,bkj->bik", "ij,k->ijk"]), st.data())  # fmt: skip
def test_einsum_against_loops(equation, data):
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation:
        right = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    lengths = {letter: data.draw(positive) for letter in sorted(set(left) - {","})}
    shapes = [tuple(lengths[letter] for letter in term) for term in terms]
    sums = set(lengths) - set(right)
    done = 0
    for _ in product(*(range(size) for size in lengths.values())):
        done += 2 if sums else 1
    assert count("einsum", None, *shapes, equation=equation) == done
    outcome = np.einsum(equation, *map(np.ones, shapes))
    assert made("einsum", None, *shapes, equation=equation) == outcome.size
