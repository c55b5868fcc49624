"""The real nsys records a training, and `bridge` reads the modules of it again."""

from __future__ import annotations

import sys

import pytest
import trained
from captures import exported, profiled, with_bridge
from small import WITH_NODES, WITHOUT_NODES

import bridge

STEPS = 3


@pytest.fixture(scope="module")
def training(nsys: str, tmp_path_factory: pytest.TempPathFactory):
    folder, env = tmp_path_factory.mktemp("nsys"), with_bridge(BRIDGE_NVTX="auto")
    profiled(nsys, folder, sys.executable, trained.__file__, env=env)
    return bridge.load(exported(nsys, folder / "report.nsys-rep"))


@pytest.mark.slow
def test_the_calls_of_every_module_are_counted(training):
    table = training.by("op").set_index("op")["calls"]
    forward = {f"module:{path}": STEPS for path in [*WITH_NODES, *WITHOUT_NODES]}
    backward = {f"backward:{path}": STEPS for path in WITH_NODES}
    steps = {"Optimizer.step#SGD.step": STEPS, "Optimizer.zero_grad#SGD.zero_grad": STEPS}
    expected = {**forward, **backward, **steps}
    assert {name: table.get(name, 0) for name in expected} == expected
    assert not [
        name for name in table.index if ":" in name and "::" not in name and name not in expected
    ]


def test_ops_are_counted_whatever_their_sizes(training):
    table = training.by("op").set_index("op")["calls"]
    linears = 2 * 4 + 1
    assert table["aten::addmm"] == STEPS * linears
    assert not [name for name in table.index if "sizes" in name]


def test_ranges_nest_as_modules_do(training):
    paths = set(training.by("range")["path"])
    names = ["Transformer", *(f"Transformer.layers.1{part}" for part in ("", ".mlp", ".mlp.0"))]
    for direction, op in (
        ("module", "aten::linear/aten::addmm"), ("backward", "AddmmBackward0/aten::mm")
    ):  # fmt: skip
        assert "/".join([*(f"{direction}:{name}" for name in names), op]) in paths
    assert training.by("op", direction="backward")["calls"].sum() > 0
