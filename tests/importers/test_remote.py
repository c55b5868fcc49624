"""Reports at URLs: what is fetched, what it is called, what is said where it fails, and that nothing is left."""

from __future__ import annotations

import errno
import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from columnar import as_arrowdir, tables_of
from command import assert_misused, assert_refused, bridge, done, inside
from made_reports import report, small
from served import served

import bridge as product
from bridge.importers import remote
from bridge.importers.errors import ReportError
from bridge.importers.remote import Url

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
SECRET = "hidden"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Take a folder for temporary files of which nothing may be left at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert inside(folder) == []
    assert not remote._origins


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Make two reports, one with a recording of nsys beside its export, and one of tables."""
    folder = tmp_path / "run"
    folder.mkdir()
    small(folder / "a.sqlite")
    (folder / "a.nsys-rep").write_bytes(b"exported already")
    report(folder / "b.sqlite", steps=3, pids=(100, 101))
    as_arrowdir(tables_of(folder / "b.sqlite"), folder / "c_arwdir")
    return folder


@pytest.fixture
def memory(run_folder: Path) -> Iterator[str]:
    """Put them into memory://, and give the URL of their folder."""
    system = fsspec.filesystem("memory")
    system.put(str(run_folder), "/run", recursive=True)
    yield "memory://run"
    system.rm("/run", recursive=True)


@pytest.fixture
def http(run_folder: Path) -> Iterator[str]:
    """Serve them, and give the URL of their folder with a password."""
    (run_folder / "broken.sqlite").write_bytes(b"y")
    with served(run_folder) as place:
        yield f"http://user:{SECRET}@{place}"


def test_a_report_at_a_url_gives_what_the_file_gives(memory, run_folder) -> None:
    for name in ("a.sqlite", "c_arwdir"):
        assert done("report", f"{memory}/{name}", "--format", "csv") == done(
            "report", run_folder / name, "--format", "csv"
        )


def test_patterns_and_folders_stand_for_one_report_per_capture(memory) -> None:
    columns = ("--by", "report", "--columns", "kernels", "--format", "csv")
    every = done("report", memory, *columns)
    assert sorted(line.split(",")[0] for line in every.splitlines()[1:]) == [
        "a.sqlite", "b.sqlite", "c_arwdir"
    ]  # fmt: skip
    assert done("report", f"{memory}/", *columns) == every
    assert done("report", f"{memory}/*[er]", *columns, "--workers", "1") == every
    assert "c_arwdir" not in done("report", f"{memory}/?.sql*", *columns)


def test_the_store_knows_a_report_by_its_content_wherever_it_is(memory, run_folder, folder) -> None:
    bridge("import", run_folder / "a.sqlite", "-q")
    assert "already imported as run 1" in bridge("import", f"{memory}/a.sqlite", "-q").stderr
    bridge("import", f"{memory}/a.sqlite", f"{memory}/b.sqlite", "-q", "--workers", "1")
    again = bridge(
        "import", run_folder / "a.sqlite", run_folder / "b.sqlite", "-q", "--workers", "1"
    )
    assert "already imported as run 2" in again.stderr
    assert b"memory:" not in Path("bridge.db").read_bytes()


def test_the_other_commands_take_urls(memory, folder) -> None:
    one, two = f"{memory}/a.sqlite", f"{memory}/b.sqlite"
    for words in (
        ("diff", f"{one},{two}", two),
        ("trace", one, "-o", "trace.json"),
        ("why", one, "gemm"),
    ):
        assert bridge(*words).exit_code == 0
    assert product.load(one).source == ("a.sqlite",)
    assert product.load(one).capture.facts[0].path == one


def test_ranks_are_found_in_urls(memory) -> None:
    fsspec.filesystem("memory").copy("/run/a.sqlite", "/run/node7/a.sqlite")
    command = (
        "report",
        f"{memory}/node7/a.sqlite",
        "--by",
        "rank",
        "--columns",
        "rank",
        "--format",
        "csv",
    )
    assert done(*command, "--rank-from", r"node(\d)").splitlines()[1:] == ["7"]


def test_http(http, run_folder) -> None:
    one = f"{http}/a.sqlite?token={SECRET}"
    printed = bridge("report", one, "--by", "op")
    assert printed.exit_code == 0
    assert done("report", one, "--format", "csv") == done(
        "report", run_folder / "a.sqlite", "--format", "csv"
    )
    listed = bridge("report", f"{http}/", "--by", "report,op", "--format", "csv", "--workers", "1")
    assert "broken: http://127.0.0.1" in listed.stderr
    assert "b.sqlite" in listed.stdout
    assert SECRET not in printed.output + listed.output


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.sqlite", "none.sqlite: no such file"),
        ("refused.sqlite", "refused.sqlite: access refused (Forbidden)"),
        ("broken.sqlite", "broken.sqlite: the transfer broke off after"),
    ],
)
def test_a_failure_of_http_is_one_line_without_credentials(http, name, said) -> None:
    for more in ((), ("--workers", "1", "--strict")):
        result = bridge("report", f"{http}/{name}?token={SECRET}", *more)
        assert_refused(result, said)
        assert SECRET not in result.output
        debugged = bridge("--debug", "report", f"{http}/{name}?token={SECRET}", *more)
        assert debugged.stderr.endswith(result.stderr)
        assert "RemoteError: http://127.0.0.1" in debugged.stderr
        assert SECRET not in debugged.output


