"""docs/features.md keeps its word: every feature once, its counts right, and all that it names of ours exists.

A planned row names only what is there already, so the names of every row are looked up.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import click
import pytest
from real_parts import ROOT

import bridge
from bridge.cli import main

PAGE = ROOT / "docs" / "features.md"
STATUSES = ("done", "elsewhere", "planned", "not applicable")
FEATURES = 151
LINK = re.compile(r"\]\(([\w/-]+\.md)(?:#([\w-]+))?\)")
NAME = re.compile(r"\bbridge((?:\.\w+)+)")
LOADS_PYTORCH = ".compat.torch_profiler"  # which hands on to it
COMMAND = re.compile(r"`bridge ([^-`][^`]*)`")


class Row(NamedTuple):
    id: str
    feature: str
    status: str
    where: str
    test: str


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def rows() -> list[Row]:
    """List the rows of all tables; one that has not five cells fails."""
    lines = [line for line in text().splitlines() if re.match(r"\| F\d", line)]
    return [Row(*line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines]


def named(pattern: re.Pattern[str]) -> list[str]:
    """List what the rows name, each once."""
    return list(dict.fromkeys(found for row in rows() for found in pattern.findall(row.where)))


def anchors(page: str) -> set[str]:
    """Name the headings of a page as links do."""
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def torch_names() -> list[str]:
    """Read what bridge.torch offers, without PyTorch."""
    tree = ast.parse((ROOT / "bridge" / "torch.py").read_text(encoding="utf-8"))
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )


def test_every_feature_once_and_in_order():
    assert [row.id for row in rows()] == [f"F{n:03}" for n in range(1, FEATURES + 1)]


def test_every_row_has_a_status_and_says_where():
    assert [row for row in rows() if row.status not in STATUSES or not row.where.strip()] == []


def test_the_head_counts_right():
    count = Counter(row.status for row in rows())
    head = ", ".join(f"{count[status]} {status}" for status in STATUSES)
    assert f"\nOf {FEATURES}: {head}.\n" in text()


def test_every_done_row_names_something_of_ours():
    ours = (LINK, NAME, COMMAND)
    done = [row for row in rows() if row.status == "done"]
    assert [row for row in done if not any(p.search(row.where) for p in ours)] == []


def test_every_done_row_names_a_test_that_exists():
    missing = [row for row in rows() if row.status == "done" and not proofs(row)]
    assert missing == []
    wrong = [(row.id, proof) for row in rows() for proof in proofs(row) if not exists(proof)]
    assert wrong == []


def proofs(row: Row) -> list[str]:
    """List the tests that a row names, as file::function below `tests`."""
    return re.findall(r"`([\w/]+\.py::\w+)`", row.test)


def exists(proof: str) -> bool:
    """Return whether a test is defined there."""
    file, function = proof.split("::")
    path = ROOT / "tests" / file
    return (
        path.exists()
        and re.search(
            rf"^(?:async )?def {function}\(", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        is not None
    )


@pytest.mark.parametrize("link", named(LINK), ids="#".join)
def test_a_linked_page_exists(link):
    page, anchor = link
    target = (PAGE.parent / page).read_text(encoding="utf-8")
    assert not anchor or anchor in anchors(target)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith(LOADS_PYTORCH) else ())
        for name in named(NAME)
    ],
)
def test_a_name_exists(name):
    first, *rest = name.removeprefix(".").split(".")
    if first == "torch":
        assert rest[0] in torch_names()
        return
    if name.startswith(LOADS_PYTORCH) and find_spec("torch") is None:
        assert (ROOT / "bridge" / "compat" / "torch_profiler").is_dir()
        return
    found, path = bridge, "bridge"
    for part in (first, *rest):
        path = f"{path}.{part}"
        with suppress(ImportError):  # a package within: loaded when somebody asks for it
            import_module(path)
        found = getattr(found, part)


@pytest.mark.parametrize("line", named(COMMAND))
def test_a_command_takes_what_is_written(line):
    command, *words = shlex.split(line)
    whole = click.Context(
        main, help_option_names=["-h", "--help"]
    )  # which a command keeps from its first use
    main.get_command(whole, command).make_context(command, words, parent=whole)
