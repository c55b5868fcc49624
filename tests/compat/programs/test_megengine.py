"""Programs of MegEngine's guide with their import changed: files, columns and numbers as documented."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from compat.old_programs import environment
from compat.paired import pairs, read

import bridge
from bridge.compat.megengine import profile_analyze
from bridge.compat.megengine.profiler import _write_all
from bridge.compat.megengine.tools import svg_viewer
from bridge.compat.megengine.tools.profiler import main as launch

PROGRAMS = Path(__file__).parent / "megengine"
CHROME = "chrome_timeline.json"
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(name: str) -> None:
    """Run a program in this process, with what it does at its end."""
    pytest.importorskip("torch")
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    _write_all()


def own(folder: str, format_: str = CHROME) -> Path:
    return Path(folder) / f"{os.getpid()}.{format_}"


def names(content: dict) -> list[str]:
    return [name for name, _ in pairs(content["traceEvents"])]


@slow
def test_a_decorated_step(capsys):
    run("decorator")
    assert capsys.readouterr().out.startswith("loss ")
    found = names(read(own("profile")))
    assert found.count("Optimizer.step#SGD.step") == 1  # of the last call alone
    assert {"aten::addmm", "aten::relu", "aten::mm"} <= set(found)


@slow
def test_a_block_with_everything(capsys):
    run("block")
    assert (
        capsys.readouterr().out.strip()
        == f"block/{os.getpid()}.{{chrome_timeline.json,memory_flow.svg}}"
    )
    events = read(own("block"))["traceEvents"]
    found = [e["name"] for e in events if e["ph"] == "B"]
    assert [found.count(n) for n in ("forward", "backward", "module:Sequential.0")] == [3, 3, 3]
    assert {
        "functional:max_pool2d",
        "functional:conv2d",
        "tensor_method:mean",
        "tensor_method:backward",
    } <= set(found)
    assert [e["name"] for e in events if e["ph"] == "i"] == ["StopStep"] * 3
    curves = {e["name"] for e in events if e["ph"] == "C"}
    assert curves == {"nr_alive_tensor", "cpu0_alloc_mem"}
    alive = [e["args"]["value"] for e in events if e["name"] == "nr_alive_tensor"]
    assert min(alive) == 1
    assert all(abs(a - b) == 1 for a, b in zip(alive[1:], alive, strict=False))
    convolution = next(e for e in events if e["name"] == "aten::convolution" and e["ph"] == "B")
    assert convolution["args"]["shapes"][:2] == [[2, 3, 16, 16], [8, 3, 3, 3]]
    assert re.fullmatch(r'File ".*block.py", line \d+, in <module>', convolution["stack"][0])
    drawing = own("block", "memory_flow.svg").read_text()
    assert "tensors, by the clock of the host" in drawing
    # The output of each convolution: 2 * 8 * 16 * 16 floats, the largest tensors.
    assert len(re.findall(r"<title>aten::convolution: 16.0 KiB at 0x", drawing)) == 3


@slow
def test_by_hand_and_at_the_end_of_the_program():
    run("by_hand")
    events = read(own("by_hand"))["traceEvents"]
    assert names({"traceEvents": events}) == ["aten::ones", "aten::ones", "aten::mm"]
    assert not [e for e in events if e["ph"] == "C"]  # no tensors are watched


@slow
def test_functions_below_the_profiler():
    run("native")
    content = read(Path("native.json"))
    assert names(content) == ["aten::ones", "aten::exp", "epoch"]
    assert "StopStep" in [e["name"] for e in content["traceEvents"]]
    assert Path("native.svg").read_text().startswith("<svg")


# -- profile_analyze, with the commands of the guide


HEADINGS = [
    "device self time", "cumulative", "operator info", "computation", "FLOPS", "memory", "bandwidth",
    "in_shapes", "out_shapes",
]  # fmt: skip


def analyze(*words: str) -> str:
    done = CliRunner().invoke(
        profile_analyze.main, [*words], env={"COLUMNS": "400"}, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


def table(text: str) -> list[dict[str, str]]:
    """Read the table: a row per operator, the lines of a cell joined by spaces."""
    lines = [line for line in text.splitlines() if line.startswith(("|", "+"))]
    assert [cell.strip() for cell in lines[1].strip("|").split("|")] == HEADINGS
    rows, parts = [], []
    for line in lines[3:]:
        if line.startswith(("|-", "+-")):
            cells = zip(*parts, strict=True)
            rows.append(dict(zip(HEADINGS, (" ".join(c).strip() for c in cells), strict=True)))
            parts = []
        else:
            parts.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@slow
def test_a_static_graph_and_the_commands_of_the_guide():
    run("static_graph")
    profile = json.loads(Path("profiling.json").read_text())
    assert set(profile) == {"graph_exec", "profiler"}
    assert set(profile["profiler"]) == {"device", "host", "opr_footprint", "opr_internal_pf"}
    rows = table(analyze("profiling.json", "-t", "5"))
    assert len(rows) == 5
    assert [row["device self time"].split()[0] for row in rows] == ["#0", "#1", "#2", "#3", "#4"]
    times = [float(row["device self time"].split()[1]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert float(rows[4]["cumulative"]) == pytest.approx(sum(times), rel=0.02)
    types = table(
        analyze("profiling.json", "-t", "5", "--aggregate-by", "type", "--aggregate", "sum")
    )
    assert len({row["operator info"].split()[0] for row in types}) == 5
    (convolution,) = table(analyze("profiling.json", "-t", "5", "--order-by", "memory", "--min-time", "1e-9", "--type", "ConvolutionForward"))  # fmt: skip
    # 2 * outputs (4*8*8*8) * kernel (3*3) * channels (3) FLOPs, and 4 bytes per element of in- and outputs.
    assert convolution["computation"] == f"{2 * 2048 * 27 / 1000:.2f}KFLO"
    assert convolution["memory"] == f"{4 * (768 + 216 + 8 + 2048) / 1024:.2f}KiB"
    assert convolution["out_shapes"] == "[[4, 8, 8, 8]]"
    summary = analyze("profiling.json", "--print-only", "summary", "--copy-time")
    assert re.search(r"^total device time: \S+\ntotal host time: \S+\ncopy time: tot=", summary)
    for order in (
        "computation",
        "+FLOPS",
        "bandwidth",
        "+memory",
    ):  # fails in MegEngine if an operator has no formula
        assert len(table(analyze("profiling.json", "--order-by", order, "-t", "99"))) > 10
    assert analyze("profiling.json", "--dump-only-opr").count("\n") == 3
    wiki = analyze("profiling.json", "--confluence", "--print-only", "device", "-t", "1")
    assert wiki.startswith("||device self time||")
    assert "||time bar||MFLOPS-bar||bandwidth bar||" in wiki
    assert table(analyze("profiling.json", "--opr-name", "aten::addmm", "--input-dtype", "float32", "--top-end-key", "kern"))  # fmt: skip


@slow
def test_the_timeline_of_the_profiler_is_analyzed_too():
    """MegEngine's own profile_analyze cannot read the files of its Profiler."""
    run("decorator")
    rows = table(
        analyze(str(own("profile")), "-t", "99", "--order-by", "memory", "--print-only", "device")
    )
    products = [row for row in rows if row["operator info"].startswith("aten::addmm")]
    # 8x16 by 16x32, and 8x32 by 32x4: two operations per multiply-add.
    assert {row["computation"] for row in products} >= {"8.19KFLO", "2.05KFLO"}
    assert "the device is the CPU" in analyze(str(own("profile")))


