"""An output is written whole or not at all, whatever ends the command, and nothing is replaced unasked."""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib
import inspect
import json
import os
import resource
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import made_reports
import pytest
from click.testing import Result
from command import assert_misused, assert_refused, bridge, done, inside, unwarned
from real_parts import NIGHT

import bridge as bridge_api
from bridge import output
from bridge.output import OutputError

WRITERS = {
    "report.json": ["report", "--by", "range"],
    "report.txt": ["report"],
    "trace.json": ["trace"],
    "trace.json.gz": ["trace"],
}


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="session")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a report of some 200 KiB, without a warning."""
    return made_reports.small(tmp_path_factory.mktemp("input") / "report.sqlite", steps=300)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a report that takes some tenths of a second to write, and more than SQLite's cache."""
    return made_reports.small(tmp_path_factory.mktemp("input") / "large.sqlite", steps=4_000)


def rows(store: Path) -> list[str]:
    """Give everything that is in a store."""
    with closing(sqlite3.connect(store)) as connection:
        return list(connection.iterdump())


# -- where it may be written


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_an_output_that_exists_is_replaced_only_by_force(
    name: str, large_report: Path, folder: Path
) -> None:
    (folder / name).write_text("precious")
    assert_refused(bridge(*WRITERS[name], large_report, "-o", name), name, "exists", "--force")
    assert (folder / name).read_text() == "precious"
    done(*WRITERS[name], large_report, "-o", name, "--force")
    assert (folder / name).stat().st_size > 100
    assert inside(folder) == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_needs_its_folder(name: str, large_report: Path, folder: Path) -> None:
    result = bridge(*WRITERS[name], large_report, "-o", f"no/such/{name}")
    assert_refused(result, f"no/such/{name}", "there is no folder no/such")
    (folder / "file").touch()
    assert_refused(
        bridge(*WRITERS[name], large_report, "-o", f"file/{name}"), "there is no folder file"
    )
    assert inside(folder) == ["file"]


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("name", WRITERS)
def test_an_output_is_no_folder(
    name: str, force: list[str], large_report: Path, folder: Path
) -> None:
    (folder / name).mkdir()
    assert_refused(
        bridge(*WRITERS[name], large_report, "-o", name, *force), name, "a folder; name a file"
    )
    assert inside(folder) == [name]


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("name", WRITERS)
def test_a_pipe_or_device_is_not_replaced_by_a_file(
    name: str, force: list[str], large_report: Path, folder: Path
) -> None:
    os.mkfifo(folder / name)
    assert_refused(
        bridge(*WRITERS[name], large_report, "-o", name, *force), name, "a pipe or a device"
    )
    assert (folder / name).is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_takes_no_files_is_one_line(name: str, large_report: Path) -> None:
    """Nobody may make a file in /proc, root neither."""
    if not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    target = f"/proc/{name}"
    assert_refused(
        bridge(*WRITERS[name], large_report, "-o", target), target, "nothing was written"
    )


@pytest.mark.slow
def test_a_store_where_none_can_be_is_one_line(large_report: Path, folder: Path) -> None:
    (folder / "file").touch()
    (folder / "folder").mkdir()
    for db in ("no/such/bridge.db", "file/bridge.db", "folder"):
        assert_refused(bridge("import", large_report, "--db", db), db)
    assert inside(folder) == ["file", "folder"]
    assert not inside(folder / "folder")


def test_a_name_too_long_for_a_file_is_one_line(large_report: Path, folder: Path) -> None:
    for words in (["report"], ["trace"]):
        assert_refused(
            bridge(*words, large_report, "-o", f"{'x' * 300}.json"), "File name too long"
        )
    assert not inside(folder)


def test_a_trace_has_to_be_named(large_report: Path, folder: Path) -> None:
    assert_misused(bridge("trace", large_report), "-o trace.json.gz")
    assert_misused(bridge("trace", large_report, "-o", "trace.html"), ".json, .json.gz, .pftrace")
    assert not inside(folder)


# -- what is written


@pytest.mark.slow
def test_a_packed_trace_is_the_plain_one_in_the_same_bytes_every_time(
    large_report: Path, folder: Path
) -> None:
    for name in ("one.json", "one.json.gz", "two.json", "two.json.gz"):
        done("trace", large_report, "-o", name)
    one, two = ((folder / f"{name}.json").read_bytes() for name in ("one", "two"))
    assert one == two
    assert json.loads(one)["traceEvents"]
    packed, again = ((folder / f"{name}.json.gz").read_bytes() for name in ("one", "two"))
    assert packed == again
    assert packed[4:8] == bytes(4)  # no time of writing inside
    assert gzip.decompress(packed) == one


