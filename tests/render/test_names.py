"""Names in tables: long forms of frameworks, and names that do not fit."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import bridge
from bridge.importers.errors import NothingRecorded
from bridge.knowledge.abbreviations import abbreviated, beginnings
from bridge.render.names import fitted
from bridge.render.table import Look, for_terminal


def test_names_that_are_alike_at_the_front_are_cut_in_the_middle():
    names = ["aten::max_pool2d_with_indices_backward", "aten::max_pool2d_with_indices", "aten::mm"]
    assert fitted(names, 30) == [
        "aten::max_pool2d_wi…s_backward",
        "aten::max_pool2d_with_indices",
        "aten::mm",
    ]
    assert fitted(["aten::native_dropout_backward", "aten::mm"], 12) == ["aten::nativ…", "aten::mm"]


def test_paths_keep_their_ends():
    assert fitted(["Epoch 1/Train/Forward", "Epoch"], 10, keep_end=True) == ["…n/Forward", "Epoch"]


def test_long_forms_of_frameworks():
    evaluate = "autograd::engine::evaluate_function: "
    assert abbreviated(
        [
            f"{evaluate}AddmmBackward0",
            "AddmmBackward0",
            f"{evaluate}torch::autograd::AccumulateGrad",
            "torch::autograd::AccumulateGrad",
            "Optimizer.step#Adam.step",
            "FullyShardedDataParallel.forward",
        ]
    ) == [
        "autograd: AddmmBackward0",
        "AddmmBackward0",
        "autograd: AccumulateGrad",
        "AccumulateGrad",
        "Adam.step",
        "FSDP.forward",
    ]


def test_a_name_that_another_would_look_like_stays():
    names = ["Optimizer.step#Adam.step", "Adam.step", "Optimizer.step#SGD.step"]
    assert abbreviated(names) == ["Optimizer.step#Adam.step", "Adam.step", "SGD.step"]


texts = st.text(
    st.sampled_from(["a", "b", "…", "1", "語", *" :/"]), min_size=1, max_size=14
)  # few letters: many names are alike


@given(st.lists(texts, max_size=30), st.integers(4, 12), st.booleans())
def test_different_names_stay_different_and_fit(names, room, keep_end):
    shown = fitted(names, room, keep_end=keep_end)
    assert all(cell_len(name) <= room for name in shown)
    assert len({*shown}) == len({*names})
    assert {*zip(names, shown, strict=True)} == {*dict(zip(names, shown, strict=True)).items()}


@given(
    st.lists(
        st.tuples(st.sampled_from(["", *beginnings()]), st.sampled_from(["a", "b", "Adam.step"]))
    )
)
def test_different_names_stay_different_when_abbreviated(parts):
    names = ["".join(part) for part in parts]
    assert len({*abbreviated(names)}) == len({*names})


TABLES = ("op", "op-kernel", "kernel", "path", "module")


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_no_two_rows_of_a_real_report_look_the_same(corpus, width):
    for path in sorted((corpus / "nsys").glob("*.sqlite")):
        with suppress(NothingRecorded):
            _assert_rows_differ(bridge.load(path), width)


def _assert_rows_differ(report, width):
    for by in TABLES:
        table = report.by(by)
        if not len(table):
            continue
        lines = for_terminal(report.layout(by), table, Look(width)).splitlines()[2:]
        shown, notes = lines[: len(table)], lines[len(table) :]
        assert len(shown) == len(table)
        assert len(notes) <= 2  # columns without room; what a checksum is
        assert len({*shown}) == len(shown), (report.source, by)
