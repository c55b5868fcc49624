"""Where nothing, or next to nothing, ran on a device: no score, no busy share, and the words that explain it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from advice.story import Story
from command import after_scope, assert_refused, bridge, done
from made_reports import process

import bridge as public
from bridge import importers
from bridge.importers import frames
from bridge.importers.nsys import diagnostics_text

GONE = "python: can't open file '/path/train.py': [Errno 2] No such file or directory"
STARTED = "CUDA profiling might have not been started correctly."
TF32 = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
WARNED = f"/x/compile_fx.py:194: UserWarning: {TF32}. Consider setting more."


def started(*, kernel_us: int = 0, ranges: bool = True) -> Story:
    """Tell of a program that creates a context, and perhaps runs a kernel."""
    story = Story()
    story.call("cudaFree_v3020", us=100_000)
    if kernel_us:
        with story.op("work"):
            story.kernel(us=kernel_us)
    elif ranges:
        with story.op("start"):
            story.now += 10
    return story


def prints(story: Story, text: str, stream: str = "stderr") -> None:
    row = {"process": process(100), "file": story.string(f"/x/pid_100_{stream}.log")}
    story.tables["streams"].append({**row, "content": story.string(text)})


def says(story: Story, text: str, severity: int = 2, pid: int = 100) -> None:
    row = {"time": 5, "process": process(pid), "source": 2, "severity": severity}
    story.tables["diagnostics"].append({**row, "text": text})


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("kernel_us", [0, 5])
def test_next_to_no_work_has_a_reason_instead_of_figures(kernel_us: int, tmp_path: Path) -> None:
    story = started(kernel_us=kernel_us)
    prints(story, f"loading\n{GONE}\n")
    says(story, STARTED)
    path = story.written(tmp_path / "x.sqlite")
    for command in ("summary", "report", "advise", "doctor"):
        text = flat(done(command, path))
        assert f'"{GONE}"' in text, command
        assert STARTED in text, command
        assert "No bottleneck" not in text
        assert ": busy " not in text
    assert flat(after_scope(done("summary", path))).startswith(
        "Next to nothing ran on a GPU: 1 activity, 5.000 µs of"
        if kernel_us
        else "Nothing ran on a GPU:"
    )
    report = public.load(path)
    assert report.quality.score is None
    assert [one.rule.name for one in report.advise().advice] == ["no-device-work"]


@pytest.mark.parametrize("kernel_us", [20, 2_000])
def test_a_kernel_of_10_us_is_work(kernel_us: int, tmp_path: Path) -> None:
    story = started(kernel_us=kernel_us)
    prints(story, f"{GONE}\n")
    path = story.written(tmp_path / "x.sqlite")
    text = flat(done("summary", path))
    assert "busy" in text
    assert GONE not in text + flat(done("doctor", path))  # no crash, and not what matters here
    assert public.load(path).quality.score is not None


TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    run()\n'


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("epoch 1\nMeanSquaredError: 0.012\n", ""),
        ("TestError = 0.03\n", ""),
        ("ValueError: 0.5 %\n", ""),
        ("a block was checked out of memory pool 3\n", ""),
        ("out of memory pool: 3 blocks\n", ""),
        (f"{TRACE}app.MyProblem: 12\n", "app.MyProblem: 12"),
        (f"{TRACE}KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("".join(f"[rank0]: {x}\n" for x in [*TRACE.splitlines(), "LostError: x"]), "[rank0]: LostError: x"),
        (TRACE + "OddError: handled\n" + "step\n" * 30 + "TestError: low\n", ""),
        ("RuntimeError: CUDA error: invalid argument\n", "RuntimeError: CUDA error: invalid argument"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried\n", "torch.OutOfMemoryError: CUDA out of memory. Tried"),
        ("  what():  std::bad_alloc\n", "  what():  std::bad_alloc"),
        ("Out of memory: Killed process 7\n", "Out of memory: Killed process 7"),
        ("main.cu:7: CUDA error: out of memory\n", "main.cu:7: CUDA error: out of memory"),
    ],
)  # fmt: skip
def test_a_busy_program_is_quoted_only_where_it_crashed(text, quoted, tmp_path):
    story = started(kernel_us=50_000)
    prints(story, text)
    table = importers.load(story.written(tmp_path / "x.sqlite")).diagnostics
    assert table["name"].tolist() == [" ".join(quoted.split())] * bool(quoted)


def test_a_store_keeps_the_quoted_line_alone(folder: Path) -> None:
    story = started()
    prints(story, f"a password of the user\n{GONE}\n")
    done("import", story.written(folder / "x.sqlite"), "-q")
    stored = b"".join(file.read_bytes() for file in folder.glob("*.db"))
    assert b"a password" not in stored
    assert f'"{GONE}"' in flat(done("summary", "--run", "1"))
    assert "not rated" in done("runs", "list")


def test_a_warning_about_the_gpu_is_quoted_of_a_program_with_work(tmp_path: Path) -> None:
    story = started(kernel_us=500)
    prints(story, f"step 1\n{WARNED}\n  warnings.warn(\nstep 2\n")
    path = story.written(tmp_path / "x.sqlite")
    for command in ("summary", "report", "doctor"):
        assert TF32 in flat(done(command, path)), command
    assert "step 2" not in flat(done("doctor", path))


@pytest.mark.parametrize(
    ("outputs", "quoted"),
    [
        ({"stderr": f"Traceback\n  line\n{GONE}\n"}, GONE),
        ({"stdout": "ERROR: no file!\n  Missing: x.bin\n", "stderr": ""}, "ERROR: no file!"),
        ({"stdout": "epoch 1\n", "stderr": "a.cu(3): note\n  int f(){\n      ^\n"}, None),  # what stands last
        ({"stdout": "0 errors\ndone\n"}, None),
        ({"stdout": "50 %\r100 %\r"}, None),
        ({"stderr": "error: \x1b[31m   y" + "z" * 300}, "error: y" + "z" * 151 + "…"),
        ({"stderr": " \n\n"}, None),
    ],
)  # fmt: skip
def test_the_line_that_says_most_is_quoted(outputs, quoted, tmp_path):
    story = started()
    for stream, text in outputs.items():
        prints(story, text, stream)
    table = importers.load(story.written(tmp_path / "x.sqlite")).diagnostics
    assert table["name"].tolist() == [quoted] * (quoted is not None)
    assert set(table["source"]) <= {frames.PROGRAM}
    assert all(len(text) <= diagnostics_text.LONGEST for text in table["name"])


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        (lambda s: None, "was it recorded with --trace=nvtx?"),
        (lambda s: says(s, "No NVTX events collected. Does the process use NVTX?", 1), "NVTX was recorded"),
        (lambda s: s.tables["capture"].append({"name": "PROCESS_0:COLLECT_NVTX_TRACE", "value": "true"}), "NVTX was recorded"),
        (lambda s: s.tables["capture"].append({"name": "PROCESS_0:COLLECT_NVTX_TRACE", "value": "false"}), "was it recorded"),
    ],
)  # fmt: skip
def test_what_was_recorded_is_not_asked_for(told, asked, tmp_path):
    story = started(ranges=False)
    told(story)
    path = story.written(tmp_path / "x.sqlite")
    [no_ranges, no_work] = importers.load(path).warnings
    assert asked in no_ranges
    assert "1 CUDA call was recorded, but no work on a GPU" in no_work
    assert "no CUDA API calls" not in no_ranges + no_work


@pytest.mark.parametrize("kernel_us", [0, 500])
def test_every_command_knows_what_was_recorded(kernel_us: int, tmp_path: Path) -> None:
    story = Story()
    story.call("cudaFree_v3020", us=100_000)
    if kernel_us:
        story.kernel(us=kernel_us)
    name = story.string("NVTX early profiling initialization")
    story.tables["overhead"].append(
        {"start": 5, "end": 10, "thread": process(100) | 1, "name": name}
    )
    path = story.written(tmp_path / "x.sqlite")
    for details in (False, True, ["overhead"]):
        capture = importers.load(path, details=details)
        assert "NVTX was recorded" in capture.warnings[0]
        assert len(capture.overhead) == bool(details)
    for command in ("summary", "report", "advise", "doctor"):
        told = bridge(command, path)
        assert "NVTX was recorded" in flat(told.stdout + told.stderr), command


def test_an_empty_report_quotes_the_program(tmp_path: Path) -> None:
    story = Story()
    prints(story, f"{GONE}\n")
    path = story.written(tmp_path / "x.sqlite")
    for command in ("summary", "doctor"):
        assert_refused(bridge(command, path), GONE)
    assert "--trace" not in bridge("summary", path).stderr


@pytest.mark.parametrize(
    ("message", "cost"),
    [
        ("Not all CUDA events might have been collected.", {"dropped-records": 20}),
        ("Some events were lost.", {"dropped-records": 20}),
        ("Not all cuDNN events might have been collected.", {}),
        ("OS runtime libraries profiling might have not been started correctly.", {}),
    ],
)
def test_lost_records_of_other_libraries_cost_nothing(message, cost, tmp_path):
    story = started(kernel_us=50_000)
    says(story, message)
    found = story.load(tmp_path).quality
    assert {one.reason.name: one.cost for one in found.reasons} == cost
    assert message in found.messages


def test_a_message_about_another_process_is_called_that(tmp_path: Path) -> None:
    story = started(kernel_us=50_000)
    says(story, STARTED, pid=7)
    assert f'"{STARTED} (of a process without ranges' in done(
        "doctor", story.written(tmp_path / "x.sqlite")
    )


def mtia(tmp_path: Path, *, kernels: int) -> Path:
    """Write a trace of PyTorch with three events of a device that is not read, and some kernels."""

    def event(category: str, name: str, at: int, length: int = 10) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "ts": at,
            "dur": length,
            "pid": 1,
            "tid": 1,
            "args": {},
        }

    events = [event("cpu_op", "aten::mm", 1, 1_000)]
    events += [event("mtia_ccp_events", "job", at) for at in (10, 30, 50)]
    events += [event("kernel", "k", 100 + 100 * n, 90) for n in range(kernels)]
    path = tmp_path / "x.pt.trace.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode())
    )
    return path  # fmt: skip


def test_events_of_a_device_that_are_not_read_are_a_reason(tmp_path: Path) -> None:
    found = public.load(mtia(tmp_path, kernels=9)).quality
    [unread] = [one for one in found.reasons if one.reason.name == "unread-events"]
    assert unread.measured.value == 3 / 12
    assert unread.cost == 20


def test_a_trace_of_another_device_is_not_asked_for_cuda(tmp_path: Path) -> None:
    path = mtia(tmp_path, kernels=0)
    assert "ProfilerActivity.CUDA" not in bridge("summary", path).stderr
    text = flat(after_scope(done("summary", path)))
    assert text.startswith("Nothing that is read ran on a GPU")
    assert "3 events of a device are of kinds that are not read" in text
    assert public.load(path).quality.score is None


def test_a_part_of_the_time_without_work_is_called_that(tmp_path: Path) -> None:
    story = started(kernel_us=50_000)
    story.call("cudaDeviceSynchronize", us=10)
    path = story.written(tmp_path / "x.sqlite")
    part = ("--from", "1ms", "--to", "2ms")
    text = flat(done("advise", path, *part))
    assert text.startswith("nothing ran on a GPU in the selected time: 0 findings")
    assert "API calls and no kernel" not in flat(done("summary", path, *part))
    assert public.load(path).within(first_ns=10**6, last_ns=2 * 10**6).quality.score is not None
    idle = started().written(tmp_path / "idle.sqlite")
    assert "no work on a GPU to judge: 1 finding" in flat(done("advise", idle, *part))


def test_a_capture_without_a_score_has_no_points(tmp_path: Path) -> None:
    path = started().written(tmp_path / "x.sqlite")
    found = json.loads(done("doctor", path, "--format", "json"))
    costs = {one["reason"]: one["cost"] for one in found["reasons"]}
    assert costs["no-kernels"] is None
    assert set(costs.values()) == {None}
    markdown = done("doctor", path, "--format", "md")
    assert "| reason | what | what to do |\n| --- | --- | --- |\n| `no-kernels` | 1 API" in markdown
    assert "bridge doctor without a report checks this machine" in flat(done("doctor", path))
    assert "<b>no-kernels</b>" in public.load(path).quality._repr_html_()


def test_a_failed_export_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("CREATE TABLE ProcessStreams (globalPid, filenameId, contentId)")
        database.execute("INSERT INTO StringIds VALUES (1, 'x')")
    assert_refused(bridge("summary", path), "the export failed or is incomplete", "nsys export")
    assert "--trace" not in bridge("summary", path).stderr


def test_a_scrubbed_copy_knows_what_was_recorded_and_nothing_that_was_printed(
    tmp_path: Path,
) -> None:
    story = started(ranges=False)
    prints(story, f"{GONE}\n")
    for name, value in (("NVTX", "true"), ("CUDA", "hunter2")):
        row = {"name": f"PROCESS_0:COLLECT_{name}_TRACE", "value": value}
        story.tables["capture"].append(row)
    source, target = story.written(tmp_path / "x.sqlite"), tmp_path / "shared.sqlite"
    done("scrub", source, target)
    assert "NVTX was recorded" in importers.load(target).warnings[0]
    assert not len(importers.load(target).diagnostics)
    after = target.read_bytes()
    assert b"train.py" not in after
    assert b"hunter2" not in after
