"""A page of `bridge html` in headless Chromium, from its file, watched for errors and for requests."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Page, sync_playwright
from viewers.ui import QUIET

WIDE = {"width": 1440, "height": 900}
OWN = ("file:", "data:", "blob:")
LIMIT_MS = 20_000


class Browser:
    """Opens pages one after another in one tab; what went wrong on the last one is in `wrong`.

    With `bypass_csp` functions may be evaluated in the page again and again, which its policy forbids.
    """

    def __init__(self, chromium: str, *, bypass_csp: bool = True, scheme: str = "light") -> None:
        self._chromium, self._bypass, self._scheme = chromium, bypass_csp, scheme
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            folder = parts.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            context = parts.enter_context(sync_playwright()).chromium.launch_persistent_context(
                folder,
                executable_path=self._chromium,
                args=QUIET,
                viewport=WIDE,  # type: ignore[arg-type]
                color_scheme=self._scheme,  # type: ignore[arg-type]
                bypass_csp=self._bypass,
                service_workers="block",
                accept_downloads=True,
            )
            parts.callback(context.close)
            context.set_default_timeout(LIMIT_MS)
            self.page = context.pages[0]
            self._watch(self.page)
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def open(self, path: Path) -> Page:
        """Open a page and wait until all of its panels are drawn."""
        self.wrong.clear()
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self.page

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("request", lambda request: self._asked(request.url))
        page.on("dialog", self._dialog)

    def _said(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.wrong.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith(OWN):
            self.wrong.append(f"request: {url}")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def shown_rows(page: Page) -> list[list[str]]:
    """Give the text of the cells of the table's rows that are drawn."""
    return page.evaluate(
        "() => [...document.querySelectorAll('.tabulator-row')]"
        ".map(row => [...row.querySelectorAll('.tabulator-cell')].map(cell => cell.innerText.trim()))"
    )
