"""Planted secrets: none of a kind that can be known survives, wherever it stands in an export."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge, done
from made_reports import small
from scrub.planted import BY_FORM, BY_NAME, parts

from bridge.importers.nsys.scrub import scrub
from bridge.importers.nsys.secrets import Rule, Secrets, is_random, rules

ENVIRONMENTS = ("DeviceEnvironment", "ENVIRONMENT_VARIABLE", "arguments", "arguments with =")


def run_of(path: Path, statements: Iterable[tuple[str, Sequence[object]]]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for sql, values in statements:
            database.execute(sql, values)


def rows_that_tell(place: str) -> list[tuple[str, str]]:
    """Return the rows of names and values by which an export tells all of ``BY_NAME``."""
    values = {name: value[0] for name, value in BY_NAME.items()}
    if place == "DeviceEnvironment":
        return [(place, "\0".join(f"{name}={value}" for name, value in values.items()))]
    if place == "ENVIRONMENT_VARIABLE":
        return [(f"PROCESS_3:{place}", f'{name}="{value}"') for name, value in values.items()]
    arguments = ["python", "train.py"]
    for name, value in values.items():
        option = f"--{name.lower().replace('_', '-')}"
        arguments += [f"{option}={value}"] if "=" in place else [option, value]
    # In no order: nsys numbers them.
    return [(f"PROCESS_1:ARGUMENT_{n}", argument) for n, argument in enumerate(arguments)][::-1]


def texts_in_all_places(path: Path, texts: Sequence[str]) -> None:
    """Write texts wherever an export keeps texts, and where it does not."""
    statements: list[tuple[str, Sequence[object]]] = [
        ("CREATE TABLE OF_LATER_VERSIONS (note TEXT, data BLOB)", ()),
        ("CREATE TABLE IF NOT EXISTS CUDA_GPU_MEMORY_USAGE_EVENTS (name TEXT)", ()),
    ]
    with closing(sqlite3.connect(path)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(NVTX_EVENTS)")]
    copied = ", ".join(c for c in columns if c not in {"text", "textId"})
    for number, text in enumerate(texts):
        around = f"step {number} of {text} ends"
        by_id = 700_000 + number
        statements += [
            ("INSERT INTO StringIds VALUES (?, ?)", (by_id, around)),
            (
                (
                    f"INSERT INTO NVTX_EVENTS ({copied}, text, textId) SELECT {copied}, NULL, ?"
                    " FROM NVTX_EVENTS WHERE eventType = 59 LIMIT 1"
                ),
                (by_id,),
            ),
            (
                (
                    f"INSERT INTO NVTX_EVENTS ({copied}, text, textId) SELECT {copied}, ?, NULL"
                    " FROM NVTX_EVENTS WHERE eventType = 59 LIMIT 1"
                ),
                (f"({text})",),
            ),
            ("INSERT INTO OF_LATER_VERSIONS VALUES (?, ?)", (text, text.encode())),
            ("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (name) VALUES (?)", (text,)),
            ("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_INPUT_PATH', ?)", (text,)),
        ]
    run_of(path, statements)


def survivors(path: Path, words: Iterable[str]) -> list[str]:
    content = path.read_bytes()
    return [word for word in words if word.encode() in content]


@pytest.mark.slow
@pytest.mark.parametrize("place", ENVIRONMENTS)
def test_what_the_environment_tells_goes_everywhere(place: str, tmp_path: Path) -> None:
    source, target = small(tmp_path / "r.sqlite"), tmp_path / "out.sqlite"
    words = sorted({word for value in BY_NAME.values() for word in parts(value)})
    texts_in_all_places(source, words)
    table = "TARGET_INFO_SYSTEM_ENV" if place == "DeviceEnvironment" else "META_DATA_CAPTURE"
    rows = [
        (f"INSERT INTO {table} (name, value) VALUES (?, ?)", row) for row in rows_that_tell(place)
    ]
    run_of(source, [(f"CREATE TABLE IF NOT EXISTS {table} (name TEXT, value TEXT)", ()), *rows])
    assert len(survivors(source, words)) > 0.9 * len(words)  # some are written with an escape
    scrub(source, target)
    assert survivors(target, words) == []


@pytest.mark.slow
def test_what_has_a_known_form_goes_without_being_told(tmp_path: Path) -> None:
    source, target = small(tmp_path / "r.sqlite"), tmp_path / "out.sqlite"
    words = sorted({word for value in BY_FORM.values() for word in parts(value)})
    texts_in_all_places(source, [value[0] for value in BY_FORM.values()])
    assert survivors(source, words) == words
    removals = scrub(source, target)
    assert survivors(target, words) == []
    assert {"AWS key", "GitHub token", "folder", "e-mail address"} <= removals.replaced.keys()


def test_the_kinds_are_over_sixty() -> None:
    assert len(BY_NAME) + len(BY_FORM) > 60


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.kind)
def test_a_form_is_found_in_the_midst_of_text(rule: Rule) -> None:
    examples = [value[0] for value in BY_FORM.values()]
    found = [text for text in examples if [*rule.spans(f"load ({text}) x")]]
    assert found
    assert all(rule.may_occur(text, text.lower()) for text in found)
    # Another form may find the same text; each finds some by itself.
    secrets = Secrets()
    cleaned = secrets.clean([f"load ({text}) x" for text in found])
    assert secrets.removed[rule.kind] > 0
    assert not [text for text, after in zip(found, cleaned, strict=True) if text in after]


@pytest.mark.parametrize(
    "text",
    [
        "aten::convolution_backward, seq = 118, op_id = 2371",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(Params)",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "triton_poi_fused__to_copy_add_native_layer_norm_0d1d2d3de",
        "MaxPool2DWithIndicesBackward0",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "Optimizer.step#AdamW.step",
        "std::vector<int>::operator=(std::vector&&)",
        "model.layers.31.self_attn.q_proj",
        "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nn: v1.2.3",
        "key: value; token: 17",
        "epoch 3/10 at 12:30:45",
        "/model/layers.0/self_attn/MatMul",
    ],
)
def test_names_of_programs_stay_and_are_not_suspicious(text: str) -> None:
    secrets = Secrets()
    assert secrets.clean([text]) == [text]
    assert secrets.suspicious(text) == []


@pytest.mark.parametrize(
    "word",
    [
        "x7Qm9LkVz2TnRb4WcYs8HdJg0",
        "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        "123e4567-e89b-12d3-a456-426614174000",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8LmPLEKEY",
    ],
)
def test_random_words_are_named(word: str) -> None:
    assert is_random(word)
    assert Secrets().suspicious(f"run {word}") == [word]
    assert Secrets(keep=frozenset({word.lower()})).suspicious(f"run {word}") == []


def test_words_that_overlap_go_whole() -> None:
    secrets = Secrets()
    secrets.add(["ab-cd", "cd-ef-gh", "!!!!", "ﬁne-grained"], "word")
    assert secrets.clean(["x ab-cd-ef-gh y", "a!!!!!b", "İ ab-cd"]) == [
        "x (removed) y",
        "a(removed)b",
        "İ (removed)",
    ]


@pytest.mark.racy("costs are measured by the clock")
def test_many_hosts_cost_little() -> None:
    secrets = Secrets()
    secrets.learn_environment("SLURM_JOB_NODELIST=gpu[00001-10000]")
    texts = [f"aten::mm of gpu{n:05} at {n}" for n in range(20_000)]
    begin = time.process_time()
    cleaned = secrets.clean(texts)
    assert time.process_time() - begin < 5
    assert cleaned[17] == "aten::mm of (removed) at 17"
    assert cleaned[19_999] == "aten::mm of gpu19999 at 19999"


# -- The command


def with_range(path: Path, text: bytes) -> Path:
    """Write a report with one range of this name, which may be no valid text."""
    small(path)
    value = (text,)
    run_of(
        path,
        [
            (
                "UPDATE NVTX_EVENTS SET text = CAST(? AS TEXT), textId = NULL WHERE eventType = 59",
                value,
            )
        ],
    )
    return path


@pytest.mark.parametrize(
    "part", ["a", "a.b", "a-", "aA0", "_Za", "://a", "x@", "1.", "/a", "password="]
)
def test_long_texts_cost_as_much_as_they_are_long(part: str) -> None:
    """Ten seconds are many times what this takes, and a fraction of what it took letter by letter."""
    text, begun = part * (400_000 // len(part)), time.process_time()
    secrets = Secrets()
    secrets.learn_environment(f"API_TOKEN={text}\0USER=someone")
    secrets.clean([text])
    secrets.suspicious(text)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("scheme", ["https", "git+ssh", "1https", "a.b-c"])
def test_a_login_in_a_url_goes_whatever_its_scheme(scheme: str) -> None:
    [cleaned] = Secrets().clean([f"at {scheme}://me:hunter2hunter@host/x"])
    assert "hunter2" not in cleaned
    assert cleaned.startswith(f"at {scheme}://")


def test_the_command_ends_with_what_was_replaced_and_what_is_suspicious(tmp_path: Path) -> None:
    source = with_range(
        tmp_path / "r.sqlite", b"x7Qm9LkVz2TnRb4WcYs8 by alice@example.org /tmp/a/t.py"
    )
    output = done("scrub", source, tmp_path / "a.sqlite")
    for line in (
        "in names that stay:",
        "1 × folder",
        "1 × e-mail address",
        "1 words remain that look like secrets",
        "x7Qm9LkVz2TnRb4WcYs8  in 1 text\n",
    ):
        assert line in output
    refused = bridge("scrub", source, tmp_path / "b.sqlite", "--strict")
    assert_refused(refused, "r.sqlite", "x7Qm9LkVz2TnRb4WcYs8", "--also", "--keep")
    assert not (tmp_path / "b.sqlite").exists()
    also = done(
        "scrub", source, tmp_path / "b.sqlite", "--strict", "--also", "x7Qm9LkVz2TnRb4WcYs8"
    )
    assert "1 × given by --also" in also
    assert "no text that remains looks like a secret" in also
    words = tmp_path / "words.txt"
    words.write_text("X7Qm9LkVz2TnRb4WcYs8\n\nalice@example.org\n", encoding="utf-8")
    kept = done("scrub", source, tmp_path / "c.sqlite", "--strict", "--keep", f"@{words}")
    assert "e-mail" not in kept
    assert "x7Qm9LkVz2TnRb4WcYs8 by alice@example.org …/t.py" in done(
        "report", tmp_path / "c.sqlite", "--by", "range", "--format", "csv"
    )
    assert_misused(
        bridge("scrub", source, tmp_path / "d.sqlite", "--also", "@none.txt"), "none.txt"
    )


def test_a_text_that_is_no_valid_text_is_copied(tmp_path: Path) -> None:
    source = with_range(tmp_path / "r.sqlite", b"caf\xe9 of /home/alice9/t.py")
    done("scrub", source, tmp_path / "a.sqlite")
    assert survivors(tmp_path / "a.sqlite", ["alice9"]) == []
    other = with_range(tmp_path / "s.sqlite", b"caf\xe9 step")
    done("scrub", other, tmp_path / "b.sqlite")
    was, now = (
        json.loads(done("report", path, "--by", "range", "--format", "json"))["rows"]
        for path in (other, tmp_path / "b.sqlite")
    )
    assert was == now


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = small(tmp_path / "r.sqlite")
    connect = sqlite3.connect

    def small_disk(*arguments: object, **options: object) -> sqlite3.Connection:
        database = connect(*arguments, **options)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 2")
        return database

    monkeypatch.setattr(sqlite3, "connect", small_disk)
    result = bridge("scrub", source, tmp_path / "a.sqlite")
    assert_refused(result, "a.sqlite", "No space left on device", "nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["r.sqlite"]


@pytest.mark.slow
@pytest.mark.racy("an interrupt comes at some instant of the copy")
def test_an_interrupt_is_no_damage(tmp_path: Path) -> None:
    source = small(tmp_path / "r.sqlite")
    with closing(sqlite3.connect(source)) as database, database:
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)"
            " INSERT INTO StringIds SELECT 1000000 + i, 'text ' || i FROM n"
        )
    command = [sys.executable, "-m", "bridge", "scrub", source, tmp_path / "a.sqlite"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        while not [*tmp_path.glob(".bridge-*.part")]:
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert not re.search("damaged|Traceback", errors)
    assert [path.name for path in tmp_path.iterdir()] == ["r.sqlite"]


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_exports_of_other_encodings_are_copied(encoding: str, tmp_path: Path) -> None:
    source = tmp_path / "r.sqlite"
    with (
        closing(sqlite3.connect(small(tmp_path / "utf8.sqlite"))) as original,
        closing(sqlite3.connect(source)) as database,
        database,
    ):
        database.execute(f"PRAGMA encoding = '{encoding}'")
        for line in original.iterdump():
            if not line.startswith(("BEGIN", "COMMIT")):
                database.execute(line)
        database.execute("UPDATE NVTX_EVENTS SET text = '/home/alice9/t.py', textId = NULL")
    scrub(source, tmp_path / "a.sqlite")
    assert "alice9".encode("utf-16-le") not in (tmp_path / "a.sqlite").read_bytes()
    assert "alice9".encode("utf-16-be") not in (tmp_path / "a.sqlite").read_bytes()
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        assert database.execute("SELECT DISTINCT text FROM NVTX_EVENTS").fetchall() == [("…/t.py",)]
