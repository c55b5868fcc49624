"""Under the real nsys the details of calls find their ranges, whichever way the recording is named."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import detailed
import pytest
from captures import exported, profiled
from command import bridge, done
from processes import PATH

from bridge import importers
from bridge.importers.errors import NotAReport

pytestmark = pytest.mark.slow


BLOCK = {"layer": "naïve \\ud800"}


def profile(nsys: str, folder: Path, *words: str, sidecar: Path | None = None) -> Path:
    """Profile the program in a folder and export the report there."""
    environ = {**os.environ, "PYTHONPATH": PATH}
    environ.pop("BRIDGE_SIDECAR", None)
    if sidecar:
        environ["BRIDGE_SIDECAR"] = str(sidecar)
    profiled(nsys, folder, sys.executable, detailed.__file__, *words, env=environ)
    return exported(nsys, folder / "report.nsys-rep")


@pytest.fixture(scope="module")
def once(nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return profile(nsys, tmp_path_factory.mktemp("once"))


@pytest.fixture
def recorded(once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the report with its recording, in a folder of their own."""
    monkeypatch.delenv("BRIDGE_SIDECAR", raising=False)
    for path in (once, recording(once)):
        shutil.copy2(path, tmp_path)
    return tmp_path / once.name


def recording(report: Path) -> Path:
    (found,) = report.parent.glob("bridge-*.jsonl")
    return found


def details(report: Path, *words: str | Path) -> dict[str, list[dict[str, Any]]]:
    ranges = importers.load(report, sidecar=words).ranges.to_pandas().sort_values("start")
    found: dict[str, list[dict[str, Any]]] = {}
    for name, text in zip(ranges["name"], ranges["json"], strict=True):
        found.setdefault(name, []).append(json.loads(text) if text else {})
    return found


def assert_complete(found: dict[str, list[dict[str, Any]]], first: int = 0) -> None:
    assert [one["shapes"] for one in found["mm"]] == [[[2, n], [n, 5]] for n in (1, 2, 3)]
    assert [one["output_shapes"] for one in found["mm"]] == [[[2, 5]]] * 3
    assert [one["flops"] for one in found["mm"]] == [2 * 2 * 5 * n for n in (1, 2, 3)]
    numbered = found["numbered"]
    assert [one["args"] for one in numbered] == [{"n": first + n, "axis": True} for n in (1, 2, 3)]
    assert [one["flops"] for one in numbered] == [10 * (first + n) for n in (1, 2, 3)]
    (block,) = found["block"]
    assert block["shapes"] == [[7]]
    assert block["args"] == BLOCK


def test_the_recording_beside_the_report_is_found(recorded) -> None:
    assert_complete(details(recorded))


def test_without_it_there_are_no_details(recorded) -> None:
    recording(recorded).unlink()
    assert all(one == {} for calls in details(recorded).values() for one in calls)


def test_the_table_has_the_columns_and_the_store_keeps_them(recorded, folder) -> None:
    before = {path: path.stat().st_mtime_ns for path in recorded.parent.iterdir() if path.is_file()}
    table = ("--by", "range", "--arguments", "--format", "csv")
    direct = done("report", *table, recorded)
    assert {
        "shapes",
        "dtypes",
        "output_shapes",
        "flops",
        "bytes",
        "args.n",
        "args.axis",
        "args.layer",
    } <= set(direct.splitlines()[0].split(","))
    done("import", "-q", "--db", "x.db", recorded)
    for path in (recorded, recording(recorded)):
        path.rename(path.with_name(f"away {path.name}"))
    assert done("report", *table, "--db", "x.db", "--run", "1") == direct
    after = {
        path.with_name(path.name.removeprefix("away ")): path.stat().st_mtime_ns
        for path in recorded.parent.iterdir()
        if path.is_file()
    }
    assert after == before


def test_the_folder_of_the_environment(recorded, tmp_path, monkeypatch) -> None:
    (tmp_path / "aside").mkdir()
    recording(recorded).rename(tmp_path / "aside" / recording(recorded).name)
    assert not details(recorded)["mm"][0]
    monkeypatch.setenv("BRIDGE_SIDECAR", str(tmp_path / "aside"))
    assert_complete(details(recorded))


@pytest.mark.parametrize("number", ["", ".2"])
def test_the_folder_of_a_report(recorded, monkeypatch, number) -> None:
    """The folder that `bridge run` fills; nsys numbers the reports of several capture ranges."""
    monkeypatch.delenv("BRIDGE_SIDECAR", raising=False)
    folder = recorded.with_name("own.recordings")
    folder.mkdir()
    path = recording(recorded)
    path.rename(folder / path.name)
    own = recorded.rename(recorded.with_name(f"own{number}{recorded.suffix}"))
    assert_complete(details(own))
    assert not details(own.rename(own.with_name(f"another{recorded.suffix}")))["mm"][0]


