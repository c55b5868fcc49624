"""Names that attack, through every output: pages and drawings run nothing, tables stay tables, terminals obey nobody."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from command import bridge, done
from markdown_it import MarkdownIt

from bridge import load
from bridge.report import Report
from fuzz.hostile import NAMES, TABLES, hostile

pytestmark = pytest.mark.slow

FORMULA = re.compile(r"[=+\-@\t\r\n]")
OF_TABLES = {"table", "thead", "tbody", "tr", "th", "td", "p", "pre", "code", "br"}


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile(tmp_path_factory.mktemp("hostile") / "hostile.sqlite")


@pytest.fixture(scope="module")
def joined(hostile_report: Path) -> Report:
    return load(hostile_report)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    pytest.importorskip("playwright", reason="playwright is not installed")
    from page.opened_page import Browser

    with Browser(chromium, bypass_csp=False) as opened:
        yield opened


def assert_harmless(browser: Any) -> None:
    """Assert that nothing ran, nothing was asked for, and no element is there that could."""
    page = browser.page
    assert page.evaluate("() => window.__pwned ?? null") is None
    assert browser.wrong == []
    handlers = "e => [...e.attributes].some(a => a.name.startsWith('on'))"
    found = f"() => [...document.querySelectorAll('*')].filter({handlers}).length"
    assert page.evaluate(found) == 0
    assert (
        page.evaluate("() => document.querySelectorAll('img, image, iframe, foreignObject').length")
        == 0
    )
    links = (
        "() => [...document.querySelectorAll('a, use')].map(a => a.href?.baseVal ?? a.href ?? '')"
    )
    assert [link for link in page.evaluate(links) if not re.match(r"#|blob:|file:|$", link)] == []


def test_the_page_runs_nothing(browser: Any, hostile_report: Path, tmp_path: Path) -> None:
    done("html", hostile_report, "-o", tmp_path / "page.html")
    page = browser.open(tmp_path / "page.html")
    page.set_viewport_size({"width": 1440, "height": 4000})
    page.click("#operators button:has-text('Expand all')")
    for part in page.locator("canvas").all():
        box = part.bounding_box()
        for step in range(8) if box else ():
            page.mouse.move(box["x"] + box["width"] * step / 8 + 5, box["y"] + box["height"] / 3)
    assert_harmless(browser)


def test_a_comparison_runs_nothing(browser: Any, hostile_report: Path, tmp_path: Path) -> None:
    other = hostile(tmp_path / "other.sqlite", longer=500)
    done("html", hostile_report, other, "-o", tmp_path / "two.html")
    browser.open(tmp_path / "two.html")
    assert_harmless(browser)


def drawings(report: Path, folder: Path) -> Iterator[Path]:
    """Yield all that is drawn of a report."""
    for words in (
        ("memory", report, "--flow", "flow.svg"),
        ("memory", report, "--timeline", "timeline.svg"),
        ("plot", report, "--kind", "breakdown", "-o", "breakdown.svg"),
        ("plot", report, "--kind", "timeline", "-o", "lanes.svg"),
    ):
        done(*words[:-1], folder / str(words[-1]))
        yield folder / str(words[-1])


def test_drawings_run_nothing(browser: Any, hostile_report: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for path in drawings(hostile_report, tmp_path):
        ET.parse(path)
        browser.wrong.clear()
        browser.page.goto(path.as_uri())
        assert browser.page.evaluate("() => document.documentElement.tagName") == "svg", path.name
        assert browser.page.evaluate("() => document.querySelectorAll('script').length") == 0
        assert_harmless(browser)


def test_a_notebook_runs_nothing(browser: Any, joined: Report, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{joined._repr_html_()}", encoding="utf-8")
    browser.wrong.clear()
    browser.page.goto(path.as_uri())
    assert browser.page.locator("tr").count() > 20
    assert_harmless(browser)


class Tags(HTMLParser):
    """The elements of a document, and the texts of its cells by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in {"td", "th"}:
            self.rows[-1] += 1


@pytest.mark.parametrize("by", TABLES)
def test_markdown_keeps_its_columns_and_nothing_else(
    hostile_report: Path, joined: Report, by: str
) -> None:
    text = done("report", hostile_report, "--by", by, "--format", "md")
    shown = Tags(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))
    assert shown.tags <= OF_TABLES, by
    assert "\x1b" not in text
    if len(joined.by(by)):
        assert len(set(shown.rows)) == 1
        assert len(shown.rows) == len(joined.by(by)) + 1
    else:
        assert joined.nothing(by) in text
        assert not shown.rows


@pytest.mark.parametrize("by", TABLES)
def test_csv_holds_no_formula_and_every_figure(
    hostile_report: Path, by: str, tmp_path: Path
) -> None:
    columns = ("--columns", "all") if "," in by else ("--arguments",) if by == "range" else ()
    for form in ("csv", "json"):
        done(
            "report", hostile_report, "--by", by, "--format", form, "-o", tmp_path / form, *columns
        )
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        head, *cells = csv.reader(file)
    rows = json.loads((tmp_path / "json").read_text(encoding="utf-8"))["rows"]
    assert len(cells) == len(rows)
    for row, found in zip(rows, cells, strict=True):
        for key, value, cell in zip(row, row.values(), found, strict=True):
            if isinstance(value, str):
                assert cell == (f"'{value}" if FORMULA.match(value) else value), key
            elif value is not None:
                assert json.loads(cell.lower()) == value, key
    assert not [name for name in head if FORMULA.match(name)]


@pytest.mark.parametrize("by", TABLES)
def test_a_terminal_is_told_nothing(
    hostile_report: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    result = bridge("report", hostile_report, "--by", by)
    assert result.exit_code == 0
    assert [line for line in result.output.split("\n") if not line.isprintable()] == []


def test_other_documents_stay_sound(
    hostile_report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = hostile(tmp_path / "other.sqlite", longer=5_000)
    done("trace", hostile_report, "-o", "trace.json")
    json.loads(Path("trace.json").read_text(encoding="utf-8"))
    done("flame", hostile_report, "-o", "stacks.folded")
    for line in Path("stacks.folded").read_text(encoding="utf-8").removesuffix("\n").split("\n"):
        stack, _, count = line.rpartition(" ")
        assert stack
        assert count.isdecimal()
    failed = bridge("diff", hostile_report, other, "--fail-over", "op:1%", "--format", "junit")
    suite = ET.fromstring(failed.stdout)
    assert suite.iter("testcase")
    table = bridge("diff", hostile_report, other)
    assert [line for line in table.output.split("\n") if not line.isprintable()] == []


def test_messages_and_warnings_command_no_terminal(tmp_path: Path) -> None:
    kinds = [{"ph": "X", "cat": name, "name": "a", "ts": 1, "dur": 1} for name in NAMES]
    op = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op, *kinds]}), encoding="utf-8")
    result = bridge("report", path)
    assert result.exit_code == 0
    assert "kinds that are not read" in result.stderr
    assert [line for line in result.output.split("\n") if not line.isprintable()] == []
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nmatch = "[\\u001b[2J"\nop = "x"\n', encoding="utf-8")
    refused = bridge("report", path, "--op-rules", rules)
    assert refused.exit_code == 2
    assert "\x1b" not in refused.output
