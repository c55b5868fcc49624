"""No link of the documentation is dead, and no page is out of reach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from docs.pages import PAGES
from real_parts import ROOT
from test_features import anchors

DOCS = ROOT / "docs"
EVERY = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "docker" / "README.md"]
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MADE = {"changelog.md"}  # by tests/docs/site.py


def links(page: Path) -> list[tuple[str, str]]:
    """List the files and anchors that a page links to within the repository."""
    return LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))


def dead(page: Path) -> list[str]:
    """List the links of a page to files or headings that are not there."""
    return [f"{path}#{at}" for path, at in links(page) if not leads(page, path, at)]


def leads(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


def in_nav(entry: object) -> list[str]:
    """List the pages of a navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in in_nav(part)]


def nav() -> list[str]:
    text = (ROOT / ".mkdocs.yml").read_text(encoding="utf-8")
    return in_nav(yaml.safe_load(text)["nav"])


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    assert dead(page) == []


def test_every_page_is_in_the_navigation_once():
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(pages | MADE) == sorted(nav())


def test_the_index_links_every_page():
    index = DOCS / "index.md"
    linked = {path for path, _ in links(index)}
    assert set(nav()) - linked - MADE == {index.name}


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n[a](other.md#a-heading) [b](other.md#none) [c](gone.md) [d](#page) `[e](f.md)`\n"
    )
    assert dead(page) == ["other.md#none", "gone.md#"]
