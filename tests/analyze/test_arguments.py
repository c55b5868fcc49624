"""What calls say of themselves becomes columns, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import assert_misused, bridge
from made_reports import PUSH_POP, Made

import bridge.report as whole

pytestmark = pytest.mark.slow


DEEP = "[" * 3_000 + "]" * 3_000


def calls(path: Path, *texts: str, **more: Any) -> Any:
    """Return the table of ranges with these texts, one after another."""
    made = Made()
    for n, text in enumerate(texts):
        given = {key: value[n] for key, value in more.items()}
        made.annotation(PUSH_POP, 10 * n, 10 * n + 9, text=text, thread=(1 << 24) + 1, **given)
    made.kernel("k", 1, 1, 2, 5)
    made.written(path)
    return whole.load(path).by("range", arguments=True).sort_values("start_ns")


def test_what_pytorch_writes(tmp_path: Path) -> None:
    table = calls(
        tmp_path / "x.sqlite",
        "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3]], input_op_ids = [(1,0)]",
        "aten::add, op_id = 4",
        "plain",
    )
    assert table["seq"].tolist() == [7, -1, -1]
    assert table["op_id"].tolist() == [3, 4, -1]
    assert table["sizes"].tolist() == ["[[2, 3]]", "", ""]
    assert table["input_op_ids"].tolist() == ["[(1,0)]", "", ""]


def test_what_names_say(tmp_path: Path) -> None:
    pyprof = "{'mod': 'torch', 'op': 'mm', 'args': [{'shape': (2, 3)}]}"
    table = calls(tmp_path / "x.sqlite", "ProfilerStep#12", "nn.Module: Linear_0", pyprof)
    assert table["step"].tolist() == [12, -1, -1]
    assert table["module"].tolist() == ["", "Linear_0", ""]
    assert table["args"].tolist() == ["", "", '[{"shape": [2, 3]}]']


@pytest.mark.parametrize(
    ("json", "column", "value"),
    [
        ('{"bytes": 5}', "bytes", 5),
        ('{"outer": {"inner": 0.5}}', "outer.inner", 0.5),
        ("[1, 2]", "json", "[1, 2]"),
        ("3", "json", 3),
        ("no json", "json", "no json"),
        (DEEP, "json", DEEP),
        ('{"name": "x"}', "name of the call", "x"),
        ('{"payload": 3}', "payload", 3),
        (f'{{"big": {1 << 64}}}', "big", 1 << 64),
        ('{"flag": true}', "flag", True),
    ],
)
def test_what_json_payloads_say(json: str, column: str, value: object, tmp_path: Path) -> None:
    table = calls(tmp_path / "x.sqlite", "a", "b", json=[json, None])
    missing = -1 if type(value) is int and value < 1 << 63 else ""
    assert table[column].tolist() == [value, missing]


def test_no_column_hides_another(tmp_path: Path) -> None:
    json = '{"name": 1, "name of the call": 2, "payload": 3, "seq": 4}'
    table = calls(tmp_path / "x.sqlite", "a, seq = 9", "b", json=[json, None], payload=[8, -1])
    assert len(set(table.columns)) == len(table.columns)
    assert table["payload"].tolist() == [8, -1]
    assert table["seq"].tolist() == [9, -1]
    assert table["seq of the call"].tolist() == [4, -1]


def test_integers_can_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    calls(path, "ProfilerStep#1", "ProfilerStep#2")
    words = ["report", path, "--by", "range", "--arguments", "--format", "csv", "--filter"]
    assert len(bridge(*words, "step>=2").stdout.splitlines()) == 2
    assert_misused(bridge(*words, "nothing>=2"), "no column 'nothing'")