def test_debugging_shows_where_another_package_failed_but_not_what_it_says(
    memory, monkeypatch
) -> None:
    text = f"{SECRET} has expired"  # a part of a query, which no rule on URLs would find

    def fail(_self: object, _path: str, target: str) -> None:
        Path(target).write_bytes(b"a part")
        raise OSError(text) from KeyError(text)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", fail)
    debugged = bridge("--debug", "report", f"{memory}/a.sqlite")
    assert f"{memory}/a.sqlite: fetching it into" in debugged.stderr
    assert f"{memory}/a.sqlite: OSError caused by KeyError, raised by\n" in debugged.stderr
    assert "in fail" in debugged.stderr
    assert SECRET not in debugged.output


def test_a_host_that_does_not_answer_is_named(http) -> None:
    assert_refused(bridge("report", "http://127.0.0.1:1/a.sqlite"), "127.0.0.1:1", "Cannot connect")


def test_other_failures_are_one_line(memory, run_folder, monkeypatch) -> None:
    one = f"{memory}/a.sqlite"
    assert_refused(bridge("report", f"{memory}/none.sqlite"), f"{memory}/none.sqlite: no such file")
    assert_refused(bridge("report", f"{memory}/*.none"), f"{memory}/*.none: no such file")
    assert_refused(bridge("report", one, one), f"{one}: given twice")
    assert_refused(bridge("report", "unknown://x/a.sqlite"), "unknown://x/a.sqlite", "not known")
    assert_misused(bridge("report", one, "--sidecar", "s3://b/x.jsonl"), "a URL")
    fsspec.filesystem("memory").pipe("/run/text.sqlite", b"no report")
    assert_refused(bridge("report", f"{memory}/text.sqlite"), f"{memory}/text.sqlite")
    fsspec.filesystem("memory").pipe("/run/empty.sqlite", b"")
    assert_refused(bridge("report", f"{memory}/empty.sqlite"), f"{memory}/empty.sqlite: empty")
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda _: type("", (), {"free": 10}))
    assert_refused(bridge("report", one), one, "no space", "10 are free", "TMPDIR")


def test_a_disk_that_fills_up_meanwhile(memory, monkeypatch) -> None:
    def fail(_self: object, _path: str, target: str) -> None:
        Path(target).write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", fail)
    assert_refused(bridge("report", f"{memory}/a.sqlite"), "a.sqlite: no space", "disk is full")


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert_refused(bridge("report", "s3://b/a.sqlite"), "s3://b/a.sqlite: ", "pip install s3fs")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert_refused(bridge("report", "s3://b/a.sqlite"), "pip install 'nsight-bridge[remote]'")


@pytest.mark.parametrize(
    ("text", "shown", "name"),
    [
        (f"https://u:{SECRET}@host/run/my%20a.sqlite?sig={SECRET}#x", "https://host/run/my%20a.sqlite", "my a.sqlite"),
        (f"s3://key:{SECRET}@bucket/step=?/a.sqlite", "s3://bucket/step=?/a.sqlite", "a.sqlite"),
        (f"abfs://c/a.sqlite?sig={SECRET}", "abfs://c/a.sqlite", "a.sqlite"),
        (f"zip://in/a.sqlite::https://u:{SECRET}@h/b.zip?t={SECRET}", "zip://in/a.sqlite::https://h/b.zip", "a.sqlite"),
        (f"https://me:p/{SECRET}@host/a.sqlite", "https://...", "..."),
        (f"https://me:p?/{SECRET}#@host/a.sqlite?b=@{SECRET}", "https://...", "..."),
        (f"https://me:12/{SECRET}@host/a.sqlite?b={SECRET}", "https://...@host/a.sqlite", "a.sqlite"),
        (f"https://host:80/a.sqlite?b=c@{SECRET}", "https://host:80/a.sqlite", "a.sqlite"),
        (f"https://me:p@{SECRET}@host/a.sqlite", "https://host/a.sqlite", "a.sqlite"),
        ("https://host/me@x/a.sqlite", "https://host/me@x/a.sqlite", "a.sqlite"),
        ("s3://bucket/me@x/a.sqlite", "s3://bucket/me@x/a.sqlite", "a.sqlite"),
        (f"https://host/a.sqlite?sig=1 {SECRET}", "https://host/a.sqlite", "a.sqlite"),
        ("https://host/run/..", "https://host/run/..", "report"),
        ("s3://bucket/a_arwdir/", "s3://bucket/a_arwdir/", "a_arwdir"),
    ],
)  # fmt: skip
def test_urls_are_shown_without_credentials(text, shown, name) -> None:
    url = Url(text)
    assert (str(url), url.name) == (shown, name)
    assert SECRET not in repr(url)
    assert pickle.loads(pickle.dumps(url)) == url
    assert remote.without_credentials(f"failed: '{text}' (403)") == f"failed: '{shown}' (403)"


def test_a_message_of_another_package_has_no_part_of_a_query_or_password() -> None:
    for text in (
        f"https://h/a?x=1 {SECRET}",
        f"https://me:p/{SECRET}@h/a",
        f"https://h/a?x={SECRET} y z",
    ):
        assert SECRET not in remote.without_credentials(f"no answer from {text}")
    assert remote.without_credentials("no s3://b/a: try again") == "no s3://b/a: try again"
    refused = bridge("report", f"https://me:{SECRET}/w@127.0.0.1:9/a.sqlite")
    assert_refused(refused, "https://...: cannot be fetched; write /", "%2F")
    assert SECRET not in refused.stdout + refused.stderr


def test_a_question_mark_is_a_mark_but_in_http() -> None:
    assert Url("s3://b/a?.sqlite").is_pattern
    assert not Url("http://h/a?.sqlite").is_pattern
    assert not Url("s3://b/a[1].sqlite", "b/a[1].sqlite").is_pattern


def test_a_report_error_is_raised_where_python_loads(memory) -> None:
    with pytest.raises(ReportError, match=r"memory://run/none\.sqlite: no such file"):
        product.load(f"{memory}/none.sqlite")