@pytest.mark.slow
def test_a_trace_is_packed_alike_without_the_fast_gzip(
    large_report: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    done("trace", large_report, "-o", "slow.json.gz")
    done("trace", large_report, "-o", "plain.json")
    assert (
        gzip.decompress((folder / "slow.json.gz").read_bytes())
        == (folder / "plain.json").read_bytes()
    )


def test_nothing_of_the_target_is_seen_before_the_end(folder: Path) -> None:
    target = folder / "x.txt"
    target.write_text("old")
    with output.whole(target, force=True) as draft:
        draft.write_text("new")
        assert target.read_text() == "old"
        assert draft.parent == folder
    assert target.read_text() == "new"
    assert inside(folder) == ["x.txt"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError, GeneratorExit])
def test_whatever_ends_it_leaves_nothing(kind: type[BaseException], folder: Path) -> None:
    target = folder / "x.txt"

    def half_way() -> None:
        with output.whole(target) as draft:
            draft.write_text("half")
            raise kind

    with pytest.raises(kind):
        half_way()
    assert not inside(folder)


def test_a_failure_that_is_not_of_the_output_is_not_taken_for_one(folder: Path) -> None:

    def written(then: Callable[[], object]) -> None:
        with output.whole(folder / "x.txt") as draft:
            draft.write_text("half")
            then()

    def fill() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(FileNotFoundError):
        written((folder / "elsewhere").read_text)
    with pytest.raises(OutputError, match=r"x\.txt: No space left on device; nothing was written"):
        written(fill)
    assert not inside(folder)


# -- several writers at once


def written_slowly(target: Path, letter: str, together: threading.Barrier | None = None) -> str:
    """Write a file in pieces; return the error, if there was one."""
    try:
        with output.whole(target) as draft, draft.open("w") as file:
            if together:
                together.wait(10)
            for _ in range(100):
                file.write(letter * 1_000)
                file.flush()
    except OutputError as error:
        return str(error)
    return ""


def test_threads_write_side_by_side(folder: Path) -> None:
    letters, together = "abcdefgh", threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda x: written_slowly(folder / x, x, together), letters))
    assert inside(folder) == list(letters)
    assert all((folder / x).read_text() == x * 100_000 for x in letters)


def test_one_of_several_writers_of_a_file_wins_and_the_others_say_so(folder: Path) -> None:
    target, together = folder / "x.txt", threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        errors = list(threads.map(lambda x: written_slowly(target, x, together), "abcdefgh"))
    lost = f"{target}: exists; give another name, or --force to replace it"
    assert sorted(errors) == ["", *[lost] * 7]
    assert target.read_text() == "abcdefgh"[errors.index("")] * 100_000
    assert inside(folder) == ["x.txt"]