@slow
def test_every_command_reads_the_files_of_the_profiler():
    run("by_hand")
    report = bridge.load(own("by_hand"))
    assert report.capture.facts[0].product == "MegEngine profiler"
    assert dict(zip(report.by("op")["op"], report.by("op")["calls"], strict=True)) == {
        "aten::ones": 2,
        "aten::mm": 1,
    }


# -- module_stats


@slow
def test_statistics_of_a_model(capsys):
    run("stats")
    printed = capsys.readouterr().out
    for part in ("params", "flops", "activations", "receptive_field", "7x7", "11x11", "19x19"):
        assert part in printed
    convolutions = 8 * 16 * 16 * (3 * 49 + 1) + 16 * 8 * 8 * (
        8 * 9 + 1
    )  # with a bias, one per multiply-add
    others = 7 * 8 * 16 * 16 + 8 * 8 * 8 * 9 + 10 * 1024 + 10  # norm, pooling, linear
    assert f"flops {convolutions + others} " in printed
    assert printed.splitlines()[-1].startswith(
        f"params {3 * 8 * 49 + 8 + 16 + 8 * 16 * 9 + 16 + 10 * 1024 + 10} "
    )


# -- The launcher, and the viewer of drawings


@slow
@pytest.mark.parametrize("status", [0, 7])
def test_the_launcher_exits_as_the_program_does(status, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = sys.modules["__main__"]
    Path("out").mkdir()
    (Path("out") / f"1.{CHROME}").write_text("{}")
    words = ["-o", "out", "-f", CHROME, "-f", "memory_flow.svg", "--clean", "--merge_trace_events", str(PROGRAMS / "launched.py"), str(status), "--more"]  # fmt: skip
    try:
        with pytest.raises(SystemExit) as ended:
            launch(words)
    finally:
        sys.modules["__main__"] = before
    assert ended.value.code == status
    assert capsys.readouterr().out == f"arguments ['{status}', '--more']\n"
    files = {path.name for path in Path("out").iterdir()}
    assert files == {own("out").name, own("out", "memory_flow.svg").name, f"merge.{CHROME}"}
    assert names(read(own("out"))) == ["aten::ones", "aten::relu", "aten::sum"]


def test_a_missing_script_is_one_line_and_a_status(capsys):
    with pytest.raises(SystemExit) as ended:
        launch(["missing.py"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "can't open file" in line
    assert not Path("profile").exists()
    with pytest.raises(SystemExit):
        launch([])


@slow
def test_two_processes_become_one_timeline():
    done = subprocess.run([sys.executable, PROGRAMS / "merged.py"], env=environment(), check=False, capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    merged = read(Path("merged") / f"merge.{CHROME}")
    assert sorted(e["name"] for e in merged["traceEvents"] if e["ph"] == "B") == ["child", "parent"]
    assert len({e["pid"] for e in merged["traceEvents"]}) == 2


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "1 & 2.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("no")
    with svg_viewer.server("localhost", 0, tmp_path) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://localhost:{serving.server_address[1]}/"
        serving.shutdown()
        thread.join()


@slow
def test_the_viewer_shows_drawings_alone(viewer: str):
    with urlopen(viewer) as answer:
        assert b'<a href="/1%20%26%202.svg">1 &amp; 2.svg</a>' in answer.read()
    with urlopen(f"{viewer}1%20%26%202.svg") as answer:
        assert answer.headers["Content-Type"] == "image/svg+xml"
        assert answer.read() == b"<svg/>"
    for name in ("secret.txt", "../etc/passwd", "%2e%2e/x.svg"):
        with pytest.raises(HTTPError):
            urlopen(viewer + name)
