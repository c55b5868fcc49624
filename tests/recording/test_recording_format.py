"""What is recorded is read back: against a replay of the same program with dictionaries."""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.annotate.details import checked_details, function_observer
from bridge.annotate.emit import state
from bridge.annotate.label import Label, text
from bridge.annotate.recording import writer as writers
from bridge.annotate.recording.recorder import OPEN, Recorder
from bridge.annotate.recording.sink import File, Memory
from bridge.annotate.recording.writer import Writer
from bridge.annotate.stack import CALL_ID_BASE
from bridge.importers.errors import ReportError
from bridge.importers.recording.lines import Recording, parse_recording, read_recording
from bridge.importers.recording.read import read as load
from bridge.importers.recording.read import read_lines

TEXTS = st.text(
    st.one_of(
        st.characters(), st.sampled_from("\0\n\"\\/'😀\U00020000\U0010ffff\ud800\udfff,{}[]")
    ),
    max_size=6,
)
PAYLOADS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, -1, 0, CALL_ID_BASE | 1]),
    st.floats(),
)
LABELS = st.builds(
    Label,
    TEXTS,
    st.sampled_from([None, "d", "\ud800"]),
    st.one_of(st.none(), TEXTS.filter(bool)),
    st.one_of(st.none(), st.integers(0, 0xFFFFFFFF)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), LABELS, PAYLOADS),
        st.tuples(st.just("pop"), st.sampled_from([None, "d", "\ud800"])),
        st.tuples(st.just("mark"), LABELS, PAYLOADS),
        st.tuples(st.just("start"), LABELS, PAYLOADS),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("flush")),
    ),
    max_size=40,
)


def spelled(label: Label) -> tuple[Any, ...]:
    texts = [one if one is None else text(one).decode() for one in label[:3]]
    return (*texts, label.color)


def said(payload: float) -> int | str:
    """Say a payload as the importer does: what is no integer as text."""
    if isinstance(payload, int):
        return payload
    special = "NaN" if math.isnan(payload) else "Infinity" if payload > 0 else "-Infinity"
    return json.dumps(payload) if math.isfinite(payload) else special


class Thread:
    """A thread that does what it is told, step by step."""

    def __init__(self) -> None:
        self._work: Any = None
        self._there, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="thread \0 ж")
        self._thread.start()
        self.number = self._thread.native_id

    def __call__(self, work: Any) -> Any:
        self._work = work
        self._there.release()
        self._done.acquire()
        return self._work

    def _run(self) -> None:
        while True:
            self._there.acquire()
            if self._work is None:
                return
            self._work = self._work()
            self._done.release()

    def end(self) -> None:
        self._work = None
        self._there.release()
        self._thread.join()


@pytest.fixture(scope="module")
def threads():
    made = [Thread() for _ in range(3)]
    yield made
    for thread in made:
        thread.end()


class Replay:
    """The same program, with dictionaries."""

    def __init__(self) -> None:
        self.stacks: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
        self.phases: list[tuple[Any, ...]] = []
        self.rows: list[tuple[Any, ...]] = []
        self.marks: list[tuple[Any, ...]] = []

    def step(self, recorder: Recorder, thread: int, what: str, *given: Any) -> None:
        if what == "flush":
            recorder.writer.flush()
        elif what == "push":
            recorder.push(*given)
            self.stacks[thread, given[0].domain].append(
                (spelled(given[0]), 0, thread, said(given[1]))
            )
        elif what == "pop":
            recorder.pop(given[0])
            if held := self.stacks[thread, given[0]]:
                self.rows.append((*held.pop(), False))
        elif what == "mark":
            recorder.mark(*given)
            self.marks.append((spelled(given[0]), thread, said(given[1])))
        elif what == "start":
            handle = recorder.start(*given)
            row = (spelled(given[0]), 1, thread, said(given[1]))
            self.phases.append((given[0], handle, row))
        elif self.phases:
            label, handle, row = self.phases.pop(given[0] % len(self.phases))
            recorder.end(label, handle)
            self.rows.append((*row, False))

    def all(self) -> list[tuple[Any, ...]]:
        still = [one for held in self.stacks.values() for one in held]
        still += [row for *_, row in self.phases]
        return sorted([*self.rows, *((*one, True) for one in still)], key=repr)


def rows(found: Recording) -> list[tuple[Any, ...]]:
    label, kind, thread, start, end = (c.tolist() for c in found.columns["ranges"])
    payload = payloads(found, "ranges")
    assert all(e == OPEN or s <= e for s, e in zip(start, end, strict=True))
    named = [found.labels[n] for n in label]
    opened = [e == OPEN for e in end]
    return sorted(zip(named, kind, thread, payload, opened, strict=True), key=repr)


def payloads(found: Recording, kind: str) -> list[int | str]:
    values = found.payloads[kind]
    return [values.others.get(row, value) for row, value in enumerate(values.ints.tolist())]


def marks(found: Recording) -> list[tuple[Any, ...]]:
    label, thread, _ = (c.tolist() for c in found.columns["marks"])
    named = [found.labels[n] for n in label]
    return sorted(zip(named, thread, payloads(found, "marks"), strict=True), key=repr)