def test_processes_with_the_same_number_write_side_by_side(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do containers that share a folder: the first process of each has the number 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with output.whole(folder / "a") as first, output.whole(folder / "b") as second:
        first.write_text("a")
        second.write_text("b")
    assert [(folder / name).read_text() for name in inside(folder)] == ["a", "b"]


def test_a_file_system_without_hard_links_takes_outputs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    output.write(folder / "x.txt", "new")
    with pytest.raises(OutputError, match="exists"):
        output.write(folder / "x.txt", "newer")
    assert (folder / "x.txt").read_text() == "new"


def test_an_output_has_the_permissions_of_any_new_file(folder: Path) -> None:
    (folder / "other.txt").touch()
    output.write(folder / "x.txt", "new")
    assert (folder / "x.txt").stat().st_mode == (folder / "other.txt").stat().st_mode


@pytest.mark.slow
def test_exports_of_two_reports_side_by_side_are_each_their_own(
    large_report: Path, large: Path, folder: Path
) -> None:
    """In threads of one process, as a service runs them."""
    reports = {"small": bridge_api.load(large_report), "large": bridge_api.load(large)}
    for name, one in reports.items():
        one.export_chrome_trace(folder / f"{name}-alone.json")
    with ThreadPoolExecutor(2) as threads:
        for n in range(4):
            written = {name: folder / f"{name}-{n}.json" for name in reports}
            list(threads.map(lambda x: reports[x[0]].export_chrome_trace(x[1]), written.items()))
            for name, path in written.items():
                assert path.read_bytes() == (folder / f"{name}-alone.json").read_bytes()


# -- a full disk


def full_after(pieces: int, error: BaseException) -> Callable[..., Iterator[bytes]]:
    """Stand in for the renderer of traces: some pieces come, then the disk is full."""

    def render(*given: object) -> Iterator[bytes]:
        yield from [b" " * 100_000] * pieces
        raise error

    return render


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_disk_full_half_way_leaves_what_was_there(
    name: str, large_report: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr("bridge.exports.chrome", full_after(3, full))
    assert_refused(bridge("trace", large_report, "-o", name), name, "No space left on device")
    assert not inside(folder)
    (folder / name).write_text("precious")
    result = bridge("trace", large_report, "-o", name, "--force")
    assert_refused(result, name, "No space left on device", "nothing was written")
    assert inside(folder) == [name]
    assert (folder / name).read_text() == "precious"


def command(*words: str | Path, first: str = "") -> list[str]:
    """Say how to run `bridge` in a process of its own, which does something else first."""
    code = f"{first}\nfrom bridge.__main__ import command; command('bridge')"
    return [sys.executable, "-c", code, *map(str, words)]


def buffered() -> dict[str, str]:
    """Give an environment in which standard output waits for its flush, as it does by default."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, **more)


def run_limited(size: int, *words: str | Path) -> Result:
    """Run `bridge` where no file can grow beyond a size: a full disk, as far as it can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # it would be cut, too
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            return bridge(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.json", "trace.json", "trace.json.gz"])
def test_a_file_that_cannot_grow_leaves_nothing(
    name: str, large_report: Path, folder: Path
) -> None:
    ran = run_limited(100, *WRITERS[name], large_report, "-o", name)
    assert_refused(ran, name, "File too large; nothing was written")
    assert not inside(folder)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100_000])
def test_a_store_that_cannot_grow_is_as_it_was(size: int, large_report: Path, folder: Path) -> None:
    assert_refused(run_limited(size, "import", large_report, "--quiet"), "bridge.db")
    assert not inside(folder)

    done("import", made_reports.small(folder / "first.sqlite"))
    before = rows(folder / "bridge.db")
    assert_refused(run_limited(size, "import", large_report, "--quiet"), "bridge.db")
    assert rows(folder / "bridge.db") == before
    assert inside(folder) == ["bridge.db", "first.sqlite"]
    done("import", large_report)
    assert len(done("runs", "list").splitlines()) == 2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount disks of some size; skip where nobody may."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        place = tmp_path / f"disk {len(mounted)}"
        place.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("nobody may mount a small disk here")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "64k", "128k", "200k"])
def test_a_full_disk_keeps_what_was_on_it_and_nothing_else(
    size: str, large_report: Path, folder: Path, tiny_disk: Callable[[str], Path]
) -> None:
    disk = tiny_disk(size)
    (disk / "trace.json").write_text("precious")
    words = (["trace"], ["report", "--by", "range", "--format", "json"])
    for one in words if size == "4k" else words[:1]:
        result = bridge(*one, large_report, "-o", disk / "trace.json", "--force")
        assert_refused(result, "trace.json", "No space left on device; nothing was written")
    assert_refused(
        bridge("import", large_report, "--db", disk / "bridge.db"), "bridge.db", "disk is full"
    )
    assert inside(disk) == ["trace.json"]
    assert (disk / "trace.json").read_text() == "precious"


@pytest.mark.slow
def test_a_disk_that_fills_up_later_keeps_no_journal_either(
    large: Path, tiny_disk: Callable[[str], Path]
) -> None:
    disk = tiny_disk("1m")
    assert_refused(bridge("import", large, "--db", disk / "bridge.db"), "bridge.db", "disk is full")
    assert not inside(disk)


