"""Logs of oneDNN: real ones of five layouts, hostile ones, and what is printed of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge, done
from hypothesis import given
from hypothesis import strategies as st
from witness.onednn import sums

from bridge.analyze.tables import onednn
from bridge.analyze.tables import onednn as primitives
from bridge.importers.onednn import load

DATA = Path(__file__).parent / "data"
LOGS = sorted(DATA.glob("*.log"))
LAYOUTS = {  # which of oneDNN's fields a version has
    "mkldnn-0.19.log": {"engine": "", "attributes": ""},
    "mkldnn-1.0.log": {"engine": "cpu", "attributes": ""},
    "dnnl-1.3.log": {"engine": "cpu", "attributes": ""},
    "onednn-3.12.log": {"engine": "cpu", "attributes": "attr-scratchpad:user"},
}
HEAD = (
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,"
    "memory_descriptors,attributes,auxiliary,problem_desc,exec_time\n"
)
LINE = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src:f32,,,2x3:3x4,0.5\n"


@pytest.mark.slow
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_real_logs_add_up_as_a_plain_loop_adds_them(path: Path) -> None:
    log = load(path)
    table = primitives.by_dimensions(log, ("primitive", "impl"), "primitive").to_pandas()
    expected = sums(path)
    assert not log.unread
    for kind, columns in (("exec", ["calls", "total_ns"]), ("made", ["creations", "creation_ns"])):
        found = {
            (kind, row[0], row[1]): (row[2], row[3])
            for row in table[["primitive", "impl", *columns]].itertuples(index=False)
            if row[2]
        }
        assert found == {key: value for key, value in expected.items() if key[0] == kind}
    assert any(key[0] == "exec" for key in expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_fields_are_where_the_version_has_them(name: str) -> None:
    events = load(DATA / name).events.to_pandas()
    convolution = events[events["primitive"] == "convolution"].iloc[0]
    assert {field: convolution[field] for field in LAYOUTS[name]} == LAYOUTS[name]
    assert convolution["auxiliary"] == "alg:convolution_direct"
    assert convolution["problem_desc"].startswith("mb")
    assert convolution["prop_kind"].startswith("forward")


def test_partitions_of_graphs_stand_apart() -> None:
    log = load(DATA / "onednn-3.12-graph.log")
    table = primitives.by_dimensions(log, ("primitive",), "graph")
    assert table["primitive"].tolist() == ["convolution_post_ops"]
    assert table["calls"].tolist() == [6]
    assert table["creations"].tolist() == [2]
    assert (
        "convolution_post_ops"
        not in primitives.by_dimensions(log, ("primitive",), "primitive")["primitive"]
    )
    assert "6 executions of graphs" in done("onednn", DATA / "onednn-3.12-graph.log")


def test_checks_and_dispatching_take_no_time() -> None:
    log = load(DATA / "onednn-3.12-all.log")
    assert set(log.events["operation"]) == {"exec", "create:cache_miss"}


def test_output_of_the_program_may_stand_in_the_same_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(f"loss 1,2 {HEAD}epoch 3, {LINE}noise\n", encoding="utf-8")
    events = load(path).events
    assert events["primitive"].tolist() == ["matmul"]
    assert events["duration_ns"].tolist() == [500_000]


def test_another_order_of_fields_is_read_by_the_template(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "onednn_verbose,v2,primitive,info,template:operation,primitive,engine,exec_time\n"
        "onednn_verbose,v2,primitive,exec,softmax,gpu,0.25\n",
        encoding="utf-8",
    )
    # The time is last in every version; a template that says otherwise is not one to trust.
    row = load(path).events.to_pandas().iloc[0]
    assert (row["primitive"], row["engine"], row["duration_ns"]) == ("softmax", "gpu", 250_000)


@pytest.mark.slow
def test_logs_of_several_versions_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(log.read_text() for log in LOGS), encoding="utf-8")
    together = load(path)
    assert not together.unread
    assert len(together.events) == sum(len(load(log).events) for log in LOGS)
    assert len(load(*LOGS).events) == len(together.events)


@pytest.mark.slow
def test_blocks_that_end_anywhere_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    by = ("primitive", "problem")
    whole = primitives.by_dimensions(load(*LOGS), by, "primitive").to_pandas()
    monkeypatch.setattr("bridge.importers.onednn.BLOCK", 1000)
    assert primitives.by_dimensions(load(*LOGS), by, "primitive").to_pandas().equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("0.5", "0.5x"),
        LINE.replace("0.5", "nan"),
        LINE.replace("0.5", "-1"),
        LINE.replace("0.5", "inf"),
        LINE.replace("0.5", "1e300"),
        LINE.replace(",,,", ",a,b,c,d,e,"),
    ],
)
def test_damaged_lines_are_said_and_the_others_counted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(HEAD + LINE + line, encoding="utf-8")
    result = bridge("onednn", path)
    assert result.exit_code == 0
    assert "warning: 1 line could not be read, such as 'cpu,matmul" in result.stderr
    assert "1 execution, 500.000 µs" in result.stdout


@pytest.mark.slow
@given(st.binary(max_size=300), st.integers(0, 300))
def test_damaged_files_never_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "x.log"
    text = (HEAD + LINE * 3).encode()
    path.write_bytes(text[:at] + noise + text[at:] + LINE.encode())
    result = bridge("onednn", path, "--by", "primitive,problem")
    assert result.exit_code in {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("primitive", "problem", "flops"),
    [
        ("convolution", "mb2_ic3oc8_ih16oh14kh3sh1dh0ph0_iw16ow14kw3sw1dw0pw0", 169_344),
        ("convolution", "g2mb4_ic16oc32_ih16oh14kh3sh1dh0ph0_iw16ow14kw3sw1dw0pw0", 3_612_672),
        ("convolution", "mb1_ic1oc1_id4od2kd3_ih4oh2kh3_iw4ow2kw3", 432),
        ("deconvolution", "mb1_ic2oc3_ih4oh8kh2_iw4ow8kw2", 768),
        ("inner_product", "mb2ic392oc10", 15_680),
        ("inner_product", "mb2ic8ih7iw7oc10", 15_680),
        ("matmul", "4x768:768x64", 393_216),
        ("matmul", "5x1x2x3:1x7x3x4", 1_680),
        ("matmul", "b2m3n4k5", 240),
        ("matmul", "128x512:512x256:128x256", 33_554_432),
        ("matmul", "*x3:3x4", None),
        ("matmul", "2x3:4x5", None),
        ("reorder", "2x3x4", None),
        ("convolution", "mb2", None),
        ("convolution", "mb99999999999999999999_ic3oc8", None),
        ("matmul", "9" * 5000 + "x3:3x4", None),
    ],
)
def test_flops_of_a_problem(primitive: str, problem: str, flops: int | None) -> None:
    assert onednn.problem_flops(primitive, problem) == flops


def test_convolutions_count_as_a_loop_over_their_weights_counts() -> None:
    expected = 0
    for _image in range(4):
        for _position in range(14 * 14):
            for _output in range(32):
                expected += 2 * (16 // 2) * 3 * 3
    problem = "g2mb4_ic16oc32_ih16oh14kh3sh1dh0ph0_iw16ow14kw3sw1dw0pw0"
    assert onednn.problem_flops("convolution", problem) == expected


def test_flops_reached_are_of_rows_that_know_all_theirs() -> None:
    table = primitives.by_dimensions(load(DATA / "onednn-3.12.log"), ("primitive",), "primitive")
    rows = {row["primitive"]: row for row in table.records()}
    assert rows["reorder"]["flop"] == rows["reorder"]["gflop_per_s"] == -1
    convolution = rows["convolution"]
    assert convolution["flop"] > 0
    reached = convolution["flop"] / convolution["total_ns"]
    assert convolution["gflop_per_s"] == pytest.approx(reached)


@pytest.mark.slow
def test_it_prints_tables_and_documents(tmp_path: Path) -> None:
    path = DATA / "onednn-3.12.log"
    rows = json.loads(done("onednn", path, "--by", "primitive,impl", "--format", "json"))
    assert rows["format"] == "bridge.onednn/1"
    assert rows["library"][0].startswith("oneDNN v3.12.0")
    assert rows["rows"][0]["total_ns"] >= rows["rows"][-1]["total_ns"]
    assert done("onednn", path, "--format", "csv").startswith("primitive,calls,total_ns,share")
    assert "| reorder |" in done("onednn", path, "--format", "md")
    output = tmp_path / "rows.csv"
    bridge("onednn", path, "-o", output, "--top", "2")
    assert len(output.read_text().splitlines()) == 3


def test_it_refuses_what_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("nothing here\n", encoding="utf-8")
    assert_refused(bridge("onednn", path), "x.log", "ONEDNN_VERBOSE=1")
    assert_refused(bridge("onednn", tmp_path / "none.log"), "none.log")
    path.write_text(HEAD, encoding="utf-8")
    assert_refused(bridge("onednn", path), "x.log", "ran nothing")
    assert_misused(bridge("onednn", LOGS[0], "--by", "shape"), "shape", "problem")
    assert_misused(bridge("onednn"), "LOGS")


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "onednn.md").read_text(encoding="utf-8")
    command, shown = re.findall(r"bridge (onednn train\.log .*)\n```|\n```\n(prim[^`]*)```", page)
    words = command[0].replace("train.log", str(DATA / "onednn-3.12.log")).split()
    assert done(*words) == shown[1]


def test_what_was_made_and_never_ran_took_no_time(tmp_path: Path) -> None:
    made = LINE.replace(",exec,", ",create:cache_miss,").replace("2x3:3x4,0.5", "5x6:6x7,0.25")
    (tmp_path / "x.log").write_text(HEAD + LINE + made, encoding="utf-8")
    table = primitives.by_dimensions(load(tmp_path / "x.log"), ("problem",), "primitive")
    ran, never = table.records()
    assert (ran["problem"], never["problem"]) == ("2x3:3x4", "5x6:6x7")
    figures = ("calls", "total_ns", "min_ns", "max_ns", "creations", "creation_ns")
    assert [ran[name] for name in figures] == [1, 500_000, 500_000, 500_000, 0, 0]
    assert [never[name] for name in figures] == [0, 0, 0, 0, 1, 250_000]
