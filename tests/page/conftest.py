"""A browser for the pages, and pages of real profiles, each made once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from made_pages import make

if TYPE_CHECKING:
    from opened_page import Browser


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Give a browser that lets tests look into the page."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from opened_page import Browser

    with Browser(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Callable[..., Path]:
    """Give the page of a profile of the corpus, or of two."""
    folder = tmp_path_factory.mktemp("pages")
    known: dict[tuple[str, ...], Path] = {}

    def page(*names: str) -> Path:
        if names not in known:
            reports = [corpus / "nsys" / f"{name}.sqlite" for name in names]
            known[names] = make(folder / f"{'-and-'.join(names)}.html", *reports)
        return known[names]

    return page


@pytest.fixture(scope="session")
def shots() -> Path | None:
    """Give the folder that screenshots go to, if there is one."""
    named = os.environ.get("BRIDGE_SHOTS")
    if not named:
        return None
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