@pytest.mark.slow
def test_a_store_on_a_full_disk_keeps_its_runs(
    large_report: Path, folder: Path, tiny_disk: Callable[[str], Path]
) -> None:
    store = tiny_disk("200k") / "bridge.db"
    done("import", made_reports.small(folder / "first.sqlite"), "--db", store)
    before = rows(store)
    assert_refused(bridge("import", large_report, "--db", store), "bridge.db", "disk is full")
    assert rows(store) == before
    assert inside(store.parent) == ["bridge.db"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json"])
def test_standard_output_that_is_full_is_one_line(form: str, large_report: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w") as full:
        words = command("report", large_report, "--format", form)
        to = {"stdout": full, "stderr": subprocess.PIPE, "env": buffered()}
        with subprocess.Popen(words, text=True, **to) as ran:
            _, said = ran.communicate(timeout=60)
    assert ran.returncode == 1
    assert unwarned(said) == "Error: standard output: No space left on device\n"


CLOSED = (  # words, status, the end of what stderr says
    (("report", "R"), 1, "Error: standard output: closed"),
    (("report", "R", "--format", "json"), 1, "Error: standard output: closed"),
    (("summary", "R"), 1, "Error: standard output: closed"),
    (("diff", "R", "R"), 1, "Error: standard output: closed"),
    (("flame", "R"), 1, "Error: standard output: closed"),
    (("doctor", "R"), 1, "Error: standard output: closed"),
    (("--help",), 1, "Error: standard output: closed"),
    (("report", "--help"), 1, "Error: standard output: closed"),
    (("--version",), 1, "Error: standard output: closed"),
    (("trace", "R", "-o", "t.json"), 0, "t.json: open it at https://ui.perfetto.dev"),
    (("absent",), 2, "Error: no command 'absent'; bridge --help shows all"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "status", "end"), CLOSED)
def test_standard_output_that_is_closed_is_one_line(
    words: tuple[str, ...], status: int, end: str, large_report: Path, folder: Path
) -> None:
    shell = shlex.join(command(*(large_report if word == "R" else word for word in words)))
    ran = subprocess.run(
        ["sh", "-c", f"exec {shell} >&-"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, unwarned(ran.stderr).splitlines()[-1]) == (status, end)
    assert "Traceback" not in ran.stderr
    silent = subprocess.run(["sh", "-c", f"exec {shell} --nothing <&- >&- 2>&-"], check=False)
    assert silent.returncode == 2


@pytest.mark.slow
def test_a_closed_output_never_gets_into_a_file(large_report: Path, folder: Path) -> None:
    """The system gives the number of a closed stream to the next file that is opened."""
    trace = shlex.join(command("trace", large_report, "-o", "t.json", "--force"))
    done("trace", large_report, "-o", "whole.json")
    for closed in (">&-", "2>&-", ">&- 2>&- <&-"):
        subprocess.run(["sh", "-c", f"exec {trace} {closed}"], check=True, capture_output=True)
        assert (folder / "t.json").read_bytes() == (folder / "whole.json").read_bytes()


LINKS = ("report", "summary", "doctor", "advise", "trace -o t.json", "html -o t.html", "diff R")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [*LINKS, "report --memory-limit 1GB", "report --workers 2 --strict R"]
)
@pytest.mark.parametrize("name", ["loop.sqlite", "loop.nsys-rep", "loop.ncu-rep"])
def test_a_link_to_itself_is_one_line(
    words: str, name: str, large_report: Path, folder: Path
) -> None:
    (folder / name).symlink_to(name)
    first, *others = words.split()
    named = [name, *(str(large_report) if word == "R" else word for word in others)]
    assert_refused(bridge(first, *named), name)


@pytest.mark.slow
def test_a_reader_that_stops_is_no_failure_worth_a_word(large_report: Path) -> None:
    words = command("report", large_report, "--by", "range", "--format", "json")
    to = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": buffered()}
    with subprocess.Popen(words, **to) as ran:
        assert ran.stdout
        assert ran.stderr
        assert ran.stdout.readline() == b"{\n"
        ran.stdout.close()
        assert not unwarned(ran.stderr.read().decode())


# -- interrupted

SIGNALS = [signal.SIGINT, signal.SIGTERM]
WHILE_IT_TRACES = {
    "reads": ("bridge.importers.sqlite_columns:Database.read", 1),
    "joins": ("bridge.join.attributed:attribute_with_phases", 1),
    "begins to write": ("bridge.exports:compressed", 1),
    "writes": ("bridge.render.text_columns:Micros.at", 2),
}
WHILE_IT_IMPORTS = {
    "reads": ("bridge.importers.sqlite_columns:Database.read", 1),
    "begins to store": ("bridge.store.bulk:_append", 1),
    "stores": ("bridge.store.bulk:_append", 4),
    "stores the summaries": ("bridge.store.saving:_reports", 1),
    "is about to finish": ("bridge.store.saving:_run", 1),
}
WHILE_IT_MAKES_A_STORE = {
    **WHILE_IT_IMPORTS,
    "makes the tables": ("bridge.store.tables:_summary_columns", 1),
}


def interrupt(place: tuple[str, int], patch: Callable[[object, str, object], None]) -> None:
    """Make the n-th call of a function send a signal to its own process, as a key press would."""
    where, left = place
    module, _, name = where.partition(":")
    *path, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for step in path:
        owner = getattr(owner, step)
    original = getattr(owner, last)

    def interrupted(*given: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), int(os.environ.get("INTERRUPT_BY", signal.SIGINT)))
        return original(*given, **named)

    patch(owner, last, interrupted)


def assert_interrupted(status: int, said: str, number: int = signal.SIGINT) -> None:
    assert (status, unwarned(said)) == (
        128 + number,
        "interrupted; nothing half-written was left\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize("module", ["bridge.cli", "click.core", "bridge.cli.summary", "numpy"])
def test_an_interrupt_while_modules_are_loaded_is_one_line_at_most(
    module: str, large_report: Path
) -> None:
    code = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from bridge.__main__ import command
command("bridge")
"""
    words = [sys.executable, "-c", code, "summary", large_report]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert unwarned(ended.stderr) in ("", "interrupted; nothing half-written was left\n")


@pytest.mark.slow
@pytest.mark.parametrize("when", WHILE_IT_TRACES)
@pytest.mark.parametrize(("name", "force"), [("new.json", []), ("old.json.gz", ["--force"])])
@pytest.mark.racy("a signal comes at a random moment")
def test_a_trace_interrupted_leaves_what_was_there(
    name: str,
    force: list[str],
    when: str,
    large_report: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "old.json.gz").write_text("precious")
    interrupt(WHILE_IT_TRACES[when], monkeypatch.setattr)
    result = bridge("trace", large_report, "-o", name, *force)
    assert_interrupted(result.exit_code, result.output)
    assert inside(folder) == ["old.json.gz"]
    assert (folder / "old.json.gz").read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("when", WHILE_IT_MAKES_A_STORE)
@pytest.mark.racy("a signal comes at a random moment")
def test_an_import_interrupted_leaves_no_new_store(
    when: str, large_report: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(WHILE_IT_MAKES_A_STORE[when], monkeypatch.setattr)
    result = bridge("import", large_report)
    assert_interrupted(result.exit_code, result.output)
    assert not inside(folder)


@pytest.mark.slow
@pytest.mark.parametrize("when", WHILE_IT_IMPORTS)
@pytest.mark.racy("a signal comes at a random moment")
def test_an_import_interrupted_leaves_a_store_as_it_was(
    when: str, large_report: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("import", made_reports.small(folder / "first.sqlite"))
    before = rows(folder / "bridge.db")
    interrupt(WHILE_IT_IMPORTS[when], monkeypatch.setattr)
    result = bridge("import", large_report)
    assert_interrupted(result.exit_code, result.output)
    assert rows(folder / "bridge.db") == before
    assert inside(folder) == ["bridge.db", "first.sqlite"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words", "place"),
    [
        (number, words, place)
        for own, words, place in (
            (signal.SIGINT, ["trace", "-o", "x.json.gz"], WHILE_IT_TRACES["writes"]),
            (signal.SIGTERM, ["import"], WHILE_IT_IMPORTS["stores"]),
        )
        for number in SIGNALS
        if NIGHT or number == own  # on changes each signal once: both end a command in one way
    ],
)
@pytest.mark.racy("a signal comes at a random moment")
def test_a_process_interrupted_leaves_nothing(
    number: signal.Signals,
    words: list[str],
    place: tuple[str, int],
    large_report: Path,
    folder: Path,
) -> None:
    needed = (
        "from __future__ import annotations\nimport importlib, os, signal\nfrom typing import Any\n"
    )
    first = f"{needed}{inspect.getsource(interrupt)}\ninterrupt({place!r}, setattr)"
    environ = {**os.environ, "INTERRUPT_BY": str(int(number))}
    ran = run(command(*words, large_report, first=first), env=environ)
    assert_interrupted(ran.returncode, ran.stdout + ran.stderr, number)
    assert not inside(folder)


@pytest.mark.slow
def test_an_interrupt_in_this_process_leaves_nothing(
    large_report: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.exports.chrome", full_after(3, KeyboardInterrupt()))
    result = bridge("trace", large_report, "-o", "trace.json")
    assert_interrupted(result.exit_code, result.output)
    assert not inside(folder)


SLOW_DISK = """
import time
from bridge import exports
made = exports.trace_pieces
exports.trace_pieces = lambda *given: (time.sleep(0.3) or piece for piece in made(*given))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.racy("a signal comes at a random moment")
def test_an_interrupt_from_outside_while_it_writes_leaves_nothing(
    number: signal.Signals, large: Path, folder: Path
) -> None:
    with subprocess.Popen(
        command("trace", large, "-o", "x.json.gz", first=SLOW_DISK), stderr=subprocess.PIPE
    ) as ran:
        until = time.monotonic() + 30
        while not inside(folder) and time.monotonic() < until:
            time.sleep(0.001)
        ran.send_signal(number)
        _, said = ran.communicate(timeout=30)
    assert_interrupted(ran.returncode, said.decode(), number)
    assert not inside(folder)


def gone(process: int) -> bool:
    """Wait for a process to end; one that nobody has asked for its status yet has ended too."""
    status = Path(f"/proc/{process}/stat")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if status.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


@pytest.mark.slow
@pytest.mark.racy("a signal comes at a random moment")
def test_an_interrupt_while_nsys_exports_ends_nsys_too(tmp_path: Path, folder: Path) -> None:
    nsys, begun, temporary = tmp_path / "bin" / "nsys", tmp_path / "begun", tmp_path / "temporary"
    nsys.parent.mkdir()
    temporary.mkdir()
    nsys.write_text(
        f"#!/bin/sh\necho $$ > '{begun}.part'; mv '{begun}.part' '{begun}'; exec sleep 60\n"
    )
    nsys.chmod(0o755)
    (folder / "report.nsys-rep").write_bytes(b"x" * 100)
    path = f"{nsys.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "TMPDIR": str(temporary)}
    words = command("trace", "report.nsys-rep", "-o", "x.json")
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environ) as ran:
        until = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.005)
        ran.send_signal(signal.SIGINT)
        _, said = ran.communicate(timeout=30)
    assert ran.returncode == 130, said
    assert not inside(temporary)
    assert inside(folder) == ["report.nsys-rep"]
    assert gone(int(begun.read_text()))


