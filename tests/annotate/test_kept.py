"""What is kept of a call's values: numbers as numbers, arrays as their dtype and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bridge.annotate.details import plain_value


class OnDevice:
    """A number that a GPU has still to compute: who asks for it waits."""

    shape = ()
    dtype = "torch.float32"

    def item(self) -> float:
        raise AssertionError("waited for the device")


@pytest.mark.parametrize(
    ("value", "kept"),
    [(np.float32(2.5), 2.5), (np.int64(7), 7), (np.bool_(True), True), (np.array(5), 5)],
)
def test_a_number_of_numpy_is_kept_as_a_number(value: Any, kept: Any) -> None:
    assert plain_value(value) == kept
    assert type(plain_value(value)) is type(kept)


def test_an_array_is_kept_as_dtype_and_shape() -> None:
    assert plain_value(np.zeros((2, 3), np.float32)) == "float32[2, 3]"
    assert plain_value([np.zeros(4, np.int8), 1]) == ("int8[4]", 1)


def test_no_device_is_waited_for() -> None:
    assert plain_value(OnDevice()) == "float32[]"
