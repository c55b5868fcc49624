"""Scrubbed copies: planted secrets are gone from every byte, and bridge's figures are what they were."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from captures import exported, profiled, with_bridge
from command import assert_misused, assert_refused, bridge, done
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, small, thread
from real_parts import sampled

from bridge import importers
from bridge.importers.nsys.scrub import scrub
from bridge.importers.nsys.secrets import COMMON, Secrets

# What variables and hosts teach, whole words of it, in whatever case; and what they do not.
TAUGHT = {
    "x hunter22 y": "x (removed) y",
    "svc_user at pw12345": "(removed) at (removed)",
    "NODE17 and node17.cluster.example.org": "(removed) and (removed)",
    "the second line abcdefg12": "the second line (removed)",
    "padded sp4ced": "padded (removed)",
    "void k<float, false, true>(int)": "void k<float, false, true>(int)",
    "find_root xterm hunter": "find_root xterm hunter",
}
PLANTED = (
    "planted-env-9137",
    "planted-arg-5551",
    "hunter2",
    "alice",
    "node-17.cluster",
    "bob-the-user",
)


@pytest.fixture
def small_report(tmp_path: Path) -> Path:
    return small(tmp_path / "report.sqlite")


def planted(path: Path) -> Path:
    """Put secrets wherever exports of all versions hold such."""
    with closing(sqlite3.connect(path)) as database, database:
        run = database.execute
        run("CREATE TABLE IF NOT EXISTS TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        rows = [
            ("DeviceEnvironment", "API_TOKEN=planted-env-9137\0USER=alice\0TERM=xterm"),
            ("Hostname", "node-17.cluster"),
        ]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV (name, value) VALUES (?, ?)", rows)
        run("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        run("INSERT INTO META_DATA_CAPTURE VALUES ('COMMAND', 'python t.py planted-arg-5551')")
        run("INSERT INTO META_DATA_CAPTURE VALUES ('ENV', 'DB_PASSWORD=hunter2')")
        run(
            "CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)"
        )
        run("INSERT INTO StringIds VALUES (900001, 'the password is hunter2')")
        run("INSERT INTO StringIds VALUES (900002, '/home/alice/out.log')")
        run("INSERT INTO StringIds VALUES (900003, 'step with hunter2 of /home/alice/train.py')")
        run("INSERT INTO ProcessStreams VALUES (1, 900002, 900001)")
        run(
            "UPDATE NVTX_EVENTS SET textId = 900003, text = NULL WHERE rowid ="
            " (SELECT min(rowid) FROM NVTX_EVENTS WHERE eventType = 59)"
        )
        run("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_USER', 'bob-the-user')")
        run(
            "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_INPUT_PATH_ABS', '/home/alice/r.nsys-rep')"
        )
        run("CREATE TABLE OF_LATER_VERSIONS (id INTEGER, note TEXT, data BLOB)")
        run("INSERT INTO OF_LATER_VERSIONS VALUES (7, 'by alice', x'616c696365')")
        run("CREATE TABLE TARGET_INFO_NIC_INFO (GUID INTEGER, name TEXT)")
        run("INSERT INTO TARGET_INFO_NIC_INFO VALUES (883446597769376854, 'mlx5_0')")
        run("CREATE TABLE of_alice (id INTEGER)")
        run("UPDATE PROCESSES SET name = '/opt/alice/run-hunter2-node-17'")
        run("CREATE VIEW who AS SELECT 'alice' AS name")
        run("CREATE TRIGGER leak AFTER INSERT ON StringIds BEGIN SELECT 'alice'; END")
        run("CREATE TABLE gone (note TEXT)")
        run("INSERT INTO gone VALUES ('alice was here')")
        run("DROP TABLE gone")
    return path


@pytest.mark.slow
def test_planted_secrets_are_gone_from_every_byte(small_report: Path, tmp_path: Path) -> None:
    source, target = planted(small_report), tmp_path / "shared.sqlite"
    before = source.read_bytes()
    assert all(word.encode() in before for word in PLANTED)
    said = done("scrub", source, target)
    after = target.read_bytes()
    assert not [word for word in PLANTED if word.encode() in after]
    assert source.read_bytes() == before
    for line in (
        "2 rows of TARGET_INFO_SYSTEM_ENV",
        "2 rows of META_DATA_CAPTURE",
        "1 rows of ProcessStreams",
        "in them 4 environment variables",
        "2 texts that nothing in it refers to",
        "2 texts in META_DATA_EXPORT.value",
        "1 texts in OF_LATER_VERSIONS.note",
        "1 texts in OF_LATER_VERSIONS.data",
        "in names that stay:",
        "2 × value of a secret variable or argument",
    ):
        assert line in said
    assert "step with (removed) of …/train.py" in done(
        "report", target, "--by", "range", "--format", "csv"
    )
    with closing(sqlite3.connect(target)) as database:
        kinds = {kind for (kind,) in database.execute("SELECT DISTINCT type FROM sqlite_schema")}
        assert kinds == {"table"}
        assert database.execute("SELECT id FROM OF_LATER_VERSIONS").fetchall() == [(7,)]
        assert database.execute("SELECT GUID FROM TARGET_INFO_NIC_INFO").fetchall() == [(None,)]
        names = {name for (name,) in database.execute("SELECT name FROM PROCESSES")}
        assert names == {"run-(removed)-(removed)"}


FACTS = [{"NvDriverVersion": "0"}, {"HasDiscreteGpu": "0"}, {"NvDriverVersion": "535.54.03"}, {}]


@pytest.mark.parametrize("facts", FACTS)
def test_whether_the_machine_has_a_gpu_stays(tmp_path: Path, facts: dict[str, str]) -> None:
    made, source, target = Made(), tmp_path / "report.sqlite", tmp_path / "shared.sqlite"
    made.annotation(PUSH_POP, 1_000, 2_000, text="step", thread=thread(100))
    environment = {"Hostname": "node-17", "DeviceEnvironment": "API_TOKEN=planted-env-9137"}
    made.tables["system"] += [
        {"name": name, "value": value} for name, value in {**environment, **facts}.items()
    ]
    made.written(source)
    assert "2 rows of TARGET_INFO_SYSTEM_ENV" in done("scrub", source, target)
    before, after = (importers.load(path).warnings for path in (source, target))
    assert [line.replace("report", "shared") for line in before] == list(after)
    with closing(sqlite3.connect(target)) as database:
        rows = database.execute("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall()
    assert dict(rows) == facts


@pytest.mark.parametrize("value", ["535.54 alice", "alice", "", ".5", b"0", None])
def test_a_fact_of_the_machine_that_is_no_version_goes(
    small_report: Path, tmp_path: Path, value: object
) -> None:
    with closing(sqlite3.connect(small_report)) as database, database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
        rows = [("NvDriverVersion", value), ("nvdriverversion", "0"), (None, "0")]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", rows)
    assert scrub(small_report, tmp_path / "x.sqlite").rows["TARGET_INFO_SYSTEM_ENV"] == 3
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        assert database.execute("SELECT * FROM TARGET_INFO_SYSTEM_ENV").fetchall() == []


def test_an_address_in_the_place_of_a_version_goes(small_report: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(small_report)) as database, database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
        database.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('NvDriverVersion', '10.1.2.3')"
        )
    scrub(small_report, tmp_path / "x.sqlite")
    assert b"10.1.2.3" not in (tmp_path / "x.sqlite").read_bytes()


def test_only_of_processes_a_column_called_name_keeps_a_part_of_a_path(
    small_report: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(small_report)) as database, database:
        database.execute("CREATE TABLE OF_LATER_VERSIONS (id INTEGER, name TEXT)")
        database.execute("INSERT INTO OF_LATER_VERSIONS VALUES (7, '/opt/secret')")
        database.execute("UPDATE PROCESSES SET name = '/opt/secret/train'")
    scrub(small_report, tmp_path / "shared.sqlite")
    with closing(sqlite3.connect(tmp_path / "shared.sqlite")) as database:
        assert database.execute("SELECT * FROM OF_LATER_VERSIONS").fetchall() == [(7, None)]
        assert database.execute("SELECT DISTINCT name FROM PROCESSES").fetchall() == [("train",)]


@pytest.mark.slow
def test_figures_of_every_profile_stay(corpus: Path, tmp_path: Path) -> None:
    compared = 0
    for path in sampled((corpus / "nsys").glob("*.sqlite")):
        try:
            original = importers.load(path)
        except importers.ReportError:
            continue
        scrub(path, tmp_path / path.name)
        copied = importers.load(tmp_path / path.name)
        for name in ("ranges", "launches", "activities", "waits", "memory", "threads", "devices"):
            was, found = (getattr(of, name).to_pandas() for of in (original, copied))
            pd.testing.assert_frame_equal(found, was, check_categorical=False)
        assert copied.facts[0].product == original.facts[0].product
        assert copied.warnings == original.warnings
        compared += 1
    assert compared >= 4


@pytest.mark.slow
def test_a_real_capture_keeps_its_ranges_and_no_secret(nsys: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bridge import nvtx_op\nwith nvtx_op('visible'):\n    print('the password is hunter2')\n",
        encoding="utf-8",
    )
    words = (sys.executable, program.name, "--key", "planted-arg-5551")
    profiled(nsys, tmp_path, *words, env=with_bridge(API_TOKEN="planted-env-9137"))
    source, target = exported(nsys, tmp_path / "report.nsys-rep"), tmp_path / "shared.sqlite"
    before = source.read_bytes()
    planted_there = [
        w for w in ("planted-env-9137", "hunter2", str(tmp_path)) if w.encode() in before
    ]
    assert "planted-env-9137" in planted_there
    done("scrub", source, target)
    assert not [word for word in planted_there if word.encode() in target.read_bytes()]
    assert "visible" in done("report", target, "--by", "op")
    warnings = [importers.load(path).warnings for path in (source, target)]
    assert warnings[1] == tuple(
        line.replace("report.sqlite", "shared.sqlite") for line in warnings[0]
    )


@pytest.mark.slow
def test_reports_and_pages_never_print_them(small_report: Path, tmp_path: Path) -> None:
    source = planted(small_report)
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    shown = [
        done("report", source, "--by", view, "--format", form)
        for view in ("op", "kernel", "process", "range")
        for form in ("table", "json", "csv", "md")
    ]
    done("html", source, "-o", page)
    done("trace", source, "-o", trace)
    # The name of the host tells ranks apart in a trace, and stands nowhere else.
    text = trace.read_text(encoding="utf-8").replace("node-17.cluster", "")
    shown += [page.read_text(encoding="utf-8"), text, done("advise", source)]
    never = [
        word for word in PLANTED if word not in {"hunter2", "alice"}
    ]  # these are in a range's name
    assert not [word for word in never for text in shown if word in text]


def test_the_output_is_an_argument_or_an_option(
    small_report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, words in {"a": ["a"], "b": ["-o", "b"], "c": ["--output", "c"]}.items():
        assert done("scrub", small_report, *words).startswith(f"{name}: a copy without\n")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b == c
    for words in ([], ["d", "-o", "e"]):
        assert_misused(bridge("scrub", small_report, *words), "name one output: OUT, or -o OUT")


@pytest.mark.slow
def test_what_is_no_export_is_refused_and_nothing_written(
    small_report: Path, tmp_path: Path
) -> None:
    other, target = tmp_path / "x.sqlite", tmp_path / "out.sqlite"
    other.write_bytes(b"no database" * 100)
    assert_refused(bridge("scrub", other, target), "x.sqlite", "not an SQLite database")
    other.unlink()
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE t (a)")
    assert_refused(bridge("scrub", other, target), "not an Nsight Systems export")
    damaged = bytearray(small_report.read_bytes())
    damaged[5000:9000] = b"\xff" * 4000
    other.write_bytes(damaged)
    assert_refused(bridge("scrub", other, target), "x.sqlite", "damaged")
    assert_misused(bridge("scrub", small_report, small_report), "the report itself")
    assert_refused(bridge("scrub", small_report, tmp_path / "none" / "out.sqlite"), "no folder")
    assert not target.exists()
    target.write_text("precious", encoding="utf-8")
    assert_refused(bridge("scrub", small_report, target), "exists")
    assert target.read_text(encoding="utf-8") == "precious"
    done("scrub", small_report, target, "--force")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/a/train.py:12", "…/train.py:12"),
        ("open(/tmp/x/y.bin)", "open(…/y.bin)"),
        (r"C:\Users\bob\m.py", "…/m.py"),
        ("/layers/0/attn", "/layers/0/attn"),
        ("/model/layers.0/self_attn/MatMul", "/model/layers.0/self_attn/MatMul"),
        ("a/b", "a/b"),
        ("void kernel<float, 128>(float*)", "void kernel<float, 128>(float*)"),
        ("/home/alice", "…/"),
        ("/home/John Doe/x.py", "…/x.py"),
        ("C:\\Users\\John Doe\\train.py", "…/train.py"),
        ("~bob/x/y.py and ~Destructor()", "…/y.py and ~Destructor()"),
        ("/data/bob/x", "…/x"),
        ("/run/user/1000", "…/1000"),
        ("/root", "…/"),
    ],
)
def test_folders_of_machines_go_and_names_of_layers_stay(text: str, expected: str) -> None:
    assert Secrets().clean([text]) == [expected]


@pytest.mark.parametrize(("text", "expected"), TAUGHT.items())
def test_values_of_secret_variables_and_hosts_go(text: str, expected: str) -> None:
    secrets = Secrets()
    secrets.learn_environment(
        "TOKENIZERS_PARALLELISM=false\0USER=root\0MYSQL_PWD=hunter22\0TERM=xterm\0HF_TOKEN= sp4ced "
        "\0DATABASE_URL=postgres://svc_user:pw12345@db/x\0KEY=-----BEGIN\nabcdefg12"
    )
    secrets.learn_facts((), ["node17.cluster.example.org"])
    assert secrets.clean([text]) == [expected]


def test_a_word_goes_where_it_stands_twice_in_a_row() -> None:
    secrets = Secrets()
    secrets.add(["key0_"], "word")
    assert secrets.clean(["key0_key0_", "monkey0_"]) == ["(removed)(removed)", "monkey0_"]


def is_secret(word: str) -> bool:
    """Tell whether a word is one that goes, by docs/scrub.md, and is not what stands in its place."""
    plain = word.lower() in {*COMMON, "removed"} or not any(c.isalpha() for c in word)
    return len(word) >= 4 and not plain


SECRET_WORDS = st.text("abAB01é_.-+", min_size=4, max_size=8) | st.sampled_from(
    ["true", "localhost", "removed", "0000", "1.5-2"]
)


@pytest.mark.slow
@given(st.lists(SECRET_WORDS, min_size=1, max_size=4), st.data())
def test_no_word_that_was_learnt_survives(words: list[str], data: st.DataObject) -> None:
    between = st.sampled_from(words) | st.text(" a0_/(é", max_size=4)
    text = "".join(data.draw(st.lists(between, max_size=8)))
    secrets = Secrets()
    secrets.add(words, "word")
    (cleaned,) = secrets.clean([text])
    for word in filter(is_secret, words):
        whole = (
            rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"  # asked for again, of what is left
        )
        assert not re.search(whole, cleaned, re.IGNORECASE), (word, text)
