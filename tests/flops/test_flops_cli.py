"""FLOPs by the command line: what is read for them, how they are shown, and what is refused."""

from __future__ import annotations

import json

import pytest
from command import assert_misused, bridge, done

from bridge.analyze.tables.request import TableRequest
from bridge.cli.flop_options import CONVENTIONS
from bridge.cli.flop_options import DTYPES as ASKED
from bridge.knowledge.formulas.conventions import NAMES
from bridge.knowledge.hardware import DTYPES, catalogue
from flops.test_flops_made import GPU, MM, OF_MM, gpus, pushed


@pytest.fixture
def mm_on_a100(folder, made):
    pushed(made, 0, 900, "step 1")
    pushed(made, 10, 800, "mm", {"shapes": MM, "dtypes": ["bfloat16"] * 2})
    made.kernel("gemm", 100, 100, 2_000, 3_000)
    gpus(made, GPU)
    return made.written(folder / "r.sqlite")


def rows(*words):
    return json.loads(done("report", *words, "--format", "json"))["rows"]


def test_choices_are_those_there_are():
    assert CONVENTIONS == NAMES
    assert set(ASKED) == set(DTYPES) - {"fp64_tensor"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--columns", "flop"],
        ["--columns", "flops"],
        ["--columns", "all"],
        ["--columns", "calls", "--sort", "flop"],
        ["--columns", "calls,flop", "--filter", "flop>0"],
        ["--by", "op,step", "--columns", "flop"],
    ],
)
def test_details_are_read_where_they_are_needed(mm_on_a100, words):
    [row] = [row for row in rows(mm_on_a100, *words) if row["op"] == "mm"]
    assert row.get("flop", OF_MM) == OF_MM


def test_other_tables_read_no_details():
    assert not TableRequest("op").details
    assert not TableRequest.of("op", "calls,gpu,default").details
    assert TableRequest.of("kernel", "all,flops").details == {"gpu_metrics"}
    assert not TableRequest.of("step", "wall").details
    assert (
        TableRequest.of("op", "counted").details
        == TableRequest.of("step", "mfu").details
        == {"json", "metrics"}
    )


@pytest.mark.slow
def test_shown_with_units(mm_on_a100):
    text = done("report", mm_on_a100, "--columns", "flop,tflop_per_s,peak_share,moved_bytes")
    for shown in ("12.00 MFLOP", "12 TFLOP/s", "3.8 %", "214.8 KiB"):
        assert shown in text
    steps = done("report", mm_on_a100, "--by", "step", "--columns", "flop,mfu,peak_dtype")
    assert "MFU" in steps
    assert done("report", mm_on_a100, "--by", "step", "--columns", "peak_dtype").count("bf16") == 1


@pytest.mark.slow
def test_peaks_as_asked(mm_on_a100, tmp_path):
    def share(*words):
        return rows(mm_on_a100, "--columns", "peak_share", "--filter", "op=mm", *words)[0][
            "peak_share"
        ]

    assert share() == pytest.approx(12 / 312)
    assert share("--peak-tflops", "24") == pytest.approx(0.5)
    own = tmp_path / "own.toml"
    own.write_text(f'[[gpu]]\nnames = ["{GPU}"]\ntflops = {{ bf16 = 48 }}\n')
    assert share("--gpus", own) == pytest.approx(0.25)


@pytest.mark.slow
def test_what_is_wrong_is_said_in_a_line(mm_on_a100, tmp_path, monkeypatch):
    assert_misused(bridge("report", mm_on_a100, "--flops", "mine"), "'mine'", "flopcounter")
    assert_misused(bridge("report", mm_on_a100, "--dtype", "fp4"), "'fp4'", "bf16")
    assert_misused(bridge("report", mm_on_a100, "--peak-tflops", "0"), "--peak-tflops")
    assert_misused(
        bridge("report", mm_on_a100, "--gpus", tmp_path / "no.toml"), "no.toml", "--gpus"
    )
    bad = tmp_path / "bad.toml"
    bad.write_text("[[cpu]]\n")
    monkeypatch.setenv("BRIDGE_GPUS", str(bad))
    catalogue.cache_clear()
    assert_misused(bridge("report", mm_on_a100, "--columns", "peak_share"), "bad.toml", "no entry")
    assert done("report", mm_on_a100)
    catalogue.cache_clear()
