"""Work that was not recorded is told apart from work that did not run, and lost records are said first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from advice.story import Story, process
from command import after_scope, done

import bridge
from bridge.analyze.checks.failures import LostRecords, NotRecorded, ProgramError, failures
from bridge.render import compact
from bridge.render.failures import lines as failure_lines

EXECUTE = "ExecutionContext::execute"
STARTED = "CUDA profiling might have not been started correctly."
DROPPED = "Number of incomplete CUPTI events dropped: 2."
BOILERPLATE = (
    "Buffers holding CUDA trace data will be flushed on CudaProfilerStop() call.",
    "Loaded CUPTI library: /path/libcupti.so.12.8",
    "CUDA injection initialized successfully.",
    "Number of CUDA events collected: \t300.",
    "Number of CUPTI events produced: \t311, CUPTI buffers: 50.",
)
MAYBE = ("Not all CUDA events might have been collected.", "No CUDA events collected. Does the process use CUDA?")  # fmt: skip


def says(story: Story, text: str, severity: int = 2) -> None:
    row = {"time": 5, "process": process(100), "source": 2, "severity": severity}
    story.tables["diagnostics"].append({**row, "text": text})


def prints(story: Story, text: str) -> None:
    row = {"process": process(100), "file": story.string("/x/pid_100_stdout.log")}
    story.tables["streams"].append({**row, "content": story.string(text)})


def flat(text: str) -> str:
    return " ".join(text.split())


def launched(*, kernels: bool = False, copies: bool = False, result: int = 0) -> Story:
    """Launch 300 kernels, which are recorded or not, and perhaps copy."""
    story = Story()
    for _ in range(300):
        story.kernel(us=50)
        story.tables["launches"][-1]["result"] = result
    if copies:
        story.copy(us=20_000)
    if not kernels:
        story.tables["kernels"].clear()
    return story


def told(story: Story, folder: Path) -> tuple[list[str], str, str]:
    """Give the kinds of what failed, and the texts of summary, without its first sentence, and advice."""
    found = failures(story.load(folder).attributed)
    path = folder / "story.sqlite"
    summary, advice = after_scope(done("summary", path)), done("advise", path)
    return [one.kind for one in found], flat(summary), flat(advice)


def test_launches_that_succeeded_without_a_kernel_are_not_recorded(tmp_path: Path) -> None:
    story = launched()
    for text in BOILERPLATE:
        says(story, text, 1)
    says(story, STARTED)
    says(story, DROPPED, 1)
    kinds, summary, advice = told(story, tmp_path)
    assert kinds == ["not-recorded"]
    for text in (summary, advice):
        assert text.startswith(
            "GPU work was not recorded: 300 calls that launch work (cudaLaunchKernel) returned success"
        )
        assert f'The profiler says: "{DROPPED}"' in text
        assert "--trace=cuda-sw" in text
        assert STARTED not in text  # what is certain explains more
        assert "Nothing ran" not in text
        assert not [line for line in BOILERPLATE if line in text]


def test_kernels_alone_may_be_missing(tmp_path: Path) -> None:
    kinds, summary, advice = told(launched(copies=True), tmp_path)
    assert kinds == ["not-recorded"]
    for text in (summary, advice):
        assert text.startswith("Kernels were not recorded: 300 calls")
        assert ": busy " not in text
        assert "cause of idleness" not in text
    assert "(not-recorded)" in advice
    assert "memcpy-bound" not in advice


@pytest.mark.parametrize("result", [-1, 222])
def test_launches_that_failed_or_are_not_known_are_not_called_unrecorded(
    result: int, tmp_path: Path
) -> None:
    kinds, summary, _ = told(launched(result=result), tmp_path)
    assert kinds == (["failed-calls"] if result > 0 else [])
    assert "not recorded" not in summary
    nothing = "Nothing ran on a GPU" if result > 0 else "No work on a GPU was recorded"
    assert f"{nothing}: no kernels, memcpys or memsets; 300 CUDA calls" in summary


def test_with_kernels_nothing_is_missing(tmp_path: Path) -> None:
    story = launched(kernels=True, copies=True)
    for text in MAYBE:
        says(story, text)
    kinds, summary, _ = told(story, tmp_path)
    assert kinds == []
    assert not [text for text in MAYBE if text in summary]


@pytest.mark.parametrize(("kept", "graphs", "is_lost"), [(140, 0, True), (160, 0, False), (140, 1, False)])  # fmt: skip
def test_where_most_launches_left_nothing_most_is_missing(
    kept: int, graphs: int, is_lost: bool, tmp_path: Path
) -> None:
    """Of 300 launches; those into a graph in the making leave nothing."""
    story = launched(kernels=True)
    del story.tables["kernels"][kept:]
    for _ in range(graphs):
        story.call("cudaStreamBeginCapture_v10000")
    kinds, summary, _ = told(story, tmp_path)
    assert kinds == ["not-recorded"] * is_lost
    start = "Most kernels were not recorded: of 300 calls that launch work and returned success,"
    assert summary.startswith(f"{start} {300 - kept} (") == is_lost


def test_calls_of_the_driver_inside_of_others_are_counted_once(tmp_path: Path) -> None:
    story = launched()
    for outer in list(story.tables["launches"]):
        inner = {**outer, "start": outer["start"] + 1, "name": story.string("cuLaunchKernel")}
        story.tables["launches"].append(inner)
    _, summary, _ = told(story, tmp_path)
    assert summary.startswith("GPU work was not recorded: 300 calls that launch work")


def test_after_an_error_that_ended_all_work_no_record_is_missed(tmp_path: Path) -> None:
    story = Story()
    for _ in range(7):
        story.call("cudaLaunchKernel_v7000")
    story.call("cudaDeviceSynchronize_v3020", result=700)
    kinds, summary, _ = told(story, tmp_path)
    assert kinds == ["failed-calls"]
    assert summary.startswith("cudaDeviceSynchronize failed, its only call: 700")
    assert "No work on a GPU was recorded: no kernels, memcpys or memsets; 8 CUDA calls" in summary


def frames_of_tensorrt(**more: int) -> Story:
    story = Story()
    for _ in range(188):
        with story.op(EXECUTE):
            story.rest(100)
    for call, result in more.items():
        story.call(call, result=result)
    return story


def test_tensorrt_ran_though_nothing_of_cuda_was_recorded(tmp_path: Path) -> None:
    story = frames_of_tensorrt()
    prints(story, "58/6019, 20.7 task/s\n71/6019, 21.2 task/s")
    kinds, summary, advice = told(story, tmp_path)
    assert kinds == ["not-recorded"]
    first = summary.split(". ")[0]
    assert first.startswith(f"GPU work was not recorded: {EXECUTE} of TensorRT")
    assert "188 times" in first
    assert "--trace=cuda,nvtx" in first
    assert "before the program creates its CUDA context" in first
    assert "task/s" not in summary + advice  # what stands last tells of no error
    [one] = failures(bridge.load(tmp_path / "story.sqlite").attributed)
    assert isinstance(one, NotRecorded)
    assert [(r.library, r.name, r.count) for r in one.what.ranges] == [("TensorRT", EXECUTE, 188)]


def test_calls_that_launch_nothing_are_known_to_have_run_nothing(tmp_path: Path) -> None:
    story = Story()
    story.call("cudaFree_v3020", us=2_000)
    with story.op("host"):
        story.rest(100)
    kinds, summary, _ = told(story, tmp_path)
    assert kinds == []
    assert summary.startswith("Nothing ran on a GPU: no kernels, memcpys or memsets; 1 CUDA call")


def test_without_any_call_nothing_is_known(tmp_path: Path) -> None:
    story = Story()
    with story.op("host"):
        story.rest(100)
    kinds, summary, _ = told(story, tmp_path)
    assert kinds == []
    assert summary.startswith("No work on a GPU was recorded: no kernels, memcpys or memsets; no")


@pytest.mark.parametrize(
    ("message", "severity", "is_lost"),
    [
        (DROPPED, 1, True),
        (DROPPED, 3, True),
        ("Number of incomplete CUPTI events dropped: 0.", 2, False),
        ("Not all kernels were collected.", 2, True),
        ("Some CUDA events were lost.", 2, True),
        ("No CUDA events were lost.", 1, False),
        ("CUPTI dropped 7 records of process 100: kernels or calls are lost", 2, True),
        ("Not all CUDA events might have been collected.", 2, False),
        ("Not all cuDNN events were collected.", 2, False),
        ("Number of CUDA events collected: 9.", 1, False),
    ],
)
def test_records_that_the_profiler_lost_are_said_first(
    message: str, severity: int, is_lost: bool, tmp_path: Path
) -> None:
    story = launched(kernels=True)
    says(story, message, severity)
    kinds, summary, advice = told(story, tmp_path)
    assert kinds == ["lost-records"] * is_lost
    for text in (summary, advice):
        assert text.startswith(f'Records were lost. The profiler says: "{message}"') == is_lost
    listed = json.loads(done("advise", tmp_path / "story.sqlite", "--format", "json"))
    assert [one["message"] for one in listed["failures"]] == [message] * is_lost


def test_a_program_that_died_is_said_first_and_once(tmp_path: Path) -> None:
    story = launched(kernels=True)
    prints(story, "step 1\nError: Unexpected end of file\nPT 8.849\n")
    found = failures(story.load(tmp_path).attributed)
    assert found == (ProgramError(100, "python", "Error: Unexpected end of file"),)
    path = tmp_path / "story.sqlite"
    for text in (flat(after_scope(done("summary", path))), flat(done("advise", path))):
        line = (
            'The program (python, process 100) tells of an error: "Error: Unexpected end of file"'
        )
        assert text.startswith(line)
        assert text.count("Unexpected end of file") == 1
    assert "Unexpected end of file" in done("doctor", path)


def test_the_order_is_calls_program_refusals_and_losses(tmp_path: Path) -> None:
    story = launched(kernels=True)
    story.call("cudaIpcOpenMemHandle_v4010", result=217)
    story.call("cudaLaunchKernel_v7000", result=9)
    prints(story, "error: bad mesh\n")
    says(story, DROPPED)
    report = story.load(tmp_path)
    found = failures(report.attributed)
    assert [(one.kind, getattr(one, "number", 0)) for one in found] == [
        ("failed-calls", 9),
        ("program-error", 0),
        ("failed-calls", 217),
        ("lost-records", 0),
    ]
    assert isinstance(found[-1], LostRecords)
    first = report.advise().advice[0]
    assert (first.rule.name, first.finding.figures["number"]) == ("failed-calls", 9)
    assert first.finding.evidence["call"].tolist() == ["cudaIpcOpenMemHandle", "cudaLaunchKernel"]


def test_the_page_and_the_tools_say_it_too(tmp_path: Path) -> None:
    story = launched(kernels=True)
    story.call("cudaDeviceSynchronize_v3020", result=700)
    report, path = story.load(tmp_path), tmp_path / "story.sqlite"
    [line] = failure_lines(failures(report.attributed))
    done("html", path, "-o", tmp_path / "x.html")
    assert json.dumps(line) in (tmp_path / "x.html").read_text("utf-8")
    for document in (
        compact.summary(json.loads(done("summary", path, "--format", "json"))),
        compact.advice(json.loads(done("advise", path, "--format", "json")), 1),
    ):
        assert document["failures"] == [{"kind": "failed-calls", "text": line}]
