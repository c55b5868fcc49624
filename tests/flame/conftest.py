"""The real speedscope, of npm's package, in headless Chromium."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import real_parts
from real_parts import need

VERSION = "1.25.0"
NO_SPEEDSCOPE = (
    f"no speedscope: npm, a registry with speedscope {VERSION}, and playwright are needed"
)
# It draws with WebGL, of which a machine without a GPU has only the slow kind.
FLAGS = ["--no-sandbox", "--disable-quic", "--enable-unsafe-swiftshader"]
ROWS = "() => [...document.querySelectorAll('tr')].map(row => row.innerText)"


class Speedscope:
    """A page of speedscope: `open` shows a file in it."""

    def __init__(self, page, home: Path) -> None:
        self._page = page
        self._home = f"{home.as_uri()}#localProfilePath=none"

    def open(self, path: Path) -> None:
        """Load a file into a fresh page."""
        self._page.goto("about:blank")
        self._page.goto(self._home)
        self._page.wait_for_function("() => window.speedscope")
        packed = base64.b64encode(path.read_bytes()).decode()
        load = "([name, data]) => speedscope.loadFileFromBase64(name, data)"
        self._page.evaluate(load, [path.name, packed])
        self._page.wait_for_function("() => document.body.innerText.includes('Sandwich')")

    def title(self) -> str:
        """Give the line that names the profile which is shown."""
        return self._page.inner_text("body").splitlines()[1]

    def next_profile(self) -> None:
        """Show the next profile of the file."""
        self._page.keyboard.press("n")
        self._page.wait_for_timeout(200)

    def table(self) -> dict[str, tuple[str, str]]:
        """Give total and self time of each frame, as the table shows them."""
        self._page.keyboard.press("3")
        self._page.wait_for_timeout(300)
        rows = [re.split(r"\s*[\t\n]+\s*", row.strip()) for row in self._page.evaluate(ROWS)]
        shown = [row for row in rows if len(row) == 3 and row[0] != "Total"]
        return {name: (total.split(" ")[0], own.split(" ")[0]) for total, own, name in shown}

    def shot(self, path: Path) -> None:
        """Write a picture of the page, the heaviest stacks to the left."""
        self._page.keyboard.press("2")
        self._page.wait_for_timeout(500)
        self._page.screenshot(path=path)


@pytest.fixture(scope="session")
def speedscope_page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Give speedscope's page, fetched from npm once."""
    cache = getattr(request.config, "cache", None)
    folder = (
        cache.mkdir(f"speedscope-{VERSION}") if cache else tmp_path_factory.mktemp("speedscope")
    )
    page = real_parts.find_in_npm(f"speedscope@{VERSION}", "dist/release/index.html", folder)
    return need("speedscope", page, NO_SPEEDSCOPE)


@pytest.fixture(scope="module")
def speedscope(chromium: str, speedscope_page: Path) -> Iterator[Speedscope]:
    """Start speedscope in headless Chromium, which can reach nothing but the page's own files."""
    need("speedscope", find_spec("playwright"), NO_SPEEDSCOPE)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 850}, offline=True)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield Speedscope(page, speedscope_page)
        browser.close()
    assert errors == []
