"""Labels of ranges in a recording: texts, and a colour of 32 bits; all else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.importers.recording.lines import read_label


@pytest.mark.parametrize("color", [None, 0, 0x00FF00, 0xFFFFFFFF])
def test_a_label_is_read_as_it_was_written(color: int | None) -> None:
    assert read_label("gemm", "mine", "math", color) == ("gemm", "mine", "math", color)
    assert read_label("gemm", None, None, color) == ("gemm", None, None, color)


@pytest.mark.parametrize(
    "texts", [(1, None, None), ("a", 1, None), ("a", None, 1), (None, "d", None), ([], "d", "c")]
)
def test_a_name_domain_or_category_that_is_no_text_is_refused(texts: tuple[Any, Any, Any]) -> None:
    with pytest.raises(TypeError):
        read_label(*texts, None)


@pytest.mark.parametrize("color", [-1, 1 << 32])
def test_a_colour_beyond_32_bits_is_refused(color: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        read_label("a", None, None, color)
