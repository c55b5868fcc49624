"""Columns of FLOPs on reports whose truth is known by hand."""

from __future__ import annotations

import json

import pytest
from made_reports import PUSH_POP, thread

from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.cost import flops
from bridge.analyze.cost.flops import Costs
from bridge.knowledge.formulas.conventions import NAMES
from bridge.knowledge.hardware import DTYPES
from bridge.report import load

ALIKE = ("flop", "flop_once", "counted_ns", "uncounted")
MM = [[100, 200], [200, 300]]
OF_MM = 2 * 100 * 200 * 300
GPU = "NVIDIA A100-SXM4-80GB"
FP16 = ["float16", "float16"]
A100 = Costs(peak_tflops=100, peak_gbs=1_000)


def text(op, sizes):
    return f"{op}, seq = 1, op_id = 2, sizes = {sizes}"


def pushed(made, start, end, name, details=None, pid=100, **more):
    said = {} if details is None else {"json": json.dumps(details)}
    made.annotation(PUSH_POP, start, end, text=name, thread=thread(pid), **said, **more)


def table(made, tmp_path, costs=None, **how):
    path = tmp_path / "made.sqlite"
    path.unlink(missing_ok=True)
    joined = load(made.written(path))
    return joined.by("op", columns="flops", costs=costs or Costs(), **how).set_index("op")


def test_the_columns_are_those_that_views_name():
    assert sorted(COLUMNS["@costs"].names) == sorted([*flops.FLOPS, *flops.BYTES, *flops.INTENSITY, *flops.PEAK, *flops.FORMULA])  # fmt: skip


@pytest.mark.slow
def test_what_nests_counts_once(made, tmp_path):
    """aten::linear computes what the aten::addmm in it does."""
    sizes = "[[100, 200], [300, 200], [300]]"
    pushed(made, 0, 1_000, "block")
    pushed(made, 100, 500, text("aten::linear", sizes))
    pushed(made, 200, 400, text("aten::addmm", "[[300], [100, 200], [200, 300], [], []]"))
    made.kernel("gemm", 300, 100, 2_000, 2_600)
    found = table(made, tmp_path)
    assert found["flop"].to_dict() == dict.fromkeys(("block", "aten::linear", "aten::addmm"), OF_MM)
    assert found["flop_once"].to_dict() == {"block": 0, "aten::linear": OF_MM, "aten::addmm": 0}
    assert found["counted_ns"].tolist() == [600] * 3
    assert found["tflop_per_s"].tolist() == pytest.approx([OF_MM / 600e-9 / 1e12] * 3)
    assert found["formula"].to_dict()["block"] == "of its ops"
    assert found["uncounted"].tolist() == [0] * 3


@pytest.mark.slow
def test_unknown_is_never_nothing(made, tmp_path):
    """An op with work, and in it only ops that compute nothing."""
    pushed(made, 0, 900, "mine::op")
    pushed(made, 100, 200, text("aten::empty", "[[], []]"))
    made.kernel("k", 300, 100, 2_000, 2_100)
    found = table(made, tmp_path)
    assert found.loc["mine::op", ["flop", "tflop_per_s", "uncounted"]].tolist() == [-1, -1, 1]
    assert found.loc["mine::op", "formula"] == "no formula"
    assert found.loc["aten::empty", ["flop", "uncounted"]].tolist() == [0, 0]


@pytest.mark.slow
def test_rates_are_of_the_calls_that_are_known(made, tmp_path):
    """A call without shapes makes the others no slower."""
    pushed(made, 0, 5_000, "block")
    pushed(made, 100, 200, text("aten::mm", MM))
    made.kernel("gemm", 150, 100, 6_000, 6_100)
    pushed(made, 300, 400, "aten::mm")
    made.kernel("gemm", 350, 100, 7_000, 7_900)
    found = table(made, tmp_path)
    for op in ("aten::mm", "block"):
        row = found.loc[op]
        assert row[["flop", "counted_ns", "uncounted", "gpu_total_ns"]].tolist() == [OF_MM, 100, 1, 1_000]  # fmt: skip
        assert row["tflop_per_s"] == pytest.approx(OF_MM / 100e-9 / 1e12)
    assert found.loc["aten::mm", "formula"] == "2·M·N·K, too little recorded"


