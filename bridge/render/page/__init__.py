"""The page of `bridge html`: one file with styles and scripts that loads nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

HERE = files("bridge.render.page")
LIBRARIES = ("tabulator.min.js", "echarts.min.js")
SCRIPTS = (  # in this order: each uses those before it
    "format dom colours tooltip figures accounting advice rows operators icicle window timeline charts"
    " panels critical start"
).split()
LICENCES = {
    "Tabulator": ("tabulator-LICENSE",),
    "Apache ECharts": ("echarts-NOTICE", "echarts-LICENSE"),
    "zrender (in Apache ECharts)": ("zrender-LICENSE",),
    "tslib (in Apache ECharts)": ("tslib-LICENSE",),
}
MARKUP = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}
PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(
    reports: Sequence[Mapping[str, Any]],
    title: str,
    generator: str,
    comparison: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of one overview, or two; the same input gives the same bytes."""
    script = "".join(["(() => {\n", *(_read(f"scripts/{name}.js") for name in SCRIPTS), "})();\n"])
    libraries = {name: _read(f"vendored/{name}") for name in LIBRARIES}
    styles = _read("vendored/tabulator.min.css") + _read("page.css")
    data = {"generator": generator, "reports": list(reports), "comparison": comparison}
    parts = {
        "policy": _policy([script, *libraries.values()], styles),
        "title": html.escape(title.encode(errors="replace").decode()),
        "styles": styles,
        "data": as_json(data),
        "libraries": "\n".join(map(_packed, libraries.values())),
        "script": script,
        "generator": html.escape(generator),
        "licences": "\n\n".join(map(_licence, LICENCES)),
    }
    return _filled("page.html", parts)


def still_page(title: str, generator: str, body: str) -> str:
    """Return a page without scripts around a body of HTML; the same input gives the same bytes."""
    styles = _read("page.css") + _read("still.css")
    parts = {
        "policy": _policy([], styles),
        "title": html.escape(title.encode(errors="replace").decode()),
        "styles": styles,
        "body": body.encode(errors="replace").decode(),
        "generator": html.escape(generator),
    }
    return _filled("still.html", parts)


def _filled(name: str, parts: Mapping[str, str]) -> str:
    return PLACE.sub(lambda place: parts[place[1]], _read(name))


def as_json(data: object) -> str:
    """Return JSON in ASCII for a script element: without <, >, & and line separators."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(MARKUP)


def _policy(scripts: Sequence[str], styles: str) -> str:
    """Return a content security policy that allows only these scripts and styles."""
    allowed = " ".join(map(_hash, scripts)) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(styles)};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(text: str) -> str:
    packed = gzip.compress(text.encode(), 9, mtime=0)
    return f'<script type="text/plain" class="library">{base64.b64encode(packed).decode()}</script>'


def _licence(library: str) -> str:
    texts = (_read(f"vendored/licences/{name}").strip() for name in LICENCES[library])
    return html.escape("\n\n".join([f"== {library}", *texts]))


def _read(name: str) -> str:
    return HERE.joinpath(name).read_text(encoding="utf-8")
