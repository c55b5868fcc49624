"""What functions of CUDA return other than success: names and meanings, and which values are answers.

cuda_errors.toml holds the data and where they come from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bridge.knowledge.package import data_file

RUNTIME = (
    "cuda"  # what names of functions of the runtime begin with; those of the driver begin with cu
)
OUT_OF_MEMORY = 2


@dataclass(frozen=True)
class CudaError:
    """An error of CUDA by its number: its names in the runtime and in the driver, "" for none, and its meaning."""

    number: int
    runtime: str
    driver: str
    meaning: str

    def name(self, call: str) -> str:
        """Return the name in the API of a function; that of the other API where it has none there."""
        own, other = self.runtime, self.driver
        return (own or other) if call.startswith(RUNTIME) else (other or own)


@cache
def _data() -> Mapping[str, Any]:
    text = data_file("bridge.knowledge", "cuda_errors.toml")
    return tomllib.loads(text)


@cache
def errors() -> Mapping[int, CudaError]:
    """Return all known errors by number."""
    return {row[0]: CudaError(*row) for row in _data()["errors"]}


def error(number: int) -> CudaError:
    """Return the error with a number; one that is not known is called by its number."""
    return errors().get(number) or CudaError(number, f"error {number}", f"error {number}", "")


def is_sticky(number: int) -> bool:
    """Return whether the process can do nothing with CUDA after this error."""
    return number in _data()["sticky"]


def always_counts(number: int) -> bool:
    """Return whether an error counts even where a later call succeeds."""
    return number in _data()["always"] or is_sticky(number)


def is_answer(call: str, number: int) -> bool:
    """Return whether a value is what a function was asked for, and no failure."""
    return any(
        number == answer and re.fullmatch(pattern, call)
        for answer, pattern, _ in _data()["answers"]
    )


def repeats_error(call: str) -> bool:
    """Return whether a function only tells what a call before it returned."""
    return re.fullmatch(_data()["repeats"], call) is not None
