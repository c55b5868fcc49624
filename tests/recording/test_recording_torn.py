"""Recordings that are cut, damaged, of a newer version, or hold nothing: one clear line, or what is whole."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import importers
from bridge.annotate.label import Label
from bridge.annotate.recording.recorder import Recorder
from bridge.annotate.recording.sink import ENDING, File, Memory
from bridge.annotate.recording.writer import Writer
from bridge.importers.errors import NotAReport, NothingRecorded, ReportError
from bridge.importers.recording.lines import parse_recording
from bridge.importers.recording.read import read_lines


def recording() -> bytes:
    writer = Writer(Memory())
    recorder = Recorder(writer)
    for n in range(3):
        recorder.push(Label(f"outer {n}", "d"), n)
        recorder.push(Label("inner ж"), 0.5)
        recorder.pop(None)
        writer.note(n, n % 2, {"args": {"n": n}})
        recorder.mark(Label("here"), n)
        writer.flush()
        recorder.pop("d")
    recorder.push(Label("open"), 1)
    writer.flush()
    return b"".join(writer.sink.lines)


WHOLE = recording()
LINES = WHOLE.splitlines(keepends=True)


def events(lines: list[bytes]) -> dict[str, int]:
    """Count what is in whole lines, by JSON alone."""
    counted, opened = {"calls": 0, "ranges": 0, "marks": 0}, 0
    for line in lines:
        for kind, value in json.loads(line).items():
            if kind in counted:
                counted[kind] += len(value[0])
            elif kind == "open":
                opened = len(value[0])
    return counted | {"ranges": counted["ranges"] + opened}


@pytest.mark.slow
def test_cut_anywhere_it_holds_what_is_in_whole_lines() -> None:
    for size in range(len(WHOLE)):
        lines = WHOLE[:size].splitlines(keepends=True)
        if size < len(LINES[0]):
            with pytest.raises(
                NotAReport, match=r"^r: not a recording, or its writer was killed at once$"
            ):
                parse_recording("r", lines)
            continue
        found = parse_recording("r", lines)
        whole = [line for line in lines if line.endswith(b"\n")]
        assert found.torn == (len(whole) < len(lines))
        held = {kind: len(found.columns[kind][0]) for kind in ("calls", "ranges", "marks")}
        assert held == events(whole)


def test_no_cut_makes_a_range_both_ended_and_open() -> None:
    for last in range(1, len(LINES) + 1):
        label, _, _, start, _ = parse_recording("r", LINES[:last]).columns["ranges"]
        assert len(np.unique(np.stack([label, start]), axis=1).T) == len(label)


DAMAGE = [
    b"", b"null", b"[]", b"5", b'"ranges"', b"{", b'{"calls":5}', b'{"calls":[[1],[0],[0]]}', b'{"calls":[[1,2],[0]]}',
    b'{"calls":[[1.5],[0]]}', b'{"calls":[["1"],[0]]}', b'{"calls":[[-1],[0]]}', b'{"calls":[[true],[0]]}', b'{"calls":[[[1]],[0]]}',
    b'{"calls":[[99999999999999999999],[0]]}', b'{"calls":[[null],[0]]}', b'{"calls":{"a":1,"b":2}}', b'{"labels":[1]}',
    b'{"labels":{"x":["a",null,null,null]}}', b'{"labels":{"9":["a",null,null]}}', b'{"labels":{"9":[1,null,null,null]}}',
    b'{"labels":{"9":["a",null,null,-7]}}', b'{"labels":{"9":["\\ud800",null,null,null]}}', b'{"details":[]}', b'{"threads":5}', b'{"metadata":5}',
    b'{"ranges":[[0],[2],[1],[1],[2],[0]]}', b'{"ranges":[[0],[0],[1],[5],[2],[0]]}', b'{"ranges":[[0],[0],[-1],[1],[2],[0]]}',
    b'{"ranges":[[0],[0],[1],[1],[2],[99999999999999999999]]}', b'{"ranges":[[0],[0],[1],[1],[9223372036854775807],[0]]}',
    b'{"marks":[[0],[1],[-5],[0]]}', b"\xff\xfe", b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("line", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_line_is_named(line: bytes) -> None:
    lines = [*LINES[:3], line + b"\n", *LINES[3:]]
    with pytest.raises(NotAReport, match=r"^r: line 4 is damaged; copy the file again$"):
        read_lines("r", lines)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"marks":[[77],[1],[5],[0]]}', "names"),
        (b'{"ranges":[[-1],[0],[1],[1],[2],[0]]}', "names"),
        (b'{"calls":[[9],[77]]}', "details"),
    ],
)
def test_what_is_not_defined_is_missing(line: bytes, what: str) -> None:
    with pytest.raises(NotAReport, match=f"^r: {what} are missing; copy the file again$"):
        read_lines("r", [*LINES, line + b"\n"])


def test_lines_of_definitions_left_out_are_missing() -> None:
    for kind, what in ((b'{"labels"', "names"), (b'{"details"', "details")):
        with pytest.raises(NotAReport, match=f"^r: {what} are missing"):
            parse_recording("r", [line for line in LINES if not line.startswith(kind)])


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=3))
def test_any_damage_is_read_or_refused_in_one_line(at: int, bytes_: bytes) -> None:
    damaged = WHOLE[:at] + bytes_ + WHOLE[at + len(bytes_) :]
    try:
        read_lines("r", damaged.splitlines(keepends=True)).ranges.to_pandas().to_string()
    except ReportError as error:
        problem = str(error)
    else:
        return
    assert "\n" not in problem


def changed(**more: Any) -> bytes:
    return json.dumps(json.loads(LINES[0]) | more, separators=(",", ":")).encode() + b"\n"


def test_a_newer_version_says_so() -> None:
    newer = changed(format="bridge.recording/2")
    assert newer.startswith(b'{"format"')
    with pytest.raises(NotAReport, match=r"^r: a recording of a newer nsight-bridge \(format 2\)$"):
        parse_recording("r", [newer, b"\x00 of a new kind\n"])
    only = json.dumps({"format": "bridge.recording/22"}).encode() + b"\n"
    with pytest.raises(NotAReport, match="newer"):
        parse_recording("r", [only])


@pytest.mark.parametrize(
    "more", [{"pid": -1}, {"pid": "x"}, {"pid": 1 << 24}, {"epoch_ns": None}, {"monotonic_ns": 1.5}]
)
def test_a_damaged_first_line_says_so(more: dict[str, Any]) -> None:
    with pytest.raises(NotAReport, match=r"^r: not a recording: its first line is damaged$"):
        parse_recording("r", [changed(**more)])


def test_what_is_of_a_kind_to_come_is_passed_over() -> None:
    lines = [*LINES[:2], b'{"colours":{"1":[2]}}\n', *LINES[2:]]
    assert len(read_lines("r", lines).ranges) == len(read_lines("r", LINES).ranges)


def test_a_session_without_times_is_no_profilers_report() -> None:
    """A limit of file size cuts the first write, which begins with names and threads."""
    first = next(at for at, line in enumerate(LINES) if b'"ranges"' in line)
    for cut in (1, len(LINES[first]) - 1):
        with pytest.raises(NothingRecorded, match=r"^r: a session that was cut before its first"):
            read_lines("r", [*LINES[:first], LINES[first][:cut]])
    with pytest.raises(NothingRecorded, match=r"^r: a session with no times"):
        read_lines("r", LINES[:first])


def test_an_empty_file_and_one_of_details_alone(tmp_path) -> None:
    empty, alone = tmp_path / "empty.jsonl", tmp_path / "alone.jsonl"
    empty.touch()
    with pytest.raises(NotAReport, match=r"empty\.jsonl: empty"):
        importers.load(empty)
    writer = Writer(Memory())
    writer.note(1, "key", {"args": {"n": 1}})
    writer.flush()
    alone.write_bytes(b"".join(writer.sink.lines))
    with pytest.raises(NothingRecorded, match=r"it belongs to a profiler's report; give that one$"):
        importers.load(alone)


def test_a_torn_report_says_so(tmp_path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(WHOLE[:-5])
    report = importers.load(path)
    assert (
        "torn.jsonl: cut in its last line; what was written before is complete" in report.warnings
    )


def test_an_exception_in_the_midst_of_writing_loses_nothing() -> None:
    """As Ctrl-C does, wherever it comes."""

    class Interrupted(Memory):
        times = 0

        def write(self, lines: bytes) -> None:
            self.times += 1
            if self.times % 2:
                raise KeyboardInterrupt
            super().write(lines)

    writer = Writer(Interrupted())
    recorder = Recorder(writer)
    for n in range(4):
        recorder.push(Label(f"range {n}"), n)
        recorder.pop(None)
        writer.note(n, n, {"args": {"n": n}})
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        writer.flush()
    found = parse_recording("r", b"".join(writer.sink.lines).splitlines(keepends=True))
    assert (
        found.payloads["ranges"].ints.tolist() == found.columns["calls"][0].tolist() == [0, 1, 2, 3]
    )


def test_only_the_user_writes_into_a_folder_made_without_a_umask(tmp_path):
    before = os.umask(0)
    try:
        File(tmp_path / "r.recordings" / f"a{ENDING}").write(b"{}\n")
    finally:
        os.umask(before)
    folder = tmp_path / "r.recordings"
    modes = [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())]
    assert modes == [0o755, 0o644]
