"""The per-call part of a name: where it begins, against reading it a character at a time; what it says, against a regex."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.importers import texts as texts_module
from bridge.importers.range_texts import (
    INPUT_OP_IDS,
    OP_ID,
    SEQ,
    SIZES,
    name_lengths,
    numbers,
    values,
)
from bridge.importers.texts import Texts


@pytest.fixture(autouse=True, scope="module", params=[texts_module.BLOCK_BYTES, 20])
def parts(request):
    """Texts are read in parts: all in one, and with at most a few in each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(texts_module, "BLOCK_BYTES", request.param)
        yield


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


VALUES = ["7", "-1", "[[2, 3], []]", "[(38, 0)]", "]", "12345678", "-0090123456789"]
VALUES += [str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 19, "1" * 20, "0" * 24 + "5", "7" * 40]
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


@pytest.mark.slow
@given(st.lists(written, max_size=6))
@example([", seq", " = 1"])
@example([", seq = ", "1"])
@example(["a, seq = 1", "", ", seq = 1", "b"])
@example([])
def test_names_end_where_a_slow_reader_ends_them(column):
    lengths = name_lengths(Texts.of(column))
    assert lengths.tolist() == [len(name_of(text).encode()) for text in column]


@pytest.mark.slow
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


# -- what the per-call part says

KEYED = (SEQ, OP_ID, SIZES, INPUT_OP_IDS)
NEXT_KEY = rb"(?=, (?:seq|op_id|sizes|input_op_ids) = [-0-9\[]|\Z)"


def part_of(text):
    return text.encode()[len(name_of(text).encode()) :]


def number_of(text, key):
    found = re.search(re.escape(key) + rb"(-?)(\d+)(?![^,])", part_of(text))
    if not found or len(found[2]) > 19 or int(found[2]) >= 2**63:
        return -1
    return int(found[1] + found[2])


def value_of(text, key):
    found = re.search(re.escape(key) + rb"(?=[-0-9\[])(.*?)" + NEXT_KEY, part_of(text), re.DOTALL)
    return found[1] if found else b""


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYED)
@given(column=st.lists(written, max_size=6))
@example(column=["a, seq = 1", "23b, op_id = 4", ", seq = 12345678", "9"])
@example(column=["a, seq = 7x, seq = 8, seq = 9"])
@example(column=["a, seq = x, op_id = 3, sizes = [], seq = 5"])
@example(column=[])
def test_numbers_and_values_are_those_a_regex_finds(column, key):
    texts = Texts.of(column)
    assert numbers(texts, key).tolist() == [number_of(text, key) for text in column]
    found = values(texts, key)
    assert found.decode() == [value_of(text, key).decode() for text in column]


@pytest.mark.slow
@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), max_size=50))
def test_every_number_comes_back(column):
    texts = Texts.of([f"aten::mm, seq = {n}, op_id = {n}" for n in column])
    assert numbers(texts, SEQ).tolist() == numbers(texts, OP_ID).tolist() == column


@pytest.mark.parametrize(
    ("text", "seq", "op_id", "sizes", "inputs"),
    [
        (
            "aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]], input_op_ids = [(38, 0)]",
            *(7, 40, "[[2, 3]]", "[(38, 0)]"),
        ),
        ("flash_attn::fwd, op_id = 999173", -1, 999173, "", ""),
        ("f(int, long), seq = -1", -1, -1, "", ""),
        ("loss, seq = none", -1, -1, "", ""),
        ("a, seq = x, op_id = 3", -1, 3, "", ""),
        ("a, seq = 1 of many", -1, -1, "", ""),
        ("a, sizes = []", -1, -1, "[]", ""),
        ("seq = 1", -1, -1, "", ""),
        ("", -1, -1, "", ""),
    ],
)
def test_what_is_said_by_hand(text, seq, op_id, sizes, inputs):
    texts = Texts.of(["before, seq = 5", text, "after, op_id = 6"])
    assert [numbers(texts, key).tolist()[1] for key in (SEQ, OP_ID)] == [seq, op_id]
    assert [values(texts, key).decode()[1] for key in (SIZES, INPUT_OP_IDS)] == [sizes, inputs]