@pytest.mark.slow
def test_recorded_figures_come_first(made, tmp_path):
    details = {"flops": 5_000, "bytes": 70, "shapes": MM, "dtypes": FP16}
    pushed(made, 0, 900, "mm", details)
    made.kernel("gemm", 100, 100, 2_000, 2_100)
    found = table(made, tmp_path, A100).loc["mm"]
    assert found[["flop", "moved_bytes", "formula"]].tolist() == [5_000, 70, "recorded"]
    assert found["tflop_per_s"] == pytest.approx(0.05)
    assert found["gb_per_s"] == pytest.approx(0.7)
    assert found["intensity"] == pytest.approx(5_000 / 70)
    assert found["peak_share"] == pytest.approx(0.05 / 100)
    assert found["bandwidth_share"] == pytest.approx(0.7 / 1_000)
    assert (
        table(made, tmp_path, Costs("torch")).loc["mm", "flop"] == -1
    )  # only `aten::mm` is theirs


@pytest.mark.slow
def test_slices_of_a_call_count_once(made, tmp_path):
    call = (0x4E42 << 48) + 1
    for start in (0, 1_000):
        details = {"flops": 5_000, "bytes": 70}
        pushed(made, start, start + 500, "mm", details, payload=call)
        made.kernel("gemm", start + 100, 100, start + 5_000, start + 5_100)
    found = table(made, tmp_path).loc["mm"]
    assert found[["calls", *ALIKE]].tolist() == [1, 5_000, 5_000, 200, 0]


@pytest.mark.slow
def test_recursion_counts_once(made, tmp_path):
    pushed(made, 0, 900, "f")
    pushed(made, 100, 500, "f")
    pushed(made, 200, 400, text("aten::mm", MM))
    made.kernel("gemm", 300, 100, 2_000, 2_100)
    assert table(made, tmp_path).loc["f", ["calls", "flop", "counted_ns"]].tolist() == [2, OF_MM, 100]  # fmt: skip


@pytest.mark.slow
def test_without_work_every_call_that_says_nothing_is_uncounted(made, tmp_path):
    pushed(made, 0, 900, "outer")
    pushed(made, 100, 200, "inner")
    pushed(made, 300, 400, text("aten::mm", MM))
    found = table(made, tmp_path)
    assert found.loc["outer", ["flop", "tflop_per_s", "uncounted"]].tolist() == [OF_MM, -1, 1]
    assert found.loc["inner", ["flop", "uncounted"]].tolist() == [-1, 1]


def gpus(made, *names):
    """Say that the process has GPUs of these names, and in which order."""
    made.tables["devices"].clear()
    for n, name in enumerate(names):
        made.tables["devices"].append({"gpu": n, "device": n, "pid": 100})
        made.tables["gpus"].append({"gpu": n, "device": n, "name": name})


@pytest.mark.slow
def test_the_peak_is_that_of_the_gpu_and_the_dtype(made, tmp_path):
    details = {"shapes": MM, "dtypes": FP16}
    pushed(made, 0, 900, "mm", details)
    made.kernel("gemm", 100, 100, 2_000, 3_000)
    gpus(made, GPU)
    reached = OF_MM / 1_000e-9 / 1e12
    found = table(made, tmp_path).loc["mm"]
    assert found["peak_share"] == pytest.approx(reached / 312)
    moved = 2 * (100 * 200 + 200 * 300 + 100 * 300)
    assert found["moved_bytes"] == moved
    assert found["bandwidth_share"] == pytest.approx(moved / 1_000 / 2_039)


@pytest.mark.slow
@pytest.mark.parametrize("names", [(GPU, "Tesla T4"), ("Tesla T4", GPU)])
def test_gpus_of_one_process_that_differ_have_no_peak_in_common(made, tmp_path, names):
    pushed(made, 0, 900, "mm", {"shapes": MM, "dtypes": FP16})
    for device in range(2):
        made.kernel("gemm", 100 + device, 100, 2_000, 3_000)
        made.tables["kernels"][-1]["device"] = device
    gpus(made, *names)
    found = table(made, tmp_path).loc["mm"]
    assert found["flop"] == OF_MM
    assert (found["peak_share"], found["bandwidth_share"]) == (-1, -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtypes", "asked", "peak"),
    [
        (["float32"] * 2, "", 19.5),
        (["float32"] * 2, "tf32", 156),
        (["float32"] * 2, "bf16", 19.5),  # what calls say counts
        (["double"] * 2, "", 19.5),  # by Tensor Cores
        (["c10::Half"] * 2, "", 312),
        (None, "bf16", 312),
        (None, "", None),
        (["float32", "float16"], "", None),
    ],
)
def test_dtypes_are_as_said_else_as_asked(made, tmp_path, dtypes, asked, peak):
    details = {"shapes": MM} | ({"dtypes": dtypes} if dtypes else {})
    pushed(made, 0, 900, "mm", details)
    made.kernel("gemm", 100, 100, 2_000, 3_000)
    gpus(made, GPU)
    share = table(made, tmp_path, Costs(dtype=asked)).loc["mm", "peak_share"]
    assert share == (-1 if peak is None else pytest.approx(OF_MM / 1e-6 / 1e12 / peak))


