"""What ranges say of their single calls: PyTorch's per-call part, payloads, JSON, as columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from bridge.join.order import NONE, Ints
from importers import frames
from importers.percall import INPUT_OP_IDS, OP_ID, SEQ, SIZES, numbers
from importers.percall import values as values_of
from importers.texts import Texts

Scalar = int | float | str
NUMBERS = {"seq": SEQ, "op_id": OP_ID}
TEXTS = {"sizes": SIZES, "input_op_ids": INPUT_OP_IDS}


def arguments(joined: Attributed, taken: Collection[str] = ()) -> pd.DataFrame:
    """Return one row per range that is an op, as `by_range` does, and a column per argument that any has.

    ``payload``, ``seq`` and ``op_id`` are integers, -1 where missing, as is all that is an integer
    wherever it is said; ``sizes`` and ``input_op_ids`` are texts as written; then what names say
    (``step``, ``module``, …) and the entries of JSON payloads, '' where missing. Each distinct name
    and JSON text is read once. No column gets a name that is ``taken``.
    """
    ranges = joined.report.ranges.iloc[np.flatnonzero(joined.listed_ranges)]
    text, pool = frames.ints(ranges, "text"), joined.report.texts
    found: dict[str, Any] = {"payload": frames.ints(ranges, "payload")}
    found |= {name: numbers(pool, key)[text] for name, key in NUMBERS.items()}
    found = {name: c for name, c in found.items() if (c != NONE).any()}
    found |= {name: c for name, key in TEXTS.items() if (c := _written(pool, key, text)).any()}
    for column, read in (("name", _said), ("json", _entries)):
        texts_of = ranges[column]
        entries = [read(one) for one in texts_of.cat.categories]
        for key, values in _columns(entries, frames.codes(texts_of)).items():
            found[_free(key, {*taken, *found})] = values
    return pd.DataFrame(found, index=pd.RangeIndex(len(ranges)))


def _written(pool: Texts, key: bytes, text: Ints) -> Any:
    code, distinct = values_of(pool, key).factorize()
    return texts(distinct)[code[text]]


def _columns(said: Sequence[Mapping[str, Scalar]], codes: Ints) -> dict[str, Any]:
    """Return a column for each key that is used."""
    used = sorted(set(np.unique(codes).tolist()) - {NONE})
    keys = dict.fromkeys(key for code in used for key in said[code])
    return {key: _column([said[code].get(key) for code in used], used, codes) for key in keys}


def _column(values: Sequence[Scalar | None], used: Sequence[int], codes: Ints) -> Any:
    """Return the value of each row by its code: integers if all are, -1 or '' where there is none."""
    place = np.full(max([NONE, *used]) + 2, len(used))
    place[used] = np.arange(len(used))
    if all(type(v) is int and abs(v) < 1 << 63 for v in values if v is not None):
        return np.array([NONE if v is None else v for v in (*values, None)], np.int64)[place[codes]]
    return texts(["" if v is None else v for v in (*values, None)])[place[codes]]


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{name} of the call"
    return name


def _said(name: str) -> dict[str, Scalar]:
    return {key: _scalar(value) for key, value in parse(name).arguments}


def _entries(text: str) -> dict[str, Scalar]:
    """Return the entries of a JSON object, those of objects in it by ``outer.inner``; else the value itself."""
    if not text:
        return {}
    try:
        value = json.loads(text)
        return dict(_flat("", value)) if isinstance(value, dict) else {"json": _scalar(value)}
    except (ValueError, RecursionError):  # no JSON, or brackets a thousand deep
        return {"json": text}


def _flat(path: str, value: object) -> Iterable[tuple[str, Scalar]]:
    if not isinstance(value, dict):
        yield path, _scalar(value)
        return
    for key, inner in value.items():
        yield from _flat(f"{path}.{key}" if path else key, inner)


def _scalar(value: object) -> Scalar:
    """Return what a column can hold: lists and the like as JSON."""
    if isinstance(value, int | float | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=repr)
