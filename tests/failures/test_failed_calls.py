"""Failed calls: which count, which one leads, what followed, against a definition in plain loops."""

from __future__ import annotations

import json
from pathlib import Path

import columnar
import numpy as np
import pytest
from advice.story import US, Story, thread
from command import after_scope, done
from hypothesis import given
from hypothesis import strategies as st
from witness import failed_calls as witness
from witness.failed_calls import Call

import bridge
from bridge import importers
from bridge.analyze.checks.failures import FailedCalls, failures, from_dicts
from bridge.analyze.core.failed_calls import failed_groups, failed_rows
from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.texts import Texts
from bridge.join.attributed import AttributedCapture
from bridge.knowledge import cuda_errors

LAUNCH, SYNC, MALLOC, QUERY = (
    f"{name}_v7000"
    for name in ("cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMalloc", "cudaEventQuery")
)


def found(story: Story, folder: Path) -> list[FailedCalls]:
    told = failures(story.load(folder).attributed)
    return [one for one in told if isinstance(one, FailedCalls)]


def flat(text: str) -> str:
    return " ".join(text.split())


def refused() -> Story:
    """Copies that work with long pauses, and 21 launches that the driver refuses."""
    story = Story()
    for _ in range(20):
        with story.op("load"):
            story.copy(us=400)
            story.rest(2_000)
    for _ in range(21):
        with story.op("work"):
            story.call(LAUNCH, result=222)
            story.rest(300)
    return story


def test_where_all_launches_fail_nothing_else_is_said(tmp_path: Path) -> None:
    [one] = found(refused(), tmp_path)
    assert (one.call, one.number, one.count, one.of) == ("cudaLaunchKernel", 222, 21, 21)
    assert (one.name, one.op, one.pid) == ("cudaErrorUnsupportedPtxVersion", "work", 100)
    first = (
        20 * (2 + 2 + 2_000) + 1
    )  # per copy: into and out of the op, the call, the pause; and into the op
    assert one.first_ns == first * US
    assert one.is_severe
    assert one.all_launches
    path = tmp_path / "story.sqlite"
    summary, advice = flat(after_scope(done("summary", path))), flat(done("advise", path))
    for text in (summary, advice):
        assert text.startswith(
            "cudaLaunchKernel failed in work, all 21 calls: 222 cudaErrorUnsupportedPtxVersion"
        )
        assert "no launch of this report worked" in text
        assert "CPU-bound" not in text
        assert "cause of idleness" not in text
    listed = json.loads(done("advise", path, "--format", "json"))
    assert [piece["rule"] for piece in listed["advice"]] == ["failed-calls"]
    assert listed["failures"][0]["kind"] == "failed-calls"
    [row] = listed["advice"][0]["evidence"]
    assert (row["op"], row["call"], row["count"]) == ("work", "cudaLaunchKernel", 21)
    assert row["first_ns"] == one.first_ns
    assert json.loads(done("summary", path, "--format", "json"))["failures"] == listed["failures"]


def test_an_error_that_ends_all_work_is_told_once_with_the_launch_before_it(tmp_path: Path) -> None:
    story = Story()
    for name in ("relu", "gather"):
        with story.op(f"run {name}"):
            story.kernel(name, us=50)
    with story.op("end"):
        story.call(SYNC, result=700)
        for call in ("cudaMemcpy_v3020", LAUNCH, "cudaGetLastError_v3020", "cudaFree_v3020"):
            story.call(call, result=700)
    [one] = found(story, tmp_path)
    assert (one.call, one.number, one.name) == (
        "cudaDeviceSynchronize",
        700,
        "cudaErrorIllegalAddress",
    )
    # The copy, the launch and the release return it again; cudaGetLastError only tells of it.
    assert (one.count, one.followed, one.after, one.after_op) == (1, 3, "gather", "run gather")
    assert one.is_severe
    assert not one.all_launches
    text = flat(done("summary", tmp_path / "story.sqlite"))
    assert (
        "3 later calls returned it again; the last launch before it: gather in run gather" in text
    )


