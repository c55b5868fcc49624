"""Kinds, libraries, fused ops and Tensor Cores in tables, against loops over the rows, and the options for them."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import made_reports
import numpy as np
import pytest
from click.testing import CliRunner

import bridge
from bridge.analyze.core import kinds
from bridge.analyze.core.kinds import is_communication
from bridge.cli import main
from bridge.importers import frames
from bridge.join.options import AttributionOptions
from bridge.knowledge import kernels

SOME = (
    "mnist-training",
    "pytorch-2gpu-after",
    "nvfuser",
    "torch-compile-graphs",
    "gaussian-no-nvtx",
)
NAMES = (
    "triton_poi_fused_add_mul_3",
    "triton_per_fused_native_layer_norm_1",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "mine",
)


@pytest.fixture(params=SOME)
def real(request, corpus):
    return bridge.load(corpus / "nsys" / f"{request.param}.sqlite")


def kernel(report, name, at, start, length):
    """Add a kernel that is called the same demangled and mangled, as those in C are."""
    called = dict.fromkeys(("name", "full_name", "mangled"), report.string(name))
    report.launched("kernels", at, 7, start, start + length, **called)


@pytest.fixture
def named_kernels(tmp_path) -> Path:
    """A report of two steps with a kernel of each of `NAMES` in op mm, and one in no op."""
    report = made_reports.Made()
    for step in range(2):
        t = 1_000 * (step + 1)
        report.annotation(
            made_reports.PUSH_POP, t, t + 900, text="aten::mm", thread=made_reports.thread(7)
        )
        for place, name in enumerate(NAMES):
            kernel(report, name, t + 50 * place, t + 100 * place, 10 * (place + 1))
        kernel(report, "nvjet_a", t + 950, t + 960, 7)
    return report.written(tmp_path / "made.sqlite")


def told(joined):
    """Return (activity, what it is, or None of no kernel) of every row, by its demangled name."""
    for row in joined.capture.activities.to_pandas().to_dict("records"):
        is_kernel = row["kind"] == "kernel"
        yield row, kernels.kinds_of([row["full_name"]])[0] if is_kernel else None


@pytest.mark.slow
def test_every_activity_has_its_kind_and_its_library(real):
    joined = real.attributed
    code, names = kinds.kind(joined)
    library, libraries = kinds.library(joined)
    used = kinds.tensor_cores(joined)
    of_communication = is_communication(joined)
    for row, (activity, kernel) in enumerate(told(real)):
        assert names[code[row]] == (kernel.kind if kernel else activity["kind"])
        assert (libraries[library[row]] if library[row] >= 0 else None) == (
            kernel.library if kernel else None
        )
        assert used[row] == (kernel.tensor_cores if kernel else kernels.NO)
        assert of_communication[row] == (kernel is not None and kernel.kind == "communication")


@pytest.mark.slow
def test_by_kind_adds_up_to_all_activities(real):
    time, count = defaultdict(int), defaultdict(int)
    for activity, kernel in told(real):
        kind = kernel.kind if kernel else activity["kind"]
        time[kind] += activity["end"] - activity["start"]
        count[kind] += 1
    table = real.by("kind", columns="count,total").set_index("kind")
    assert table["total_ns"].to_dict() == time
    assert table["count"].to_dict() == count
    assert table["total_ns"].sum() == real.totals["gpu_ns"]


@pytest.mark.slow
def test_figures_of_tensor_cores_by_op_are_what_loops_find(real):
    expected = defaultdict(lambda: dict.fromkeys(("yes", "unknown", "whole", "eligible"), 0))
    ops = real.op_kernels["op"].astype(object)
    ops = ops.where(ops.notna(), "").tolist()
    for op, (activity, kernel) in zip(ops, told(real), strict=True):
        if kernel is None or not op:
            continue
        time, row = activity["end"] - activity["start"], expected[op]
        row["yes"] += time * (kernel.tensor_cores == kernels.YES)
        row["unknown"] += time * (kernel.tensor_cores == kernels.UNKNOWN)
        row["whole"] += time
        row["eligible"] += time * kernels.eligible(op)
    for row in real.by("op", columns="tensor-cores").to_dict("records"):
        own = expected[row["op"]]
        assert row["tensor_core_ns"] == own["yes"]
        assert row["tensor_core_unknown_ns"] == own["unknown"]
        assert row["in_kernels_ns"] == own["whole"]
        assert row["eligible_ns"] == own["eligible"]
        assert row["tensor_core_share"] == pytest.approx(
            own["yes"] / own["whole"] if own["whole"] else 0
        )


def test_fused_and_library_of_a_made_report(named_kernels):
    joined = bridge.load(named_kernels)
    fused = joined.by("fused", columns="count,total").to_dict("records")
    assert fused == [
        {"fused": "native_layer_norm", "count": 2, "total_ns": 40},
        {"fused": "add, mul", "count": 2, "total_ns": 20},
    ]
    library = joined.by("library,kind", columns="count")
    assert sorted(map(tuple, library.to_numpy().tolist())) == [
        ("", "other", 2), ("Inductor", "elementwise", 2), ("Inductor", "norm", 2),
        ("NCCL", "communication", 2), ("nvjet", "gemm", 4),
    ]  # fmt: skip
    kernel = joined.by("kernel", columns="tensor-cores").set_index("kernel")
    assert kernel.loc["mine"].tolist() == [2, 100, 0, 0.0, 100, 100, 100]
    assert kernel.loc[NAMES[2]].tolist() == [2, 60, 60, 1.0, 60, 0, 60]
    assert kernel.loc["nvjet_a"].tolist() == [2, 14, 14, 1.0, 0, 0, 14]


@pytest.mark.slow
def test_of_some_steps_alone(named_kernels):
    found = bridge.load(named_kernels).within(first_ns=0, last_ns=900).by("kind", columns="count")
    assert (
        found["count"].sum() < bridge.load(named_kernels).by("kind", columns="count")["count"].sum()
    )


def test_names_that_are_not_recorded_are_no_kernel_s_library():
    """A kernel without any name is `other`; one with the short name alone is told by that."""
    names = frames.Names(np.array([-1, -1, 0]), ["nvjet_full"])
    short = frames.Names(np.array([0, -1, 0]), ["ncclKernel_AllReduce"])

    class Bare:
        kernel_rules = None
        results: ClassVar[dict] = {}

        class capture:  # noqa: N801
            activities = frames.Activities(
                kind=frames.Names(np.zeros(3, np.int64), frames.ACTIVITY_KINDS),
                full_name=names,
                name=short,
            )

    code, listed = kinds.kind(Bare)
    assert [listed[one] for one in code] == ["communication", "other", "gemm"]


# -- options

OWN = "[[library]]\nname = 'ours'\nrules = [{ match = '^mine$', kind = 'fft' }]\n"


def shown(*words, env=None):
    done = CliRunner().invoke(main, ["report", *map(str, words)], env=env)
    return done.exit_code, done.stdout + done.stderr


@pytest.mark.slow
def test_rules_of_the_user_by_option_and_by_environment(named_kernels, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    asked = (named_kernels, "--by", "kind", "--format", "json")
    for words, env in (
        ((*asked, "--kernel-rules", own), None),
        (asked, {"BRIDGE_KERNEL_RULES": str(own)}),
    ):
        code, text = shown(*words, env=env)
        assert code == 0
        assert "fft" in {row["kind"] for row in json.loads(text)["rows"]}
    assert "other" in shown(*asked)[1]
    rules = kernels.rules(OWN)
    for given in (own, str(own), rules):
        assert "fft" in set(bridge.load(named_kernels, kernel_rules=given).by("kind")["kind"])
    assert AttributionOptions(kernel_rules=rules).kernel_rules is rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        (
            "[[library]]\nname = 'a'\nrules = [{ match = '(', kind = 'fft' }]",
            "is no regular expression",
        ),
        ("", "no [[library]]"),
        (b"\xff", "invalid start byte"),
    ],
)
def test_a_bad_file_is_one_line(named_kernels, tmp_path, text, said):
    own = tmp_path / "own.toml"
    if text is not None:
        own.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, output = shown(named_kernels, "--by", "kind", "--kernel-rules", own)
    assert code == 2
    assert said in output.splitlines()[-1]
    assert "Traceback" not in output


@pytest.mark.slow
def test_the_wheel_holds_the_data(tmp_path):
    hatchling = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (wheel,) = hatchling.WheelBuilder(str(Path(bridge.__file__).parents[1])).build(directory=str(tmp_path), versions=["standard"])  # fmt: skip
    assert {"bridge/knowledge/kernels/rules.toml", "bridge/knowledge/kernels/ops.txt"} <= set(
        zipfile.ZipFile(wheel).namelist()
    )
