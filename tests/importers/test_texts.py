"""A block of bytes against a list of Python's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.importers import texts
from bridge.importers.texts import PADDING, Texts

pieces = st.one_of(
    st.sampled_from(
        [b"", b"\0", b"a", b"a\0", b"\xff", b"\xfe\xff", "\xfc".encode(), b"12345678", b"123456789"]
    ),
    st.binary(max_size=20),
    st.text(max_size=12).map(str.encode),
)
columns = st.lists(pieces, max_size=12)


def raw(column):
    """Return a column's texts as bytes."""
    return [
        column.data[a:b].tobytes() for a, b in zip(column.offsets, column.offsets[1:], strict=False)
    ]


def shown(piece):
    return piece.decode(errors="replace")


def grouped(names):
    """Number names by first occurrence."""
    distinct = list(dict.fromkeys(names))
    return [distinct.index(name) for name in names], distinct


@pytest.mark.slow
@given(columns)
def test_texts_come_back(column):
    packed = Texts.of(column)
    assert raw(packed) == column
    assert len(packed) == len(column)
    assert packed.sizes.tolist() == [len(piece) for piece in column]
    assert packed.decode() == [shown(piece) for piece in column]
    assert packed.decode(reversed(range(len(column)))) == [
        shown(piece) for piece in reversed(column)
    ]


@pytest.mark.slow
@given(st.lists(st.text(max_size=9)))
def test_strings_are_packed_as_utf8(column):
    assert Texts.of(column).decode() == column


@pytest.mark.slow
@given(columns.filter(bool), st.data())
def test_take(column, data):
    rows = data.draw(st.lists(st.integers(0, len(column) - 1)))
    assert raw(Texts.of(column).take(np.array(rows, np.int64))) == [column[row] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("block", [2, texts.BLOCK])
@given(column=columns, data=st.data())
def test_slices(column, data, block):
    packed = Texts.of(column)
    end = st.integers(0, len(packed.data))
    edges = [sorted(pair) for pair in data.draw(st.lists(st.tuples(end, end)))]
    starts, ends = np.array(edges, np.int64).reshape(-1, 2).T.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "BLOCK", block)
        found = raw(packed.slices(starts, ends))
    assert found == [packed.data[a:b].tobytes() for a, b in edges]


@pytest.mark.slow
@given(st.lists(columns, min_size=1, max_size=4), st.integers(0, 3))
def test_concat_takes_parts_of_larger_blocks(many, skip):
    parts = [Texts.of(column) for column in many]
    tails = [Texts(p.data, p.offsets[min(skip, len(p)) :]) for p in parts]
    expected = [piece for column in many for piece in column[skip:]]
    assert raw(Texts.concat(tails)) == expected


def weak(words, starts, lengths):
    """Hash everything alike."""
    return np.zeros(len(starts), np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize("hashes", [None, weak], ids=["hashed", "colliding"])
@given(column=columns)
def test_factorize_numbers_distinct_names_by_first_occurrence(column, hashes):
    with pytest.MonkeyPatch.context() as patch:
        if hashes:
            patch.setattr(texts._Words, "hashes", hashes)
        codes, names = Texts.of(column).factorize()
    assert (codes.tolist(), names) == grouped([shown(piece) for piece in column])


@pytest.mark.slow
@pytest.mark.parametrize("hashes", [None, weak], ids=["hashed", "colliding"])
@given(column=columns, data=st.data())
def test_factorize_of_heads(column, data, hashes):
    lengths = [data.draw(st.integers(0, len(piece))) for piece in column]
    with pytest.MonkeyPatch.context() as patch:
        if hashes:
            patch.setattr(texts._Words, "hashes", hashes)
        codes, names = Texts.of(column).factorize(np.array(lengths, np.int64))
    heads = [shown(piece[:n]) for piece, n in zip(column, lengths, strict=True)]
    assert (codes.tolist(), names) == grouped(heads)


def test_hashes_are_of_every_byte():
    """Or each factorization would take the slow way."""
    column = [b"x" * n + b"y" + b"x" * (40 - n) for n in range(40)] + [b"x" * n for n in range(40)]
    packed = Texts.of(column)
    found = texts._Words(packed.words).hashes(packed.offsets[:-1], packed.sizes)
    assert len(set(found.tolist())) == len(column)


def test_hashes_tell_zeros_at_the_end_of_a_text_apart():
    packed = Texts.of([head + b"\0" * n for head in (b"", b"a") for n in range(10)])
    found = texts._Words(packed.words).hashes(packed.offsets[:-1], packed.sizes)
    assert len(set(found.tolist())) == len(packed)


@pytest.mark.slow
@given(columns)
def test_words_are_the_eight_bytes_from_every_place_on(column):
    data = b"".join(column)
    padded = data + bytes(8 + PADDING)
    expected = [int.from_bytes(padded[i : i + 8], "little") for i in range(len(data) + 1 + PADDING)]
    assert Texts.of(column).words.tolist() == expected
    halves = Texts.of(column[: len(column) // 2]), Texts.of(column[len(column) // 2 :])
    assert Texts.concat(halves).words.tolist() == expected