def test_memory_that_ran_out_counts_where_it_was_found_on_the_second_try(tmp_path: Path) -> None:
    story = Story()
    story.kernel(us=500)
    with story.op("grow"):
        story.call(MALLOC, result=2)
        story.call("cudaFree_v3020")
        story.call(MALLOC)
        story.call("cudaFuncSetAttribute_v9000", result=1)  # and again, with success
        story.call("cudaFuncSetAttribute_v9000")
    with story.op("other"):
        story.call("cudaFuncSetAttribute_v9000", result=1)  # not again in this op
    memory, attribute = found(story, tmp_path)
    assert (memory.call, memory.number, memory.retried, memory.is_severe) == (
        "cudaMalloc",
        2,
        1,
        True,
    )
    assert (attribute.call, attribute.count, attribute.of, attribute.op) == (
        "cudaFuncSetAttribute",
        1,
        3,
        "other",
    )
    assert not attribute.is_severe
    assert "later calls succeeded after 1 of them" in flat(
        done("advise", tmp_path / "story.sqlite")
    )


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (QUERY, 600),
        ("cuStreamQuery", 600),
        ("cudaDeviceEnablePeerAccess_v4000", 704),
        ("cudaHostRegister_v4000", 712),
        ("cudaFree_v3020", 4),
        ("cuPointerGetAttribute", 1),
        ("cuGetProcAddress_v2", 500),
    ],
)
def test_an_answer_is_no_failure(call: str, result: int, tmp_path: Path) -> None:
    story = Story()
    story.kernel(us=500)
    for _ in range(50):
        story.call(call, result=result)
    assert found(story, tmp_path) == []
    assert "failed" not in done("summary", tmp_path / "story.sqlite")


@pytest.mark.parametrize(
    ("call", "result"),
    [("cudaMemcpy_v3020", 704), ("cudaMalloc_v3020", 1), ("cudaGetDeviceCount_v3020", 100)],
)
def test_the_same_value_of_another_function_is_one(call: str, result: int, tmp_path: Path) -> None:
    story = Story()
    story.call(call, result=result)
    [one] = found(story, tmp_path)
    assert (one.number, one.count) == (result, 1)


def inner(story: Story, call: str, result: int) -> None:
    """Call the driver inside of the newest call, as the runtime does."""
    outer = story.tables["launches"][-1]
    times = {"start": outer["start"] + 100, "end": outer["end"] - 100, "thread": thread(100)}
    story.tables["launches"].append(
        {**times, "correlation": outer["correlation"], "name": story.string(call), "result": result}
    )


def test_a_call_of_the_driver_under_one_of_the_runtime_is_one_failure(tmp_path: Path) -> None:
    story = Story()
    story.call(LAUNCH, result=98)
    inner(story, "cuLaunchKernel", 500)
    story.call(MALLOC)
    inner(story, "cuMemAlloc_v2", 2)  # which the runtime answered
    story.call("cuLaunchKernel", result=400)
    runtime, driver = found(story, tmp_path)
    assert (runtime.call, runtime.name) == ("cudaLaunchKernel", "cudaErrorInvalidDeviceFunction")
    assert (driver.call, driver.name) == ("cuLaunchKernel", "CUDA_ERROR_INVALID_HANDLE")


def test_what_is_selected_is_judged(tmp_path: Path) -> None:
    path = refused().written(tmp_path / "x.sqlite")
    early = json.loads(done("advise", path, "--to", "30ms", "--format", "json"))
    assert early["failures"] == []
    late = json.loads(done("advise", path, "--from", "42ms", "--format", "json"))
    assert late["failures"][0]["count"] < 21


def test_a_report_without_return_values_says_that_it_cannot_tell(tmp_path: Path) -> None:
    story = refused()
    for row in story.tables["launches"]:
        del row["result"]
    advised = story.load(tmp_path).advise()
    assert advised.failures == ()
    assert "failed-calls" in [one.rule.name for one in advised.not_judged]


@pytest.mark.parametrize("form", list(columnar.FORMS))
def test_arrow_and_parquet_say_what_calls_returned(form: str, tmp_path: Path) -> None:
    path = refused().written(tmp_path / "x.sqlite")
    copy = columnar.FORMS[form](columnar.tables_of(path), tmp_path / f"x{form}")
    assert failures(bridge.load(copy).attributed) == failures(bridge.load(path).attributed)


def test_what_calls_returned_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    path = refused().written(tmp_path / "x.sqlite")
    for details, known in ((False, 0), ({"overhead"}, 0), ({"result"}, 41), (True, 41)):
        launches = importers.load(path, details=details).launches
        assert (launches["result"] >= 0).sum() == known
        assert (launches["result"] == 222).sum() == (21 if known else 0)


def test_a_store_keeps_what_failed(folder: Path) -> None:
    done("import", refused().written(folder / "x.sqlite"), "-q")
    direct, stored = (
        json.loads(done("summary", *which, "--format", "json"))["failures"]
        for which in ((folder / "x.sqlite",), ("--run", "1"))
    )
    assert stored == direct != []
    assert json.loads(done("advise", "--run", "1", "--format", "json"))["failures"] == direct


