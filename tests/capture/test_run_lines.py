"""The command line for each version, from recorded help texts."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import Result
from command import assert_misused, assert_refused, bridge
from pretended import VERSIONS, answers, install

from bridge.annotate.recording.lines import encoded
from bridge.capture import tool
from bridge.capture.plan import module_cost

OPTIONS = {
    "latency": ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"],
    "memory": [
        "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node",
        "--cuda-memory-usage=true",
    ],
    "full": [
        "--trace=cuda,nvtx,osrt,cudnn,cublas", "--sample=process-tree", "--cpuctxsw=process-tree",
        "--cuda-graph-trace=node", "--cuda-memory-usage=true", "--cudabacktrace=all",
    ],
}  # fmt: skip
STEPS = "wait=1,warmup=1,active=3"


@pytest.fixture
def tools(folder, tmp_path, monkeypatch):
    """Install pretended profilers of these versions, and be where a script is."""
    for name in ("BRIDGE_SIDECAR", "BRIDGE_CAPTURE", "BRIDGE_SCHEDULE"):
        monkeypatch.delenv(name, raising=False)
    (folder / "train.py").write_text("")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def installed(nsys: str = "2022.4", ncu: str = "2024.1") -> None:
        install(bin_, "nsys", nsys)
        install(bin_, "ncu", ncu)
        monkeypatch.setattr(tool, "tool_output", answers({"nsys": nsys, "ncu": ncu}))

    installed()
    return installed


def printed(*words: str) -> list[str]:
    """Give the printed command as words."""
    result = bridge("run", "--print", *words)
    assert result.exit_code == 0, result.stderr
    [line] = result.stdout.splitlines()
    return shlex.split(line)


def options(*words: str) -> list[str]:
    """Give the options of the tool: what stands between its name and the program."""
    command = printed("-o", "r", *words, "train.py")
    first = command.index("nsys") + 2 if "nsys" in command else command.index("ncu") + 1
    return command[first : command.index(sys.executable)]


def ncu(*words: str) -> list[str]:
    return options("--tool", "ncu", *words)


@pytest.mark.parametrize("version", VERSIONS["nsys"])
@pytest.mark.parametrize("preset", OPTIONS)
def test_presets(tools, version, preset):
    tools(version)
    python = preset == "full" and version != "2022.4"
    more = ["--python-backtrace=cuda"] if python else []
    assert options("--preset", preset) == [*OPTIONS[preset], *more, "--output=r.nsys-rep"]


def test_latency_is_the_default_and_the_environment_is_shown(tools, folder):
    script = ["nsys", "profile", *OPTIONS["latency"], "--output=report1.nsys-rep"]
    assert printed("train.py", "--lr", "0 1") == [
        f"BRIDGE_SIDECAR={folder}/report1.recordings", *script, sys.executable, "train.py", "--lr", "0 1"
    ]  # fmt: skip


def test_what_the_version_lacks_is_left_out_and_said_once(tools):
    result = bridge("run", "--print", "--preset", "full", "train.py")
    [note] = result.stderr.splitlines()
    assert note.startswith("note: nsys 2022.4.1 has no --python-backtrace: no Python")
    tools("2024.2")
    assert bridge("run", "--print", "--preset", "full", "train.py").stderr == ""


def test_what_was_asked_for_and_the_version_lacks_is_an_error(tools):
    tools(ncu="2022.3")
    result = bridge("run", "--print", "--tool", "ncu", "--graphs", "graph", "train.py")
    assert_refused(result, "--graphs: ncu 2022.3.1 has no --graph-profiling")
    tools(ncu="2024.1")
    assert ncu("--graphs", "graph", "--backtrace")[2:4] == [
        "--graph-profiling=graph",
        "--call-stack",
    ]


def test_an_option_or_a_value_that_an_older_version_lacks(tools, monkeypatch):
    old = "\t-t, --trace=\n\n\t   Possible values are 'cuda', 'nvtx' or 'none'.\n\n\t-o, --output=\n\n\t   Name.\n"
    monkeypatch.setattr(tool, "tool_output", lambda *_: old)
    result = bridge("run", "--print", "--preset", "full", "-o", "r", "train.py")
    assert "nsys profile --trace=cuda,nvtx --output=r.nsys-rep" in result.stdout
    notes = result.stderr.splitlines()
    assert len(notes) == 7
    assert "--trace=osrt,cudnn,cublas" in notes[0]
    for asked in (
        ["--memory"],
        ["--graphs", "node"],
        ["--backtrace"],
        ["--capture", "nvtx"],
        ["--force"],
    ):
        assert_refused(bridge("run", "--print", *asked, "train.py"), asked[0], "has no --")


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (["--memory"], ["--cuda-memory-usage=true"]),
        (["--graphs", "graph"], ["--cuda-graph-trace=graph"]),
        (["--backtrace"], ["--sample=process-tree", "--cudabacktrace=all:1"]),
        (["--force"], ["--force-overwrite=true"]),
    ],
)
def test_single_options(tools, given, added):
    found = options(*given)
    assert [one for one in found if one not in OPTIONS["latency"]][:-1] == [
        one for one in added if one not in OPTIONS["latency"]
    ]
    assert len({one.partition("=")[0] for one in found}) == len(found)


@pytest.mark.parametrize("version", VERSIONS["nsys"])
@pytest.mark.parametrize(
    ("given", "range_", "end"),
    [
        (["--schedule", f"{STEPS},repeat=2"], "nvtx", ["repeat:2"]),
        (["--schedule", f"{STEPS},repeat=1"], "nvtx", ["stop"]),
        (["--schedule", STEPS], "nvtx", ["repeat"]),
        (["--capture", "nvtx"], "nvtx", ["repeat"]),
        (["--capture", "cudaProfilerApi"], "cudaProfilerApi", ["repeat"]),
        (["--capture", "cudaProfilerApi", "--schedule", f"{STEPS},repeat=1"], "cudaProfilerApi", ["stop"]),
        (["--capture", "nvtx", "--kill"], "nvtx", ["stop-shutdown", "--kill=sigterm"]),
        (["--schedule", f"{STEPS},repeat=3", "--kill"], "nvtx", ["repeat-shutdown:3", "--kill=sigterm"]),
    ],
)  # fmt: skip
def test_capture_ranges_end_the_program_only_if_asked_to(tools, version, given, range_, end):
    tools(version)
    named = ["--nvtx-capture=capture@nsight-bridge"] if range_ == "nvtx" else []
    expected = [f"--capture-range={range_}", *named, f"--capture-range-end={end[0]}", *end[1:]]
    assert options(*given)[len(OPTIONS["latency"]) : -1] == expected
    environ = printed(*given, "train.py")
    assert f"BRIDGE_CAPTURE={range_}" in environ
    schedule = (
        f"BRIDGE_SCHEDULE={given[given.index('--schedule') + 1]}" if "--schedule" in given else None
    )
    assert schedule is None or schedule in environ


def test_options_that_make_no_sense_together(tools):
    def misused(*words: str) -> Result:
        return bridge("run", "--print", *words, "train.py")

    assert_misused(misused("--kill"), "--kill goes with --schedule or --capture")
    assert_misused(misused("--kill", "--schedule", STEPS), "--kill needs a last cycle")
    assert_misused(misused("--schedule", "wait=1"), "active=NUMBER is missing")
    assert_misused(misused("--op", "mm"), "--op goes with --tool ncu")
    for option in ("--ops", "--no-ops", "--shapes"):
        assert_misused(misused(option), f"{option} goes with --auto")
    assert_misused(misused("--set", "full"), "--set goes with --tool ncu")
    assert_misused(misused("--no-clock-control"), "--no-clock-control goes with --tool ncu")
    assert_misused(misused("--tool", "ncu", "--preset", "full"), "--preset goes with --tool nsys")
    assert_misused(misused("--tool", "ncu", "--memory"), "--memory goes with --tool nsys")
    assert_misused(misused("--tool", "ncu", "--op", "a", "--capture", "nvtx"), "cudaProfilerApi")
    assert_misused(misused("--tool", "ncu", "--op", "@d"), "NAME or NAME@DOMAIN")
    assert_misused(bridge("run"), "PROGRAM")


def test_a_folder_of_recordings_that_is_named_already_is_kept(tools, monkeypatch):
    monkeypatch.setenv("BRIDGE_SIDECAR", "off")
    assert printed("train.py")[0] == "nsys"


def test_percent_signs_are_no_placeholders(tools, folder):
    assert "--output=100%%p.nsys-rep" in printed("-o", "100%p", "train.py")
    assert "--export=100%%p.ncu-rep" in printed("--tool", "ncu", "-o", "100%p", "train.py")


@pytest.mark.parametrize("version", VERSIONS["ncu"])
def test_ncu(tools, version):
    tools(ncu=version)
    assert ncu() == ["--target-processes=all", "--nvtx", "--export=r.ncu-rep"]
    assert ncu(
        "--op", "mm", "--op", "conv@net", "--replay", "range", "--set", "full",
        "--metrics", "a,b", "--no-clock-control", "--force",
    ) == [
        "--target-processes=all", "--nvtx", "--nvtx-include=mm/", "--nvtx-include=mm",
        "--nvtx-include=net@conv/", "--nvtx-include=net@conv", "--replay-mode=range", "--set=full",
        "--metrics=a,b", "--clock-control=none", "--force-overwrite", "--export=r.ncu-rep",
    ]  # fmt: skip


def test_names_are_literal_in_the_filters_of_ncu(tools):
    found = ncu("--op", r"a[0]/b*c+d,e\f$@my@net", "--op", "aten::mm")
    assert found[2:6] == [
        r"--nvtx-include=net@a\[0\]\/b\*c\+d\,e\\f\$\@my/",
        r"--nvtx-include=net@a\[0\]\/b\*c\+d\,e\\f\$\@my",
        "--nvtx-include=aten::mm/",
        "--nvtx-include=aten::mm",
    ]


def test_ncu_captures_steps(tools):
    assert ncu("--schedule", STEPS)[1:3] == ["--nvtx", "--nvtx-include=nsight-bridge@capture"]
    by_cuda = ncu("--capture", "cudaProfilerApi", "--op", "mm")
    assert by_cuda[1:4] == ["--profile-from-start=off", "--nvtx", "--nvtx-include=mm/"]


def test_a_tool_that_is_missing(tools, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("nsys", "ncu"):
        result = bridge("run", "--tool", name, "train.py")
        assert (result.exit_code, result.stdout) == (127, "")
        [line] = result.stderr.splitlines()
        assert line.startswith(f"Error: {name} is not on the PATH: install Nsight ")


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_printing_is_quick_and_needs_no_frames(tools):
    import subprocess
    import time

    program = (
        "import sys; from bridge.cli import main\n"
        "try: main(['run', '--print', 'train.py'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'click' in sys.modules and not {'pandas', 'numpy', 'sqlite3'} & set(sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def seconds() -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60)
        return time.perf_counter() - begun

    # 0.1 s on an idle machine; the house's limit is 0.3 s.
    assert min(seconds() for _ in range(3)) < 1.0


def test_what_modules_cost_is_the_last_word_of_each_process_whatever_lies_there(tmp_path):
    def recorded(name: str, pid: int, *costs: object) -> None:
        lines = [{"pid": pid, "host": "h"}, *({"metadata": {"annotation_cost": c}} for c in costs)]
        path = tmp_path / f"bridge-{name}.jsonl"
        path.write_bytes(b"".join(encoded(line) + b"\n" for line in lines))

    recorded("a", 1, {"ranges": 1, "ns": 10}, {"ranges": 3, "ns": 40})
    recorded("b", 1, {"ranges": 5, "ns": 70})
    recorded("c", 2, {"ranges": 2, "ns": 9})
    recorded("d", 3, 5)
    recorded("e2", 5, [])
    (tmp_path / "bridge-h.jsonl").write_bytes(b'5\n{"metadata":6}\n')
    recorded("e", 4, {"ranges": 2, "ns": -9})
    (tmp_path / "bridge-f.jsonl").mkdir()
    (tmp_path / "bridge-g.jsonl").write_bytes(b'{"pid":9}\n{"metadata":\xff')
    assert module_cost(sorted(tmp_path.iterdir())) == (2, 7, 79)
    assert not any(module_cost([]))
