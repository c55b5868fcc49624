"""The documentation as a site: it builds without a warning, shows none of our marks, and asks nobody for anything."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_parts import ROOT

from release.test_links import nav

NEEDED = ("mkdocs", "material", "mkdocstrings")
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src"}
LOADED_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "manifest",
}
OF_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^"')]+""")
MARK = re.compile(r"<!-- [\w-]+ -->|&lt;!-- [\w-]+ --&gt;")
FOREIGN = re.compile(r"^(?:https?:)?//")


class Asked(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        address = given.get(LOADING.get(tag, ""), "")
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            address = given.get("href", "")
        if FOREIGN.match(address):
            self.foreign.append(address)


def asked(html: str) -> list[str]:
    """List the addresses elsewhere that a page loads."""
    parser = Asked()
    parser.feed(html)
    return parser.foreign + OF_STYLES.findall(html)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("site")
    config = ("--strict", "-q", "-f", ROOT / ".mkdocs.yml", "-d", folder)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *config],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    found = {p.relative_to(site).as_posix(): p for p in site.rglob("*.html")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Serve the site on loopback."""
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.slow
def test_every_page_of_the_navigation_is_there(pages):
    wanted = {name.removesuffix(".md") + ".html" for name in nav()}
    assert wanted <= set(pages)


def test_our_marks_are_not_on_the_site(pages):
    assert [name for name, html in pages.items() if MARK.search(html)] == []


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert {name: asked(html) for name, html in pages.items() if asked(html)} == {}
    styles = {path.name: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    assert [name for name, text in styles.items() if OF_STYLES.search(text)] == []


def test_files_beside_the_documentation_come_along(site):
    assert (site / "source" / "examples" / "budget.toml").is_file()
    assert not list(site.rglob("*.py"))


def test_the_reference_is_made_from_the_code(pages):
    page = pages["reference/annotate.html"]
    assert 'id="bridge.nvtx_op"' in page
    assert "bridge.nvtx_op" in page
    assert ":::" not in page


def test_links_of_the_changelog_lead_to_pages(pages):
    assert 'href="flops.html"' in pages["changelog.html"]


def test_a_browser_asks_only_the_site_itself(chromium, site, address):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    elsewhere, errors = [], []
    with api.sync_playwright() as parts:
        browser = parts.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith((address, "data:", "blob:")) else elsewhere.append(r.url)
            ),
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in ("index.html", "tutorial.html", "reference/annotate.html", "commands.html"):
            page.goto(f"{address}/{name}")
        page.wait_for_load_state("networkidle")  # it hears nothing of what is typed before
        page.locator("[data-md-component=search-query]").press_sequentially("stragglers")
        page.wait_for_selector(".md-search-result__item")
        page.wait_for_load_state("networkidle")
        browser.close()
    assert elsewhere == []
    assert errors == []


def test_what_is_loaded_from_elsewhere_would_be_found():
    html = (
        '<link rel="stylesheet" href="https://fonts.test/a.css"><script src="//cdn.test/b.js"></script>'
        '<a href="https://fine.test">x</a><img src="here.png"><style>@import "https://c.test/d";</style>'
    )
    assert len(asked(html)) == 3
