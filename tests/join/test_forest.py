"""Forests against plain loops over the chains of their nodes, in any order of rows and at any depth."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.join.forest import (
    depth_first,
    distinct_paths,
    folded,
    is_repeated,
    levels,
    nearest,
    outermost_above,
    sums_above,
)
from bridge.join.paths import CUT, KEPT, MAX_DEPTH, capped, paths


def chain(parent, node):
    """List a node and the nodes around it, the innermost first."""
    result = []
    while node != -1:
        result.append(node)
        node = parent[node]
    return result


@st.composite
def forests(draw):
    """Draw a parent for each node, and shuffle the rows: a parent may come after its children."""
    above = draw(st.lists(st.integers(0, 5), min_size=1, max_size=30))
    tree = [node - back if back and back <= node else -1 for node, back in enumerate(above)]
    row = draw(st.permutations(range(len(tree))))
    parent = np.full(len(tree), -1)
    for node, around in enumerate(tree):
        parent[row[node]] = -1 if around == -1 else row[around]
    return parent


def keys(size):
    """Return numbers for the nodes of a forest, with repetitions."""
    return np.arange(size) * 7 % 3


DEEP = np.arange(-1, 999)  # a single stack of a thousand


@given(forests())
@example(DEEP)
@example(np.append(DEEP, DEEP[1:]))
def test_what_is_around_and_under_each_node_is_that_of_its_chain(parent):
    values, wanted = np.arange(len(parent)) * 5 % 11 - 3, keys(len(parent)) == 1
    chains = [chain(parent.tolist(), node) for node in range(len(parent))]
    assert levels(parent).tolist() == [len(c) - 1 for c in chains]
    assert sums_above(parent, values).tolist() == [values[c].sum() for c in chains]
    first = [[node for node in c if wanted[node]] or [-1] for c in chains]
    assert nearest(parent, wanted).tolist() == [c[0] for c in first]
    assert outermost_above(parent, wanted).tolist() == [c[-1] for c in first]
    key = keys(len(parent))
    assert is_repeated(parent, key).tolist() == [(key[c[1:]] == key[c[0]]).any() for c in chains]
    for combine in (np.add, np.minimum, np.maximum):
        expected = values.copy()
        for node, around in enumerate(chains):
            for above in around[1:]:
                expected[above] = combine(expected[above], values[node])
        assert folded(parent, values, combine).tolist() == expected.tolist()


@given(forests())
@example(DEEP)
def test_depth_first_order_is_that_of_a_walk(parent):
    place, size = depth_first(parent)
    under = {node: [] for node in range(-1, len(parent))}
    for node, around in enumerate(parent.tolist()):
        under[around].append(node)
    walk, waiting = [], under[-1][::-1]
    while waiting:
        walk.append(waiting.pop())
        waiting += under[walk[-1]][::-1]
    assert np.argsort(place).tolist() == walk
    assert size.tolist() == folded(parent, np.ones(len(parent), np.int64)).tolist()


@given(forests())
@example(DEEP)
@example(np.append(DEEP, DEEP))
def test_distinct_paths_come_outermost_first_then_by_their_first_node(parent):
    name, known = keys(len(parent)), {}
    chains = [tuple(name[chain(parent.tolist(), node)][::-1]) for node in range(len(parent))]
    for path in sorted(dict.fromkeys(chains), key=len):
        known[path] = len(known)
    above, last, of_node = distinct_paths(parent, name)
    assert of_node.tolist() == [known[path] for path in chains]
    assert last.tolist() == [path[-1] for path in known]
    assert above.tolist() == [known.get(path[:-1], -1) for path in known]


def test_a_path_is_cut_in_the_middle_where_it_is_deeper_than_the_limit():
    names = [f"n{number}" for number in range(1_000)]
    codes, texts = paths(DEEP, np.arange(1_000), names)
    for depth in range(1, 1_001):
        whole = names[:depth]
        cut = [*whole[:KEPT], CUT, *whole[-KEPT:]]
        assert texts[codes[depth - 1]] == "/".join(whole if depth <= MAX_DEPTH else cut)


def test_cut_paths_of_one_name_are_one_path():
    codes, texts = paths(DEEP, np.zeros(1_000, np.int64), ["work"])
    assert len(texts) == MAX_DEPTH + 1
    assert set(codes[MAX_DEPTH:]) == {MAX_DEPTH}


@pytest.mark.parametrize("depth", [2, MAX_DEPTH, MAX_DEPTH + 1, 1_000])
def test_a_capped_tree_has_one_node_for_all_levels_below_the_last(depth):
    forest = np.append(DEEP[:depth], [-1, depth])  # beside it a tree of two levels
    parent, of_node, place = capped(forest)
    stays = levels(forest) < MAX_DEPTH
    assert (of_node[place[stays]] == np.flatnonzero(stays)).all()
    assert (of_node[place[~stays]] == -1).all()
    assert levels(parent).max() == min(depth - 1, MAX_DEPTH)
    assert len(parent) == min(depth, MAX_DEPTH + 1) + 2