@pytest.mark.slow
@given(
    steps=STEPS,
    on=st.lists(st.integers(0, 2), min_size=40, max_size=40),
    to_file=st.booleans(),
    finish=st.booleans(),
)
def test_a_program_is_read_back(threads, steps, on, to_file, finish) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "r.jsonl")
        sink = File(path) if to_file else Memory()
        writer, replay = Writer(sink), Replay()
        recorder = Recorder(writer)
        for which, step in zip(on, steps, strict=False):
            thread = threads[which]
            thread(lambda step=step, thread=thread: replay.step(recorder, thread.number, *step))
        if finish:
            recorder.finish()
        writer.close()
        lines = path.read_bytes() if to_file else b"".join(sink.lines)
        found = (
            read_recording(path)
            if to_file
            else parse_recording("r", lines.splitlines(keepends=True))
        )
        assert rows(found) == replay.all()
        assert marks(found) == sorted(replay.marks, key=repr)
        annotated = {
            threads[w].number for w, s in zip(on, steps, strict=False) if s[0] in {"push", "mark"}
        }
        assert annotated <= set(found.threads)
        for line in lines.splitlines():  # strict JSON
            json.loads(line, parse_constant=pytest.fail).items()
        if replay.all() or replay.marks:
            report = load(path) if to_file else read_lines("r", lines.splitlines(keepends=True))
            assert len(report.ranges) == len(replay.all())
            assert report.ranges["open"].sum() == sum(row[-1] for row in replay.all())
        else:
            with pytest.raises(ReportError, match="no times"):
                read_lines("r", lines.splitlines(keepends=True))


class Raises:
    @property
    def shape(self) -> None:
        raise RuntimeError("no one shape")

    def __repr__(self) -> str:
        raise ValueError("unspeakable")


class Tensor:
    def __init__(self, shape: Any, dtype: Any = "float32") -> None:
        self.shape, self.dtype = shape, dtype


class Symbol:
    __hash__ = None  # as a symbolic length of PyTorch's

    def __index__(self) -> int:
        raise RuntimeError("a guard")


@pytest.fixture
def session():
    writer = Writer(Memory())
    state.writer = writer
    yield writer
    state.writer = None


def noted(writer: Writer) -> list[Any]:
    """Return the details of each call, by its number."""
    writer.flush()
    found = parse_recording("r", b"".join(writer.sink.lines).splitlines(keepends=True))
    call, place = (c.tolist() for c in found.columns["calls"])
    of_call = dict(zip(call, place, strict=True))
    assert len(of_call) == len(call)
    return [json.loads(found.details[of_call[n]]) for n in sorted(of_call)]


def note(function: Any, *calls: tuple[Any, ...], **details: Any) -> None:
    asked = {"shapes": False, "args": (), "flops": None} | details
    observer = function_observer(function, function.__name__, checked_details(**asked))
    for number, given_ in enumerate(calls):
        observer.note(CALL_ID_BASE | number, observer.look(given_, {}), None, (given_, {}))


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=8,
)