@pytest.mark.parametrize("command", ["report", "trace"])
def test_an_output_is_refused_before_any_report_is_read(command: str, tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text("mine", encoding="utf-8")
    result = bridge(command, tmp_path / "no such report.sqlite", "-o", there)
    assert_refused(result, "there.json: exists; give another name, or --force")


# -- Names as long as a file system allows


LONGEST = 255  # bytes of a name


@pytest.fixture
def longest(folder: Path) -> Path:
    """Give a report whose name no further byte fits into, in characters of two bytes."""
    ending = ".sqlite"
    room = LONGEST - len(ending)
    made = made_reports.report(folder / f"report{ending}", steps=1)  # no journal fits beside it
    return made.rename(folder / f"{'é' * (room // 2)}{'e' * (room % 2)}{ending}")


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["import", "--db", "x.db"],
        ["html", "-o", "p.html"],
        ["trace", "-o", "t.json"],
        ["trace", "--dialect", "torch", "-o", "."],
        ["scrub", "-o", "s.sqlite"],
        ["report", "--workers", "1"],
    ],
)
def test_a_report_may_have_the_longest_name(words: list[str], longest: Path) -> None:
    command, *options = words
    assert bridge(command, longest, *options).exit_code == 0
    for file in longest.parent.glob("*.pt.trace.json.gz"):
        assert gzip.decompress(file.read_bytes())
    assert "torch" not in words or len([*longest.parent.glob("*.pt.trace.json.gz")]) == 2


def test_a_page_of_the_longest_name_can_be_viewed(longest: Path, tmp_path: Path) -> None:
    result = bridge("view", longest, "--html", "--no-browser")
    assert result.exit_code == 0, result.output
    page = Path(result.stdout.strip())
    assert page.suffix == ".html"
    assert page.stat().st_size > 10_000
    page.unlink()
    page.parent.rmdir()


@pytest.mark.parametrize("stem", ["r", "r" * 300, "é" * 200])
def test_a_file_name_is_cut_at_its_stem(stem: str) -> None:
    name = output.file_name(stem, ".pftrace")
    assert len(name.encode()) <= LONGEST
    assert name == f"{stem[: len(name) - 8]}.pftrace"
    assert len(name.encode()) > LONGEST - 3 or name == f"{stem}.pftrace"
