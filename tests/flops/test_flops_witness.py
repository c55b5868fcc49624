"""The columns of FLOPs against loops over calls, on real reports."""

from __future__ import annotations

import json
from functools import cache

import pytest
from witness.flops import by_op

import bridge

REPORTS = (
    "nsys/pytorch-forward.sqlite",
    "nsys/pytorch-backward.sqlite",
    "kineto/resnet50-workers0.pt.trace.json.gz",
)

load = cache(bridge.load)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_columns_are_those_of_the_definition(corpus, name):
    joined = load(corpus / name)
    truth = by_op(joined.attributed)
    table = joined.by("op", columns="flops").set_index("op")
    compared = 0
    for op, row in table.iterrows():
        want = truth[op]
        known = want["flops known"] and (want["flop"] or not want["flops left"])
        assert row["flop"] == (want["flop"] if known else -1), op
        assert row["flop_once"] == (want["flop_once"] if known else -1), op
        assert row["counted_ns"] == want["counted_ns"], op
        assert row["uncounted"] == want["flops left"], op
        moved = want["bytes known"] and (want["moved_bytes"] or not want["bytes left"])
        assert row["moved_bytes"] == (want["moved_bytes"] if moved else -1), op
        rate = known and want["counted_ns"] > 0
        expected = want["flop"] / want["counted_ns"] / 1000 if rate else -1
        assert row["tflop_per_s"] == pytest.approx(expected), op
        compared += bool(known and want["flop"])
    assert compared > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_what_counts_once_is_the_whole_however_rows_are_parted(corpus, name):
    joined = load(corpus / name)
    wholes = {
        by: joined.by(by, columns="flop_once")["flop_once"].clip(lower=0).sum()
        for by in ("op", "op,shape", "path", "direction", "thread")
    }
    assert wholes["op"] > 0
    assert len(set(wholes.values())) == 1


def test_rows_of_shapes_have_one_count_per_call(corpus):
    """2·M·N·K by hand, of every shape of `aten::bmm`."""
    joined = load(corpus / "nsys/pytorch-backward.sqlite")
    table = joined.by("op,shape", columns="calls,flop,formula")
    rows = table[table["op"] == "aten::bmm"]
    assert len(rows) > 3
    for shape, calls, flop in rows[["shape", "calls", "flop"]].itertuples(index=False):
        (b, m, k), (_, _, n) = json.loads(shape)
        assert flop == calls * 2 * b * m * n * k
    assert set(rows["formula"]) == {"2·B·M·N·K"}
