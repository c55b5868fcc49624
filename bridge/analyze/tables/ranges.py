"""The table per range: each one's projection onto the GPU."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.calltree import stacks
from bridge.analyze.groups import counts, highest, lowest, texts
from bridge.analyze.tables import input_shapes
from bridge.analyze.tables.range_metrics import Groups, first_slices
from bridge.join.arrays import NONE, Ints, busy
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from importers import frames
from importers.percall import INPUT_OP_IDS, OP_ID, SEQ, SIZES, numbers
from importers.percall import values as values_of
from importers.texts import Texts

# -- What ranges say of their single calls: PyTorch's per-call part, payloads, JSON, as columns


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


# -- The table per range: each one's projection onto the GPU


def by_range(joined: Attributed, *, with_arguments: bool = False) -> pd.DataFrame:
    """Return one row per range that is an op, on demand with a column for each of `arguments`.

    ``gpu_start_ns`` and ``gpu_span_ns`` tell where on the GPU its activities lie, first start to last
    end; ``gpu_busy_ns`` is the union of their intervals. Without activities: -1, 0 and 0.
    """
    ranges, nesting = joined.report.ranges, joined.attribution.nesting
    groups = len(ranges)
    row, node = stacks(nesting, joined.node)
    owner = nesting.range[node]
    activities = joined.report.activities
    start, end = frames.ints(activities, "start")[row], frames.ints(activities, "end")[row]
    first, last = lowest(owner, start, groups), highest(owner, end, groups)
    rows = np.flatnonzero(joined.listed_ranges)
    table = pd.DataFrame(
        {
            "name": texts(joined.ops)[joined.op[rows]],
            "path": range_paths(joined)[rows],
            "start_ns": frames.ints(ranges, "start")[rows],
            "duration_ns": np.maximum(frames.ints(ranges, "end") - frames.ints(ranges, "start"), 0)[
                rows
            ],
            "thread": frames.ints(ranges, "thread")[rows],
            "gpu_start_ns": first[rows],
            "gpu_span_ns": (last - first)[rows],
            "gpu_busy_ns": busy(owner, start, end, groups)[rows],
            "activities": counts(owner, groups)[rows],
        }
    )
    return table.join(arguments(joined, table.columns)) if with_arguments else table


def range_paths(joined: Attributed) -> NDArray[np.object_]:
    """Return the path of each range; of one cut in pieces, the first piece's."""
    code, distinct = joined.node_path
    of_range = np.append(code, NONE)[joined.attribution.nesting.first_nodes(len(joined.op))]
    named: NDArray[np.object_] = texts([*distinct, ""])[of_range]
    bare = (of_range == NONE) & (joined.op != NONE)  # no length, so never open: its name alone
    named[bare] = texts(joined.ops)[joined.op[bare]]
    return named


# -- The table of single calls: what each took by itself, on the GPU and on the host, and what it says of its inputs


TIMES = ("gpu_self_ns", "cpu_self_ns", "queue_ns")
COSTS = ("flops", "bytes")  # as recorded details have them


def by_call(joined: Attributed) -> pd.DataFrame:
    """Return one row per call of an op, in the order of their first ranges.

    Columns: op, path, start_ns (on the host), gpu_self_ns, cpu_self_ns, queue_ns (how long its work waited after
    it was launched), shape, output_shape, dtype ('' where nothing is said), flops, bytes (-1 where nothing is said).
    """
    nesting, call, firsts = joined.attribution.nesting, joined.call, first_slices(joined)
    of_node = call[nesting.range]
    groups = Groups(joined, len(firsts), call, of_node, np.append(of_node, NONE)[joined.node])
    return pd.DataFrame(
        {
            "op": texts(joined.ops)[joined.op[firsts]],
            "path": range_paths(joined)[firsts],
            "start_ns": frames.ints(joined.report.ranges, "start")[firsts],
            **groups.columns(TIMES),
            "shape": _named(input_shapes.shapes(joined), firsts),
            "output_shape": _named(input_shapes.output_shapes(joined), firsts),
            "dtype": _named(input_shapes.dtypes(joined), firsts),
            **_costs(joined, firsts),
        }
    )


def _named(coded: tuple[Ints, list[str]], rows: Ints) -> np.ndarray:
    code, names = coded
    return texts(names)[code[rows]]


def _costs(joined: Attributed, firsts: Ints) -> dict[str, Ints]:
    """Return FLOPs and bytes of each call, -1 where its details say none."""
    known = arguments(joined)
    listed = np.cumsum(joined.listed_ranges) - 1
    return {name: _integers(known.get(name), listed[firsts]) for name in COSTS}


def _integers(column: pd.Series | None, rows: Ints) -> Ints:
    """Return the rows of a column of integers, -1 each if there is none."""
    if column is None or column.dtype != np.int64:
        return np.full(len(rows), NONE)
    found: Ints = column.to_numpy()[rows]
    return found
