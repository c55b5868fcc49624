"""What ranges say of their single calls: PyTorch's per-call part, payloads, JSON, as columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.join.order import NONE, Ints
from importers import frames
from importers.percall import INPUT_OP_IDS, OP_ID, SEQ, SIZES, numbers, values
from importers.texts import Texts

NUMBERS = {"seq": SEQ, "op_id": OP_ID}
TEXTS = {"sizes": SIZES, "input_op_ids": INPUT_OP_IDS}


def arguments(joined: Attributed) -> pd.DataFrame:
    """Return one row per range that is an op, as `by_range` does, and a column per argument that any has.

    ``payload``, ``seq`` and ``op_id`` are integers, -1 where missing; ``sizes`` and ``input_op_ids`` texts as
    written; then what names say (``step``, ``module``, …) and the entries of JSON payloads, '' where
    missing. Each distinct name and JSON text is read once.
    """
    ranges = joined.report.ranges.iloc[np.flatnonzero(joined.listed_ranges)]
    text, pool = frames.ints(ranges, "text"), joined.report.texts
    columns: dict[str, Any] = {"payload": frames.ints(ranges, "payload")}
    columns |= {name: numbers(pool, key)[text] for name, key in NUMBERS.items()}
    columns = {name: c for name, c in columns.items() if (c != NONE).any()}
    columns |= {name: c for name, key in TEXTS.items() if (c := _written(pool, key, text)).any()}
    name = ranges["name"]
    said = [dict(parse(one).arguments) for one in name.cat.categories]
    columns |= _columns(said, frames.codes(name), columns)
    payload = ranges["json"]
    entries = [_entries(one) for one in payload.cat.categories]
    columns |= _columns(entries, frames.codes(payload), columns)
    return pd.DataFrame(columns, index=pd.RangeIndex(len(ranges)))


def _written(pool: Texts, key: bytes, text: Ints) -> Any:
    code, distinct = values(pool, key).factorize()
    return texts(distinct)[code[text]]


def _columns(
    said: Sequence[Mapping[str, object]], codes: Ints, taken: Iterable[str]
) -> dict[str, Any]:
    """Return a column for each key that is used; one of a name that is taken is called ``json.KEY``."""
    used = set(np.unique(codes).tolist()) - {NONE}
    keys = dict.fromkeys(key for code in sorted(used) for key in said[code])
    return {
        (f"json.{key}" if key in taken else key): texts([*(one.get(key, "") for one in said), ""])[
            codes
        ]
        for key in keys
    }


def _entries(text: str) -> dict[str, object]:
    """Return the entries of a JSON object, those of objects in it by ``outer.inner``; else the value itself."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return dict(_flat("", value)) if isinstance(value, dict) else {"json": value}


def _flat(path: str, value: object) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict):
        yield path, json.dumps(value) if isinstance(value, list) else value
        return
    for key, inner in value.items():
        yield from _flat(f"{path}.{key}" if path else key, inner)
