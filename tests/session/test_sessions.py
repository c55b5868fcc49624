"""A session around a block, a function, or from start to stop; what it is told, and what it refuses."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from watched import names, op, ranges, steps

import bridge
from bridge import Action, nvtx_op
from bridge.capture.session.profile import decorate
from bridge.importers.errors import NothingRecorded, ReportError

pytestmark = pytest.mark.usefixtures("all_as_before")


@nvtx_op
def work() -> int:
    return 1


def test_a_block():
    with bridge.profile() as session:
        op("inside")
        assert session.is_profiling
        assert bridge.is_profiling()
    op("outside")
    assert names(session) == ["inside"]
    assert not session.is_profiling
    assert not bridge.is_profiling()


def test_start_and_stop_again_and_again():
    session = bridge.profile()
    session.stop()
    for name in ("first", "second"):
        session.start()
        op(name)
        session.stop()
        session.stop()
        assert names(session) == [name]
        assert session.step_num == 0


def test_a_table_while_it_runs():
    with bridge.profile() as session:
        op("first")
        with nvtx_op("open"):
            assert names(session) == ["first", "open"]
            assert [one["open"] for one in ranges(session)] == [False, True]
        op("second")
        table = session.by("op").set_index("op")["calls"]
    assert table.to_dict() == {"first": 1, "open": 1, "second": 1}
    assert not any(one["open"] for one in ranges(session))


# -- decorators


def test_a_bare_decorator():
    sessions = []

    @bridge.profile
    def decorated(depth: int) -> int:
        """Recurse."""
        work()
        sessions.append(bridge.capture.session.profile.current_session())
        return decorated(depth - 1) + 1 if depth else 0

    assert decorated.__name__ == "decorated"
    assert decorated.__doc__ == "Recurse."
    assert decorated(2) == 2
    assert len(set(sessions)) == 1
    assert names(sessions[0]) == ["work"] * 3
    assert not bridge.is_profiling()


def test_a_decorator_with_options_records_each_call():
    found = []

    @bridge.profile(on_trace_ready=lambda session: found.append(names(session)))
    def decorated(name: str) -> None:
        op(name)

    decorated("a")
    decorated("b")
    assert found == [["a"], ["b"]]


def test_a_decorated_function_that_raises():
    found = []

    @bridge.profile(on_trace_ready=lambda session: found.append(names(session)))
    def decorated() -> None:
        work()
        raise KeyError("of the function")

    for _ in range(2):
        with pytest.raises(KeyError, match="of the function"):
            decorated()
    assert found == [["work"], ["work"]]


def test_coroutine_functions():
    found = []

    @bridge.profile(on_trace_ready=lambda session: found.append(names(session)))
    async def decorated(name: str) -> str:
        work()
        await asyncio.sleep(0)
        op(name)
        return name

    async def both() -> list[str]:
        return await asyncio.gather(decorated("a"), decorated("b"))

    assert asyncio.iscoroutinefunction(decorated)
    assert asyncio.run(decorated("alone")) == "alone"
    assert asyncio.run(both()) == ["a", "b"]
    assert found[0] == ["work", "alone"]
    assert found[1][:3] == ["work", "work", "a"]  # one session, until the first has ended
    assert len(found) == 2


def test_methods():
    class Model:
        @bridge.profile
        def method(self) -> int:
            return work()

        @bridge.profile
        @staticmethod
        def static() -> int:
            return work()

        @bridge.profile
        @classmethod
        def of_class(cls) -> type:
            return cls

    assert Model().method() == Model.static() == 1
    assert Model.of_class() is Model


def test_partial_functions_are_decorated():
    assert bridge.profile(partial(int, "7"))() == 7


@pytest.mark.parametrize("bad", ["session.jsonl", 7, type("Model", (), {}), lambda: (yield)])
def test_what_no_session_can_surround(bad):
    with pytest.raises(TypeError, match="profile decorates functions and coroutine functions, not"):
        bridge.profile(bad)


def test_an_asynchronous_generator_is_refused():
    async def generator():
        yield 1

    with pytest.raises(TypeError, match="profile decorates"):
        bridge.profile()(generator)


def test_threads_that_call_a_decorated_function_at_once():
    barrier = threading.Barrier(8)
    problems = []

    @bridge.profile(level=0)
    def decorated() -> None:
        work()

    def call() -> None:
        barrier.wait()
        try:
            for _ in range(50):
                decorated()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert not bridge.is_profiling()


def test_a_decorated_function_runs_while_another_thread_changes_the_session(monkeypatch):
    calls = []

    def ready(session: bridge.Session) -> None:
        with monkeypatch.context() as patched:
            # What a thread saw that looked before the session began.
            patched.setattr("bridge.capture.session.profile.current_session", lambda: None)
            calls.append(decorate(session, work)())

    with bridge.profile(on_trace_ready=ready):
        work()
    assert calls == [1]


# -- steps


def test_without_a_schedule_steps_are_ranges_once_there_are_any():
    session = bridge.profile()
    for _ in range(2):
        with session:
            op("before the first")
            session.step()
            op("in it")
        assert steps(session) == [1]
        assert session.step_num == 1


def test_steps_surround_what_is_in_them():
    with bridge.profile(schedule=bridge.schedule(wait=0, warmup=0, active=4)) as session:
        for step in range(3):
            assert session.step_num == step
            op(f"op of {step}")
            session.step()
    inside = [f"ProfilerStep/op of {n}" for n in range(3)]
    assert sorted(session.by("range")["path"]) == sorted(["ProfilerStep"] * 4 + inside)
    assert steps(session) == [0, 1, 2, 3]


def test_a_schedule_of_ones_own():
    session = bridge.profile(schedule=lambda step: Action.RECORD if step == 1 else Action.NONE)
    with session:
        session.step()
        op("1")
        with pytest.warns(RuntimeWarning, match="incorrect schedule"):
            session.step()
        op("2")
    assert names(session) == ["1"]


# -- pause, clear, metadata


def test_pause_and_resume():
    with bridge.profile() as session:
        session.resume()
        with nvtx_op("around"):
            op("a")
            session.pause()
            session.pause()
            assert not session.is_profiling
            assert bridge.annotate.emit.state.idle
            op("unheard")
            session.resume()
            op("b")
        session.pause()
    assert names(session) == ["around", "a", "b"]
    assert not any(one["open"] for one in ranges(session))
    with session:
        op("again")
    assert names(session) == ["again"]


def test_pause_in_one_step_and_resume_in_another():
    found = []
    session = bridge.profile(
        schedule=bridge.schedule(wait=0, warmup=0, active=2),
        on_trace_ready=lambda session: found.append((names(session), steps(session))),
    )
    with session:
        for step in range(6):
            op(str(step))
            if step == 1:
                session.pause()
            op("paused" if 1 <= step < 4 else "heard")
            if step == 4:
                session.resume()
            session.step()
    # A step that begins in the pause is no range.
    assert found == [
        (["0", "heard", "1"], [0, 1]),
        ([], []),
        (["5", "heard"], [5]),
        ([], [6]),
    ]


def test_pause_of_what_does_not_run():
    session = bridge.profile()
    session.pause()
    with session:
        op("heard")
    session.pause()
    session.resume()
    assert names(session) == ["heard"]


def test_clear_forgets_and_what_is_open_goes_on():
    session = bridge.profile()
    session.clear()
    with session:
        op("forgotten")
        with nvtx_op("open"):
            op("forgotten too")
            session.clear()
            op("kept")
    assert names(session) == ["open", "kept"]
    assert not any(one["open"] for one in ranges(session))
    session.clear()
    with pytest.raises(NothingRecorded):
        session.by("op")


def test_metadata_in_recording_and_trace(tmp_path: Path):
    session = bridge.profile(metadata={"run": 7})
    session.add_metadata("before", [1, 2])
    with session:
        session.add_metadata("within", {"a": None})
        op("a")
    session.add_metadata("after", True)
    expected = {"run": 7, "before": [1, 2], "within": {"a": None}, "after": True}
    facts = session.report.capture.facts[0].metadata
    assert {key: facts[key] for key in expected} == expected
    session.export_chrome_trace(tmp_path / "trace.json")
    written = (tmp_path / "trace.json").read_text()
    assert all(f'"{key}"' in written for key in expected)
    with session:
        op("b")
    assert session.report.capture.facts[0].metadata["after"] is True


@pytest.mark.parametrize("running", [False, True])
def test_metadata_that_json_cannot_say(running):
    session = bridge.profile()
    if running:
        session.start()
    with pytest.raises(TypeError, match=r"metadata: .*not JSON serializable"):
        session.add_metadata("bad", object())
    session.start() if not running else None
    op("a")
    session.stop()
    assert names(session) == ["a"]


# -- options


@pytest.mark.slow
def test_level_2_records_collections_of_garbage():
    with bridge.profile(level=2) as session, nvtx_op("around"):
        gc.collect()
    assert "around/gc generation 2" in set(session.by("range")["path"])
    with bridge.profile(level=1) as session:
        op("a")
        gc.collect()
    assert names(session) == ["a"]


def test_a_session_stopped_within_a_collection_leaves_no_range_open():
    session = bridge.profile(level=2)

    class Garbage:
        def __del__(self) -> None:
            session.stop()

    with session:
        op("a")
        one = Garbage()
        one.itself = one
        del one
        gc.collect()
        assert not bridge.is_profiling()
    assert {"a", "gc generation 2"} <= set(names(session))
    assert not any(one["open"] for one in ranges(session))


def test_memory_is_sampled_at_every_step():
    with bridge.profile(profile_memory=True, level=0) as session:
        for _ in range(3):
            op("a")
            session.step()
    marks = session.report.capture.marks.to_pandas()
    samples = marks[marks["name"] == "counter:host resident"]
    assert len(samples) >= 4
    assert (samples["payload"] > 1_000_000).all()
    assert set(samples["domain_name"]) == {"memory"}


def test_shapes_of_ones_own_ops():
    class Array:
        shape, dtype = (2, 3), "float32"

    @nvtx_op("aten::mm")
    def mm(a: Array, b: Array) -> None:
        """Do nothing."""

    with bridge.profile(record_shapes=True) as session:
        mm(Array(), Array())
    [row] = ranges(session)
    assert json.loads(row["json"])["shapes"] == [[2, 3], [2, 3]]
    with bridge.profile() as session:
        mm(Array(), Array())
    assert [row["json"] for row in ranges(session)] == [""]


class Matrix:
    dtype = "float32"

    def __init__(self, *shape: int) -> None:
        self.shape = shape


def details_of_mm(**options: bool) -> dict[str, object]:
    """Multiply matrices of 2×3 and 3×4, the second given first; return what the session tells of it."""

    @nvtx_op("aten::mm")
    def mm(a: Matrix, b: Matrix) -> Matrix:
        return Matrix(a.shape[0], b.shape[1])

    with bridge.profile(**options) as session:
        mm(b=Matrix(3, 4), a=Matrix(2, 3))
    [row] = ranges(session)
    return json.loads(row["json"])


def test_shapes_stand_in_the_order_of_the_parameters_however_they_were_given():
    found = details_of_mm(record_shapes=True)
    assert (found["shapes"], found["output_shapes"]) == ([[2, 3], [3, 4]], [[2, 4]])


def test_flops_are_told_where_they_are_asked_for_and_shapes_with_them():
    found = details_of_mm(with_flops=True)
    assert (found["flops"], found["shapes"]) == (2 * 2 * 3 * 4, [[2, 3], [3, 4]])
    assert "flops" not in details_of_mm(record_shapes=True)


def test_export_to_a_compressed_trace(tmp_path: Path):
    with bridge.profile() as session:
        op("a")
    session.export_chrome_trace(tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert any(event["name"] == "a" for event in events)


# -- misuse


def test_one_session_at_a_time():
    with bridge.profile() as session:
        for other in (session, bridge.profile()):
            with pytest.raises(
                RuntimeError, match="a session is already running in this process; stop"
            ):
                other.start()
        op("a")
    assert names(session) == ["a"]


def test_a_step_needs_a_session():
    with pytest.raises(RuntimeError, match="no session is running"):
        bridge.profile().step()


def test_a_step_in_a_callback_is_refused():
    problems = []

    def ready(session):
        try:
            session.step()
        except RuntimeError as problem:
            problems.append(str(problem))

    schedule = bridge.schedule(wait=0, warmup=0, active=1)
    with bridge.profile(schedule=schedule, on_trace_ready=ready) as session:
        op("a")
        session.step()
        op("b")
    assert len(problems) == 2
    assert all("do not step it from a callback" in problem for problem in problems)
    assert steps(session) == [1]


def test_stop_in_a_callback_ends_the_session_when_the_step_has_begun():
    found = []

    def ready(session):
        found.append(names(session))
        session.stop()

    schedule = bridge.schedule(wait=0, warmup=0, active=1)
    session = bridge.profile(schedule=schedule, on_trace_ready=ready)
    session.start()
    op("a")
    session.step()
    assert not bridge.is_profiling()
    op("unheard")
    session.stop()
    assert found[0] == ["a"]
    assert "unheard" not in chain(*found)


def test_dump_in_a_callback(tmp_path: Path):
    def ready(session):
        session.dump(tmp_path / "first.json")

    schedule = bridge.schedule(wait=0, warmup=0, active=1, repeat=1)
    with bridge.profile(schedule=schedule, on_trace_ready=ready) as session:
        op("a")
        session.step()
    assert '"a"' in (tmp_path / "first.json").read_text()
    with bridge.profile(on_trace_ready=ready):
        op("b")
    assert '"b"' in (tmp_path / "first.json").read_text()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"with_stacks": True},
            TypeError,
            "profile: no option 'with_stacks'; did you mean with_stack\\? docs/sessions.md shows all",
        ),
        ({"activities": [], "use_cuda": 1}, TypeError, "no option 'activities'"),
        ({"level": 3}, ValueError, "level is 0, 1 or 2, not 3"),
        ({"level": "1"}, ValueError, "level is 0, 1 or 2, not '1'"),
        ({"schedule": 3}, TypeError, "schedule is a function, not 3"),
        ({"on_trace_ready": "x.json"}, TypeError, "on_trace_ready is a function, not 'x.json'"),
        ({"path": "trace.txt"}, ValueError, "trace.txt: a recording ends in .jsonl, a trace in"),
        ({"path": 3}, TypeError, "3|int"),
        ({"dump_period": 1}, ValueError, "to dump while running takes a path that ends in .jsonl"),
        ({"dump_period": 1, "path": "a.json"}, ValueError, "takes a path that ends in .jsonl"),
        *[
            ({"dump_period": bad, "path": "a.jsonl"}, ValueError, "dump_period is in seconds")
            for bad in (0, -1, float("nan"), float("inf"), "1")
        ],
        ({"capture": "gpu"}, ValueError, "capture: no kind 'gpu': one of nvtx, cudaProfilerApi"),
        ({"metadata": {"a": object()}}, TypeError, "metadata: .*not JSON serializable"),
        ({"metadata": [1]}, TypeError, "metadata is a mapping, not"),
    ],
)
def test_options_that_make_no_sense(options, error, says):
    with pytest.raises(error, match=says) as raised:
        bridge.profile(**options)
    assert "\n" not in str(raised.value)


def test_nothing_recorded():
    session = bridge.profile()
    with pytest.raises(ReportError, match="has recorded nothing"):
        session.by("op")
    with session:
        pass
    with pytest.raises(NothingRecorded):
        session.by("op")


def test_dump_needs_a_file(tmp_path: Path):
    with bridge.profile() as session:
        op("a")
        with pytest.raises(ValueError, match=r"no file; use dump\('session.json'\)"):
            session.dump(finished=False)
        assert session.is_profiling
        with pytest.raises(ValueError, match="a recording ends in"):
            session.dump(tmp_path / "a.txt", finished=False)
    with pytest.raises(NothingRecorded):
        bridge.profile(path=tmp_path / "b.jsonl").dump()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", ["nonsense", None])
def test_a_schedule_of_nonsense_leaves_nothing_behind(bad):
    session = bridge.profile(schedule=lambda _: bad)
    with pytest.raises(ValueError, match="for step 0, not one of NONE"):
        session.start()
    with bridge.profile():
        pass


def test_the_environment_may_say_which_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_SCHEDULE", "wait=1,active=2,repeat=1")
    with bridge.profile() as session:
        recorded = []
        for _ in range(4):
            recorded.append(session.is_profiling)
            session.step()
    assert recorded == [False, True, True, False]
    own = bridge.profile(schedule=bridge.schedule(wait=0, warmup=0, active=1))
    with own:
        assert own.is_profiling  # what the program says comes first
    monkeypatch.setenv("BRIDGE_SCHEDULE", "active=none")
    with pytest.raises(ValueError, match="active is a whole number"):
        bridge.profile()
