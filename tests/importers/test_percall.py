"""Where the per-call part of a name begins, against reading it a character at a time."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from importers.percall import name_lengths
from importers.texts import Texts

KEYS = ("seq", "op_id", "sizes", "input_op_ids")


def name_of(text):
    """Return what comes before the first key that a value follows, if the text ends as values do."""
    if text[-1:] not in tuple("0123456789]"):
        return text
    for place in range(len(text)):
        for key in KEYS:
            head = f", {key} = "
            if text.startswith(head, place) and text[place + len(head) :][:1] in tuple(
                "-[0123456789"
            ):
                return text[:place]
    return text


VALUES = ["7", "-1", "[[2, 3], []]", "[(38, 0)]", "]"]
BROKEN = [
    ", op_id is7",
    ", sizes is7",
    ", input_abcdefghi7",
    ", ",
    " ",
    "seq = 1",
    ", seq =",
    "none",
    "ü",
    ", se",
    "q = 4",
]
words = st.sampled_from(
    ["aten::mm", "f(int, long)", *(f", {key} = " for key in KEYS), *VALUES, *BROKEN]
)
written = st.lists(words, max_size=7).map("".join)


@given(st.lists(written, max_size=6))
@example([", seq", " = 1"])
@example([", seq = ", "1"])
@example(["a, seq = 1", "", ", seq = 1", "b"])
@example([])
def test_names_end_where_a_slow_reader_ends_them(column):
    lengths = name_lengths(Texts.of(column))
    assert lengths.tolist() == [len(name_of(text).encode()) for text in column]


@given(st.lists(written, min_size=1, max_size=4))
def test_a_text_is_read_on_its_own(column):
    """Whatever stands before or after it in memory."""
    together = name_lengths(Texts.of(column))
    alone = [int(name_lengths(Texts.of([text]))[0]) for text in column]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]], input_op_ids = [(38, 0)]", "aten::mm"),
        ("flash_attn::fwd, op_id = 999173", "flash_attn::fwd"),
        ("f(int, long), seq = -1", "f(int, long)"),
        ("void f<a, b>(c, d)", "void f<a, b>(c, d)"),
        ("loss, seq = none", "loss, seq = none"),
        ("a, seq = 1 of many", "a, seq = 1 of many"),
        ("a, seq = x, op_id = 3", "a, seq = x"),
        ("a, sizes = []", "a"),
        ("a,seq = 1", "a,seq = 1"),
        ("a, Seq = 1", "a, Seq = 1"),
        ("a, op_id is7", "a, op_id is7"),
        (", seq = 1", ""),
        ("", ""),
    ],
)
def test_names_by_hand(text, name):
    assert name_of(text) == name
    assert name_lengths(Texts.of([text])).tolist() == [len(name)]


def test_columns_are_left_as_they_are():
    column = Texts.of(["a, seq = 1", "b"])
    offsets, data = column.offsets.copy(), column.data.copy()
    name_lengths(column)
    assert np.array_equal(column.offsets, offsets)
    assert np.array_equal(column.data, data)
