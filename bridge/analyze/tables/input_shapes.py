"""What each range says of its inputs: shapes, as PyTorch's texts or recorded details have them, and dtypes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bridge.join.arrays import Ints
from bridge.join.attributed import Attributed
from importers import frames
from importers.percall import SIZES, values
from importers.texts import Texts


def shapes(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct shapes, ``[[2, 3], [3, 4]]``; '' where nothing is said."""
    ranges = joined.report.ranges
    in_text, written = _of_texts(joined.report.texts)
    in_json, detailed = _detail(ranges["json"], "shapes", _shapes)
    text, detail = in_text[frames.ints(ranges, "text")], in_json[frames.codes(ranges["json"])]
    codes, names = pd.factorize(np.array([*written, *detailed], object))
    said = np.array([*(name != "" for name in written)], bool)[text]
    return codes[np.where(said, text, detail + len(written))].astype(np.int64), list(names)


def output_shapes(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return the same of outputs, which only recorded details have."""
    column = joined.report.ranges["json"]
    return _coded(column, *_detail(column, "output_shapes", _shapes))


def dtypes(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct types of inputs, ``float32, int64``; '' where nothing is said."""
    column = joined.report.ranges["json"]
    return _coded(column, *_detail(column, "dtypes", _dtypes))


def _coded(column: pd.Series, of: Ints, detailed: Sequence[str]) -> tuple[Ints, list[str]]:
    """Return a code per range and the distinct texts."""
    codes, names = pd.factorize(np.array(detailed, object))
    return codes[of[frames.codes(column)]].astype(np.int64), list(names)


def _of_texts(pool: Texts) -> tuple[Ints, Sequence[str]]:
    """Return a code per text, the last for none, and what the texts say."""
    codes, names = values(pool, SIZES).factorize()
    return np.append(codes, len(names)), [*names, ""]


def _detail(column: pd.Series, key: str, shown: Callable[[Any], str]) -> tuple[Ints, list[str]]:
    """Return a code per JSON text (the last entry: for none), and what each says under a key."""
    said = [_under(text, key) for text in column.cat.categories]
    return np.arange(len(said) + 1), [*("" if one is None else shown(one) for one in said), ""]


def _under(text: str, key: str) -> Any:
    if f'"{key}"' not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found.get(key) if isinstance(found, dict) else None


def _shapes(found: Any) -> str:
    """Write shapes as PyTorch does: an input that is no tensor is ``[]``."""
    entries = found if isinstance(found, list) else [found]
    return json.dumps([[] if shape is None else shape for shape in entries])


def _dtypes(found: Any) -> str:
    entries = found if isinstance(found, list) else [found]
    return ", ".join(str(one) for one in entries if one)
