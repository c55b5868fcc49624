"""Texts that can be written anywhere: what no UTF-8 can be made of, and NUL, spelled out."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from importers import frames


def clean(text: str) -> str:
    r"""Return a text as UTF-8 can have it: a lone surrogate as ``\udc80``, NUL as ``\0``."""
    plain = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    return plain.replace("\0", "\\0")


def named(texts: Sequence[str]) -> pd.Categorical:
    """Return a column of names from a text per row, each distinct one cleaned."""
    distinct = {text: clean(text) for text in dict.fromkeys(texts)}
    return frames.named([distinct[text] for text in texts])