def test_failures_are_read_back_from_json(tmp_path: Path) -> None:
    told = failures(refused().load(tmp_path).attributed)
    report = bridge.load(tmp_path / "story.sqlite")
    values = json.loads(json.dumps(report.summary.as_dict()))
    assert from_dicts(values["failures"]) == told


# -- Against plain loops


PROCESSES = (7 << 24, 8 << 24)
NAMES = (
    "cudaLaunchKernel", "cudaEventQuery", "cudaMalloc", "cudaGetLastError", "cudaDeviceEnablePeerAccess",
    "cudaDeviceSynchronize",
)  # fmt: skip
OPS = ("", "a", "b")


@st.composite
def programs(draw) -> list[Call]:
    """Draw calls of two processes with three threads, in ops, some with a call of the driver inside."""
    calls: list[Call] = []
    now = 0
    for _ in range(draw(st.integers(0, 25))):
        process, number = draw(
            st.sampled_from([*[(PROCESSES[0], 1)] * 4, (PROCESSES[0], 2), (PROCESSES[1], 1)])
        )
        results = st.sampled_from([0, 0, 0, -1, 1, 2, 600, 700, 704, 222])
        home = process, process | number, draw(st.sampled_from(NAMES))
        op = draw(st.sampled_from(OPS))
        calls.append(Call(*home, now, now + 10, draw(results), op))
        if draw(st.booleans()):
            calls.append(Call(*home[:2], "cuLaunchKernel", now + 2, now + 8, draw(results), op))
        now += 20
    return calls


def attributed(calls: list[Call]) -> AttributedCapture:
    """Give the calls as a capture, each op a range around one call."""
    ranges = [call for call in calls if call.op and call.name != "cuLaunchKernel"]

    def names(texts: list[str]):
        return frames.Names.of(texts)

    def ints(values: list[int]) -> np.ndarray:
        return np.array(values, np.int64)

    launches = {
        c: ints([getattr(one, c) for one in calls])
        for c in ("start", "end", "thread", "process", "result")
    }
    opened = {
        "start": ints([one.start - 1 for one in ranges]),
        "end": ints([one.end + 1 for one in ranges]),
        **{c: ints([getattr(one, c) for one in ranges]) for c in ("thread", "process")},
        "kind": frames.Names(np.zeros(len(ranges), np.int64), list(frames.RANGE_KINDS)),
        "name": names([one.op for one in ranges]),
        "domain_name": names([""] * len(ranges)),
        "text": np.arange(len(ranges)),
    }  # fmt: skip
    capture = Capture(
        source=("x",),
        facts=(Facts(),),
        ranges=frames.Ranges(opened),
        launches=frames.Launches(launches, name=names([one.name for one in calls])),
        activities=frames.Activities(),
        texts=Texts.of([one.op for one in ranges]),
        **{kind: frames.FRAMES[kind]() for kind in ("marks", "threads", "processes", "devices")},
    )
    return AttributedCapture.of(capture)


@given(programs())
def test_the_calls_that_count_are_those_of_the_definition(calls: list[Call]) -> None:
    capture = attributed(calls)
    assert failed_rows(capture).tolist() == witness.failed(calls)
    told = [(g.call, g.number, g.rows.tolist(), g.followed) for g in failed_groups(capture)]
    assert told == witness.groups(calls)


# -- Names and meanings


def test_the_list_knows_what_the_headers_of_cuda_define() -> None:
    """Against figures taken from driver_types.h and cuda.h of CUDA 13.5, without success and 10000."""
    known = cuda_errors.errors()
    assert len(known) == 140
    assert sum(bool(one.runtime) for one in known.values()) == 137
    assert sum(bool(one.driver) for one in known.values()) == 105
    for number, runtime, driver in (
        (1, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE"),
        (98, "cudaErrorInvalidDeviceFunction", ""),
        (202, "", "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"),
        (719, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"),
        (919, "cudaErrorFabricNotReady", "CUDA_ERROR_FABRIC_NOT_READY"),
    ):
        assert (known[number].runtime, known[number].driver) == (runtime, driver)
    assert all(one.meaning for one in known.values())
    assert known[98].name("cuLaunchKernel") == "cudaErrorInvalidDeviceFunction"
    assert cuda_errors.error(12_345).name("cudaFree") == "error 12345"