def as_written(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 64 else hex(value)[:200]
    if isinstance(value, float):
        return value if math.isfinite(value) else said(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return [as_written(one) for one in value] if isinstance(value, list | tuple) else repr(value)


@pytest.mark.slow
@given(values=st.lists(VALUES, max_size=8))
def test_arguments_of_every_kind(values) -> None:
    state.writer = writer = Writer(Memory())
    try:
        note(plain_function, *((v,) for v in values), args=("value",))
    finally:
        state.writer = None
    deep = [v for v in values if depth(v) > 2]
    found = noted(writer)
    if not deep:
        assert json.dumps([one["args"]["value"] for one in found]) == json.dumps(
            list(map(as_written, values))
        )
    assert len(found) == len(values)


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list | tuple) else 0


def plain_function(value: Any) -> None:
    pass


def two(value: Any, other: Any) -> None:
    pass


def test_equal_values_of_several_types_are_not_one(session) -> None:
    values = [1, True, 1.0, 0, False, 0.0, -0.0, (1,), (True,), (1.0,)]
    note(plain_function, *((v,) for v in values), args=("value",))
    written = [repr(one["args"]["value"]) for one in noted(session)]
    assert written == [repr(list(v) if isinstance(v, tuple) else v) for v in values]


def test_flops_of_a_function_are_those_of_each_call(session) -> None:
    note(plain_function, (2,), (3,), (2,), flops=lambda n: 10 * n)
    assert [one["flops"] for one in noted(session)] == [20, 30, 20]


def test_tensors_in_lists_and_what_has_no_shape(session) -> None:
    a, b = Tensor((2, 3)), Tensor([4], "torch.bfloat16")
    note(two, ([a, (b, a)], 5), (Raises(), a), (Tensor((Symbol(), 7)), a), shapes=True)
    first, second, third = noted(session)
    assert first["shapes"] == [[2, 3], [4], [2, 3], None]
    assert first["dtypes"] == ["float32", "bfloat16", "float32", ""]
    assert second["shapes"] == [None, [2, 3]]
    assert third["shapes"] == [[-1, 7], [2, 3]]


def test_of_a_great_list_the_first_entries_are_looked_at(session) -> None:
    looks = []

    class Looked:
        dtype = "float32"

        @property
        def shape(self) -> tuple[int, ...]:
            looks.append(self)
            return (1,)

    note(two, ([[[[Looked()] * 100] * 100] * 100] * 100, 1), shapes=True)
    assert noted(session)[0]["shapes"] == [None, None]
    assert not looks  # so deep within
    note(two, ([[Looked()] * 100] * 100, 1), shapes=True)
    assert len(looks) == 64  # as many as are kept


def test_what_is_kept_of_a_great_list_is_little(session) -> None:
    many = [[[[0] * 100] * 100] * 100] * 100
    note(two, (many, [Tensor((1,))] * 1000), shapes=True, args=("value",))
    (found,) = noted(session)
    assert len(found["shapes"]) == 64
    assert len(json.dumps(found)) < 20_000
    assert found["args"]["value"][-1] == "…"


def test_numbers_of_many_digits_and_lists_in_themselves(session) -> None:
    itself: list[Any] = []
    itself += [itself, itself]
    note(plain_function, (10**5000,), (itself,), (-(1 << 63),), ((1 << 63) - 1,), args=("value",))
    first, _, *last = noted(session)
    assert first["args"]["value"].startswith("0x")
    assert [one["args"]["value"] for one in last] == [hex(-(1 << 63)), (1 << 63) - 1]


def test_what_raises_is_warned_of_once_and_the_program_goes_on(session) -> None:
    def unspeakable(value: Any) -> None:
        pass

    with pytest.warns(
        RuntimeWarning, match=r"'.*unspeakable' are not recorded: RuntimeError: no one shape"
    ) as caught:
        note(unspeakable, (Raises(),), (Raises(),), (3,), args=("value",))
    assert len(caught) == 1
    note(unspeakable, (Raises(),), args=("value",))  # a second warning would be an error
    assert [one["args"]["value"] for one in noted(session)] == [3]


@pytest.mark.slow
def test_memory_is_bounded_though_each_call_differs(session, monkeypatch) -> None:
    monkeypatch.setattr(writers, "MAX_KNOWN", 100)
    monkeypatch.setattr(writers, "BATCH", 300)
    note(plain_function, *((n,) for n in range(2000)), args=("value",))
    assert len(session._known) <= 100
    assert len(session._details) <= 300
    assert [one["args"]["value"] for one in noted(session)] == list(range(2000))
    recorder = Recorder(session)
    for n in range(2000):
        recorder.push(Label(f"step {n}"), n)
        recorder.pop(None)
    session.flush()
    assert len(session._labels) <= 100
    found = parse_recording("r", b"".join(session.sink.lines).splitlines(keepends=True))
    assert [found.labels[n].__getitem__(0) for n in found.columns["ranges"][0]] == [
        f"step {n}" for n in range(2000)
    ]


def test_a_phase_ends_on_another_thread(threads) -> None:
    writer = Writer(Memory())
    recorder = Recorder(writer)
    handle = threads[0](lambda: recorder.start(Label("phase"), 7))
    threads[1](lambda: recorder.end(Label("phase"), handle))
    writer.flush()
    found = parse_recording("r", b"".join(writer.sink.lines).splitlines(keepends=True))
    assert rows(found) == [(("phase", None, None, None), 1, threads[0].number, 7, False)]


def test_another_recording_knows_the_threads_as_well(threads) -> None:
    recorder = Recorder(Writer(Memory()))
    threads[0](lambda: recorder.push(Label("open"), 1))
    after = Writer(Memory())
    recorder.switch_to(after)
    threads[0](lambda: recorder.pop(None))
    after.flush()
    found = parse_recording("r", b"".join(after.sink.lines).splitlines(keepends=True))
    assert found.threads[threads[0].number] == "thread \0 ж"
    assert len(rows(found)) == 1


def test_metadata_is_what_it_was_when_said() -> None:
    writer = Writer(Memory())
    said_ = {"a": [1], "\ud800": float("inf")}
    writer.about(said_)
    said_["a"].append(2)
    writer.flush()
    found = parse_recording("r", b"".join(writer.sink.lines).splitlines(keepends=True))
    assert found.metadata == {"a": [1], "\\ud800": "Infinity"}
    circle: dict[str, Any] = {}
    circle["c"] = circle
    for bad in ({"x": object()}, {(1, 2): 3}, circle):
        with pytest.raises(TypeError):
            writer.about(bad)


def test_nothing_is_written_after_the_end(tmp_path) -> None:
    writer = Writer(File(tmp_path / "r.jsonl"))
    writer.note(1, "key", {})
    writer.close()
    size = (tmp_path / "r.jsonl").stat().st_size
    writer.note(2, "key", {})
    writer.flush()
    assert (tmp_path / "r.jsonl").stat().st_size == size
