"""Numbers in per-call parts, however long: they are read eight digits at a time."""

from __future__ import annotations

import pytest

from bridge.importers.range_texts import OP_ID, SEQ, numbers
from bridge.importers.texts import Texts

DIGITS = "9081726354453627180"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 19])
def test_a_number_of_any_length_is_read_as_written(count):
    written = DIGITS[-count:]
    texts = Texts.of([f"aten::mm, seq = {written}, op_id = -{written}"])
    assert numbers(texts, SEQ).tolist() == [int(written)]
    assert numbers(texts, OP_ID).tolist() == [-int(written)]