def test_a_recording_that_is_named_and_a_folder_of_them(recorded, tmp_path) -> None:
    (tmp_path / "aside").mkdir()
    named = recording(recorded).rename(tmp_path / "aside" / "any name")
    assert_complete(details(recorded, named))
    found = recording_in(named)
    assert_complete(details(recorded, found.parent))
    assert '"n": 3' not in done("report", recorded)
    assert "args.n" in done(
        "report", "--by", "range", "--arguments", "--format", "csv", "--sidecar", found, recorded
    )


def recording_in(named: Path) -> Path:
    return named.rename(named.with_name("bridge-x.jsonl"))


def changed(path: Path, **more: Any) -> None:
    """Change what a recording says of its process."""
    first, _, rest = path.read_bytes().partition(b"\n")
    head = json.loads(first)
    more = {key: value(head[key]) if callable(value) else value for key, value in more.items()}
    path.write_bytes(json.dumps(head | more, separators=(",", ":")).encode() + b"\n" + rest)


def test_a_stale_recording_of_the_same_process_is_not_taken(recorded) -> None:
    path = recording(recorded)
    hour = 3600 * 10**9
    for begun, written in ((-2 * hour, -hour), (hour, 2 * hour)):  # before, and after
        was = path.read_bytes(), path.stat().st_mtime_ns
        changed(path, epoch_ns=lambda ns, begun=begun: ns + begun)
        os.utime(path, ns=(was[1], was[1] + written))
        assert not details(recorded)["mm"][0]
        assert_complete(details(recorded, path))  # unless it is named
        path.write_bytes(was[0])
        os.utime(path, ns=(was[1], was[1]))
    old = path.with_name("bridge-0.jsonl")
    shutil.copy(path, old)  # copied later: its file is new, but not what it says
    old.write_bytes(old.read_bytes().replace(b'"flops":10', b'"flops":77'))
    changed(old, epoch_ns=lambda ns: ns - hour)
    assert_complete(details(recorded))


def test_a_recording_of_another_process_is_refused(recorded) -> None:
    path = recording(recorded)
    changed(path, pid=lambda pid: pid + 1)
    assert not details(recorded)["mm"][0]
    refused = bridge("report", "--by", "range", "--arguments", "--sidecar", path, recorded)
    assert refused.exit_code == 1
    assert (
        refused.stderr
        == f"Error: {path.name}: recorded by no process of report.sqlite; to which report does it belong?\n"
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "{path}: No such file or directory"),
        (b"", "x.jsonl: not a recording of nsight-bridge"),
        (b"SQLite format 3\0", "x.jsonl: not a recording of nsight-bridge"),
        (
            b'{"format":"bridge.recording/9"}\n',
            "x.jsonl: a recording of a newer nsight-bridge (format 9)",
        ),
    ],
)
def test_what_is_named_and_is_no_recording_is_refused(recorded, tmp_path, content, line) -> None:
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotAReport) as caught:
        importers.load(recorded, sidecar=[path])
    assert str(caught.value) == line.format(path=path)


def test_a_damaged_one_beside_the_report_is_a_warning(recorded) -> None:
    path = recording(recorded)
    with path.open("ab") as file:
        file.write(b'{"calls":5}\n')
    found = importers.load(recorded)
    assert any(
        path.name in line and "its calls are without details" in line for line in found.warnings
    )
    with pytest.raises(NotAReport, match="is damaged; copy the file again"):
        importers.load(recorded, sidecar=[path])


def test_a_torn_one_gives_what_is_whole(recorded) -> None:
    path = recording(recorded)
    with path.open("ab") as file:
        file.write(b'{"calls":[[1')
    assert_complete(details(recorded))


def test_two_processes_of_one_report_have_their_own(nsys, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("BRIDGE_SIDECAR", raising=False)
    report = profile(nsys, tmp_path, "twice")
    assert len([*tmp_path.glob("bridge-*.jsonl")]) == 2
    ranges = importers.load(report).ranges.to_pandas().sort_values("start")
    mine = ranges[ranges["name"] == "numbered"]
    assert mine["process"].nunique() == 2
    first: dict[int, set[int]] = {}
    for process, text in zip(mine["process"], mine["json"], strict=True):
        first.setdefault(process, set()).add(json.loads(text)["args"]["n"])
    assert sorted(map(sorted, first.values())) == [[1, 2, 3], [101, 102, 103]]
    assert set(mine["payload"].value_counts()) == {2}  # the ids are equal


def test_the_program_is_told_where_to_write(nsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BRIDGE_SIDECAR", str(tmp_path / "there"))
    report = profile(nsys, tmp_path, sidecar=tmp_path / "there")
    assert not [*tmp_path.glob("bridge-*")]
    assert len([*(tmp_path / "there").iterdir()]) == 1
    assert_complete(details(report))
