"""Families of range names: names that differ in a number alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges

# -- Names that differ in a number


NUMBER = re.compile(r"([0-9]+)")
SEPARATOR = "\n"  # of names that are searched at once
MAX_DIGITS = 18  # more do not fit into 64 bits
WORD = re.compile(  # a word for steps with its number, anywhere in a name
    r"(?:(?<![a-zA-Z])|(?<=[a-z])(?=[SIBM]))(?i:step|iter(?:ation)?|(?:mini[ _-]?)?batch)[ _#:=-]*([0-9]+)"
)
WARM_UP = re.compile(r"warm[ _-]?up", re.IGNORECASE)
LAST_WORD = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)[^A-Za-z0-9]*$")
FIRST_WORD = re.compile(r"^[^A-Za-z0-9]*([A-Z]?[a-z]+|[A-Z]+)")
MODULE_PATH = re.compile(r"[A-Za-z_\])]\.$")  # as in blocks.3
PARTS = frozenset(  # what numbers tell apart within one step: parts of a model, devices, threads
    "layer layers block blocks module modules stage stages head heads expert experts bucket buckets rank"
    " ranks gpu device cuda stream worker thread conv bn fc linear norm encoder decoder level part shard"
    " group node h".split()
)
EPOCHS = frozenset(["epoch", "epochs"])  # each is a loop of steps
NAMED, OTHER, EPOCH = range(3)  # ranks of families: what is called a step comes first


@record
class Families:
    """Families of names: per name its family and its number, both NONE for a name without a family.

    Per family: ``text`` is the name with ``*`` in place of numbers that differ, ``rank`` one of
    `NAMED`, `OTHER` and `EPOCH`, or NONE if the number tells parts of a step apart.
    """

    family: Ints
    number: Ints
    text: tuple[str, ...]
    rank: Ints

    @classmethod
    def of(cls, names: Sequence[str]) -> Families:
        """Find the families of two or more names."""
        family, number = np.full(len(names), NONE), np.full(len(names), NONE)
        texts: list[str] = []
        ranks: list[int] = []
        for rows in _alike(names):
            found = _family([names[row] for row in rows.tolist()])
            if found:
                family[rows], number[rows] = len(texts), found[0]
                texts.append(found[1])
                ranks.append(found[2])
        return cls(family, number, tuple(texts), np.array(ranks, np.int64))


def _alike(names: Sequence[str]) -> list[Ints]:
    """Return the rows of names that are the same but for their numbers, two or more, by first row."""
    joined = NUMBER.sub("0", SEPARATOR.join(names))  # all at once: there may be a name per request
    shapes = joined.split(SEPARATOR)
    if len(shapes) != len(names):  # a name holds the separator
        shapes = [NUMBER.sub("0", name) for name in names]
    shape = Names.of(shapes).codes
    rows = order_by(shape)
    edges = run_edges(shape[rows])
    several = np.flatnonzero(np.diff(edges) > 1)
    groups = (rows[edges[at] : edges[at + 1]] for at in several.tolist())
    return [group for group in groups if "0" in shapes[group[0]]]


def _family(names: list[str]) -> tuple[Ints, str, int] | None:
    """Return the numbers of names that differ in numbers, their common text and its rank.

    None if several numbers differ that do not grow together, as in ``layer 3 head 5``.
    """
    digits = NUMBER.findall(SEPARATOR.join(names))
    if max(map(len, digits)) > MAX_DIGITS:
        return None
    values = np.fromiter(map(int, digits), np.int64, len(digits)).reshape(len(names), -1)
    differs = np.flatnonzero((values != values[0]).any(axis=0))
    if not len(differs):
        return None  # 1 and 01
    parts = NUMBER.split(names[0])
    counted = _number_of_step(parts, differs)
    rank = NAMED
    if counted == NONE:
        counted = int(differs[0])
        rows = values[np.argsort(values[:, counted], kind="stable")]
        if (np.diff(rows[:, differs], axis=0) < 0).any():
            return None
        rank = _rank(parts[2 * counted], parts[2 * counted + 2])
    shown = parts.copy()
    for place in differs.tolist():
        shown[2 * place + 1] = "*"
    return values[:, counted], "".join(shown), rank


def _number_of_step(parts: list[str], differs: Ints) -> int:
    """Return which number of a name follows a word for steps, and differs; NONE if none does."""
    for match in WORD.finditer("".join(parts)):
        place = len(NUMBER.findall("".join(parts)[: match.start(1)]))
        if place in differs:
            return place
    return NONE


def _rank(before: str, after: str) -> int:
    """Return the rank of a family by the texts before and after its number, NONE for parts of a step."""
    if MODULE_PATH.search(before):
        return NONE
    if WARM_UP.search(before + after):
        return NAMED
    match = LAST_WORD.search(before) or FIRST_WORD.search(after)
    word = match[1].lower() if match else ""
    if word in PARTS:
        return NONE
    return EPOCH if word in EPOCHS else OTHER


MIN_FOLDED = 8  # names of a family other than steps that are shown as one
MIN_DENSITY = (
    0.5  # share of the numbers from the lowest to the highest, in their stride, that occur
)


def folded_names(names: Sequence[str]) -> list[str]:
    """Return the names, those of a family whose numbers count up as one, such as ``token_*_processing``."""
    families = Families.of(names)
    result = list(names)
    order = order_by(families.family)
    edges = run_edges(families.family[order]).tolist()
    for first, last in pairwise(edges):
        rows = order[first:last]
        family = int(families.family[rows[0]])
        if family != NONE and _is_folded(families, family, families.number[rows]):
            for row in rows.tolist():
                result[row] = families.text[family]
    return result


def _is_folded(families: Families, family: int, number: Ints) -> bool:
    if families.rank[family] == NAMED:
        return True
    distinct = np.unique(number)
    if len(distinct) < MIN_FOLDED:
        return False
    stride = np.gcd.reduce(np.diff(distinct))  # 10 in Compute 10, Compute 20, Compute 30
    last = int((distinct[-1] - distinct[0]) // stride)
    return len(distinct) >= MIN_DENSITY * (last + 1)


# -- Parts of a model


PART = re.compile(  # a module with its index, or a part of a model
    r"[A-Za-z_\])]\.\d+|\b(?:sub)?(?:layer|block|module|stage|head|expert)s?\b", re.IGNORECASE
)


def part_shapes(names: Sequence[str]) -> tuple[Ints, list[str]]:
    """Return for each name of a part of a model what it has in common with others, or NONE, and these texts."""
    shape = np.full(len(names), NONE)
    texts: dict[str, int] = {}
    for at, name in enumerate(names):
        if PART.search(name):
            shape[at] = texts.setdefault(NUMBER.sub("*", name), len(texts))
    return shape, list(texts)


# -- Names that the user chooses (``--steps``)


NAMELESS = " _#:=-./"  # what separates a number from the name of a family


def chosen_names(names: Sequence[str], wanted: str) -> Flags:
    """Return which names ``wanted`` chooses.

    It is a name, which may hold ``*`` and ``?``, or a family: ``Batch``, ``Batch N`` or ``Batch *``.
    """
    pattern = re.compile(fnmatch.translate(wanted.replace("[", "[[]")))
    families = Families.of(names)
    is_family = [*(wanted.lower() in _called(text) for text in families.text), False]
    by_family: Flags = np.array(is_family, bool)[families.family]
    by_name = np.array([pattern.match(name) is not None for name in names], bool)
    return by_name if by_name.any() else by_family


def _called(text: str) -> tuple[str, ...]:
    """Return what a family may be called."""
    text = text.lower()
    return text, text.replace("*", "n"), text.replace("*", "").strip(NAMELESS)
