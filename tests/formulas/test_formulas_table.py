"""The table of formulas keeps its word: names once, texts that say the weights, and docs/flops.md shows it."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from real_parts import ROOT

from bridge.knowledge.formulas import Call, flops, formula
from bridge.knowledge.formulas import table as registry
from bridge.knowledge.formulas.call import keys
from bridge.knowledge.formulas.table import TABLE

PAGE = ROOT / "docs" / "flops.md"
SHOWN = 3  # names of a row
HEAD = ("| class | ops | FLOPs | counted as |", "|---|---|---|---|")
WEIGHT = re.compile(r"(?:(\d+)·)?elements")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANSWER = re.compile(r"^(.+)  # (.+)$", re.MULTILINE)
BY_ELEMENTS = ("elementwise", "activation", "softmax", "norm", "reduction", "loss", "scatter")


def names():
    return [name for listed, _ in TABLE for name in listed.split()]


def shown(listed):
    """Write the first names of a row, and how many there are more."""
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in listed[:SHOWN]) + more


def table():
    """Write the rows of the page: those that say the same are one."""
    merged = {}
    for listed, one in TABLE:
        about = "" if one.exact else "≈ "
        merged.setdefault((one.kind, about + one.text, one.source), []).extend(listed.split())
    rows = (f"| {kind} | {shown(listed)} | {text} | {source} |" for (kind, text, source), listed in merged.items())  # fmt: skip
    return "\n".join([*HEAD, *rows])


def test_the_page_shows_the_table():
    assert table() in PAGE.read_text(encoding="utf-8"), table()


def test_a_name_stands_once():
    assert [name for name, times in Counter(names()).items() if times > 1] == []


def test_a_name_finds_its_row():
    for listed, row in TABLE:
        for name in listed.split():
            assert name in keys(f"aten::{name}")
            assert formula(f"aten::{name}") is formula(name) is row


def test_the_page_says_what_is_answered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    said, known = 0, {}
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        exec(block, known)
        for code, answer in ANSWER.findall(block):
            assert str(eval(code, known)) == answer
            said += 1
    assert said == 3
    assert flops(Call("mylib::gemm", ((2, 3), (3, 4)))) == 48


@pytest.mark.parametrize(("listed", "row"), [row for row in TABLE if row[1].kind in BY_ELEMENTS])
def test_a_text_says_the_weight(listed, row):
    weight = int(WEIGHT.match(row.text)[1] or 1)
    name = listed.split()[0]
    assert flops(Call(name, ((3, 5),) * 4)) == weight * 15


@pytest.mark.parametrize(("listed", "row"), TABLE)
def test_what_computes_counts(listed, row):
    """Nothing is 0 but what moves data, and that is exact."""
    moves = row.kind in ("view", "copy", "fill", "gather")
    assert (row.text == "0") == moves
    assert row.exact or not moves
    assert {flops(Call(name)) for name in listed.split()} == {0 if moves else None}