@pytest.mark.slow
def test_steps_say_their_utilisation_and_against_what(made, tmp_path):
    """Two GPUs of one process, a step of 10 µs: what is launched in it counts, on whatever thread."""
    for n in (1, 2):
        start = 20_000 * n
        pushed(made, start, start + 10_000, f"step {n}")
        details = {"shapes": MM, "dtypes": FP16}
        pushed(made, start + 100, start + 200, "mm", details)
        pushed(made, start + 110, start + 190, text("aten::mm", MM))  # the same once more
        made.kernel("gemm", start + 150, 100, start + 1_000, start + 2_000)
        made.kernel("other", start + 300, 100, start + 1_000, start + 2_000)
        made.tables["kernels"][-1]["device"] = 1
    gpus(made, GPU, GPU)
    joined = load(made.written(tmp_path / "steps.sqlite"))
    found = joined.by("step", columns="flops")
    assert found["flop"].tolist() == [OF_MM, OF_MM]
    assert found["uncounted"].tolist() == [1, 1]  # the step's own kernel
    assert found["peak_tflops"].tolist() == [624, 624]
    assert found["peak_dtype"].tolist() == ["fp16", "fp16"]
    rate = OF_MM / (found["wall_ns"] * 1e-9) / 1e12
    assert found["tflop_per_s"].tolist() == pytest.approx(rate.tolist())
    assert found["mfu"].tolist() == pytest.approx((rate / 624).tolist())
    assert not {"flop", "mfu"} & set(joined.by("step").columns)
    own = joined.by("step", columns="mfu,peak_tflops", costs=Costs(peak_tflops=50, dtype="fp16"))
    assert own["peak_tflops"].tolist() == [100, 100]


@pytest.mark.slow
def test_forward_alone(made, tmp_path):
    pushed(made, 0, 900, text("aten::mm", MM))
    pushed(made, 1_000, 1_900, "MmBackward0")
    pushed(made, 1_100, 1_500, text("aten::mm", MM))
    made.kernel("gemm", 100, 100, 2_000, 2_100)
    made.kernel("gemm", 1_200, 100, 3_000, 3_300)
    both, forward, backward = (
        table(made, tmp_path, direction=way)["flop"].to_dict()
        for way in ("both", "forward", "backward")
    )
    assert both == {"aten::mm": 2 * OF_MM, "MmBackward0": OF_MM}
    assert forward == {"aten::mm": OF_MM}
    assert backward == {"aten::mm": OF_MM, "MmBackward0": OF_MM}


@pytest.mark.slow
@pytest.mark.parametrize("convention", NAMES)
def test_every_convention_makes_a_table(made, tmp_path, convention):
    pushed(made, 0, 900, text("aten::mm", MM))
    made.kernel("gemm", 100, 100, 2_000, 2_100)
    half = 2 if convention == "module_stats" else 1
    assert table(made, tmp_path, Costs(convention)).loc["aten::mm", "flop"] == OF_MM / half


def test_wrong_words_are_refused():
    for wrong in ({"convention": "mine"}, {"dtype": "fp4"}):
        with pytest.raises(ValueError, match=r"no (convention|dtype) '(mine|fp4)': one of"):
            Costs(**wrong)
    assert Costs(dtype=DTYPES[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [
        "[[10000000000, 10000000000], [10000000000, 10000000000]]",
        f"[[{'9' * 400}, 2], [2, 3]]",
        "[" * 25_000 + "]" * 25_000,
    ],
    ids=["large", "huge", "deep"],
)
def test_sizes_that_no_call_can_have_are_not_known(sizes, made, tmp_path):
    pushed(made, 1_000, 2_000, text("aten::mm", sizes))
    made.kernel("gemm", 1_100, 100, 1_200, 1_300)
    row = table(made, tmp_path, Costs(dtype="fp32")).loc["aten::mm"]
    assert row["moved_bytes"] == row["flop"] == row["tflop_per_s"] == -1
