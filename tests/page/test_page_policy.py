"""What a page must never do, with its policy in force: run what a report names, reach out, tell of the machine."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import socket
from pathlib import Path

import made_pages
import pytest
from made_pages import HOSTILE, MARKUP, make
from opened_page import Browser, shown_rows

from bridge.render.page import as_json, page

SURROGATE = "lone \ud800 surrogate"


@pytest.fixture(scope="module")
def strict(chromium):
    pytest.importorskip("playwright", reason="playwright is not installed")
    with Browser(chromium, bypass_csp=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    report = made_pages.hostile(folder / "<img src=x onerror=alert(5)>.sqlite")
    return make(folder / "hostile.html", report)


@pytest.mark.slow
def test_the_policy_in_force_lets_the_page_work(strict, page_of):
    page = strict.open(page_of("pytorch-backward"))
    page.click("#operators button:has-text('Expand all')")
    page.wait_for_selector(".work-row")
    assert strict.wrong == []
    inserted = page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        " document.head.append(s); return window.bad ?? null; }"
    )
    assert inserted is None
    assert any("Content Security Policy" in line for line in strict.wrong)


@pytest.mark.slow
def test_nothing_can_be_fetched(strict, page_of):
    page = strict.open(page_of("pytorch-backward"))
    refused = page.evaluate(
        "() => Promise.all([fetch('data:,x'), fetch('https://example.invalid/')].map(one => one.then(() => 0, () => 1)))"
    )
    assert refused == [1, 1]


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(strict, hostile):
    page = strict.open(hostile)
    page.set_viewport_size({"width": 1440, "height": 4000})
    page.click("#operators button:has-text('Expand all')")
    shown = {row[0] for row in shown_rows(page)}
    for name in HOSTILE:
        assert any(" ".join(name.split()) in " ".join(text.split()) for text in shown), name
    assert (
        page.evaluate("() => document.images.length + document.querySelectorAll('svg').length") == 0
    )
    assert strict.wrong == []


def moved_over(page, part, down, right):
    """Move the pointer over a part of the page; give the headings of the tooltips that came up."""
    box = part.bounding_box()
    seen = set()
    for y in range(6, int(box["height"]), down):
        for x in range(20, int(box["width"]), right):
            page.mouse.move(box["x"] + x, box["y"] + y)
            seen.add(page.evaluate("() => document.querySelector('#tip b')?.textContent ?? ''"))
    return {" ".join(text.split()) for text in seen}


@pytest.mark.slow
def test_hostile_names_in_titles_tooltips_and_crumbs(strict, hostile):
    page = strict.open(hostile)
    assert page.title() == "<img src=x onerror=alert(5)>.sqlite"
    assert page.inner_text("h1") == "<img src=x onerror=alert(5)>.sqlite"
    page.set_viewport_size({"width": 1440, "height": 3000})
    seen = set()
    for part in (".icicle > canvas", ".timeline .scroll canvas"):
        seen |= moved_over(page, page.locator(part), 22, 110)
    assert seen >= {" ".join(name.split()) for name in HOSTILE[:5]}
    page.click(".icicle > canvas", position={"x": 40, "y": 30})
    page.click(".icicle > canvas", position={"x": 40, "y": 30})
    assert page.locator(".crumbs > *").count() > 1
    for number in range(page.locator(".chart").count()):
        moved_over(page, page.locator(".chart").nth(number), 120, 180)
    assert page.locator(".chart-tip").count() >= 1
    assert page.evaluate("() => document.images.length") == 0
    assert strict.wrong == []


@pytest.mark.slow
def test_the_tooltip_of_a_chart_shows_a_name_as_text(strict, hostile):
    page = strict.open(hostile)
    page.evaluate(
        "() => document.querySelector('#memory .drawing').chart.dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 0})"
    )
    said = page.inner_text("#memory .chart-tip")
    assert "memory" in said
    assert page.evaluate("() => document.images.length") == 0
    names = page.evaluate(
        "() => document.querySelector('#memory .drawing').chart.getOption().series.map(s => s.name)"
    )
    assert f"memory {MARKUP}" in names
    assert strict.wrong == []


@pytest.mark.slow
def test_csv_holds_no_formula(strict, hostile):
    page = strict.open(hostile)
    with page.expect_download() as download:
        page.click("#operators button:has-text('CSV')")
    rows = list(csv.reader(io.StringIO(download.value.path().read_text(encoding="utf-8-sig"))))
    texts = {cell for row in rows[1:] for cell in row[:2]}
    assert not [text for text in texts if re.match(r"[=+\-@\t]", text)]
    for name in HOSTILE:
        held = f"'{name}" if name[0] in "=+-@\t" else name
        assert held in texts


@pytest.mark.slow
def test_a_lone_surrogate_is_shown(strict, tmp_path):
    work = {"of": [0], "name": [0], "count": [1], "total_ns": [5], "mean_ns": [5], "max_ns": [5]}
    work["full"] = [-1]
    figures = (
        "calls gpu_self_ns gpu_total_ns gpu_busy_ns gpu_mean_ns gpu_max_ns cpu_self_ns cpu_total_ns"
    )
    one = {
        "source": [SURROGATE],
        "figures": {
            "totals": {"activities": 1, "gpu_ns": 5, "attributed_ns": 5, "unattributed": {}},
            "span_ns": 10, "kernels": 1, "memcpys": 0, "memsets": 0, "graphs": 0, "ops": 1, "calls": 1,
            "steps": 0, "iteration": None, "idle": [],
            "devices": [{"name": SURROGATE, "busy_ns": 5, "span_ns": 10}],
        },
        "reasons": [],
        "operators": {"name": [0], "kind": ["op"], **{key: [5] for key in figures.split()}, "work": work},
        **dict.fromkeys(("icicle", "timeline", "utilisation", "memory", "roofline")),
        "notes": [SURROGATE],
        "names": [SURROGATE],
    }  # fmt: skip
    path = tmp_path / "page.html"
    path.write_text(page([one], SURROGATE, "test"), encoding="utf-8")
    opened = strict.open(path)
    assert opened.title() == "lone ? surrogate"
    assert "lone" in opened.inner_text("#operators")
    assert "lone" in opened.inner_text("#notes")
    assert strict.wrong == []


def test_json_cannot_end_its_script():
    text = as_json([MARKUP, "<!--", "\u2028\u2029", "&amp;", SURROGATE])
    assert not re.search(r"[<>&\u2028\u2029\ud800]", text)
    assert json.loads(text)[0] == MARKUP


@pytest.mark.slow
def test_the_page_tells_nothing_of_the_machine(page_of):
    text = page_of("mnist-training").read_text(encoding="utf-8")
    data = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    for secret in {socket.gethostname(), str(Path.home()), str(page_of("mnist-training").parent)}:
        assert len(secret) < 3 or secret not in data
    for value in (os.environ.get("PATH"), "LD_LIBRARY_PATH", "commandLine"):
        assert value not in data


def test_the_page_names_no_address_but_in_its_libraries(page_of):
    text = page_of("mnist-training").read_text(encoding="utf-8")
    own = re.sub(r"<style>.*?</style>|<pre>.*?</pre>", "", text, flags=re.DOTALL)
    assert "http:" not in own
    assert "https:" not in own
    assert re.search(r"content=\"default-src 'none'; script-src( 'sha256-[\w+/=]+'){3};", text)


@pytest.mark.slow
def test_the_policy_allows_one_style_element_alone(strict, page_of):
    text = page_of("mnist-training").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    [styles] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    assert "unsafe" not in policy
    assert re.findall(r"style-src ([^;]*)", policy) == [f"'sha256-{digest}'"]
    page = strict.open(page_of("mnist-training"))
    refused = page.evaluate(
        "() => { const s = document.createElement('style'); s.textContent = 'h1 { color: rgb(1, 2, 3) }';"
        " document.head.append(s); return getComputedStyle(document.querySelector('h1')).color; }"
    )
    assert refused != "rgb(1, 2, 3)"
    assert any("style" in line for line in strict.wrong)


@pytest.mark.slow
def test_same_input_same_bytes(corpus, tmp_path):
    report = corpus / "nsys" / "nvfuser.sqlite"
    assert (
        make(tmp_path / "a.html", report).read_bytes()
        == make(tmp_path / "b.html", report).read_bytes()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist-training", "pytorch-backward", "two-processes"])
def test_a_page_is_small(page_of, name):
    whole = page_of(name).stat().st_size
    text = page_of(name).read_text(encoding="utf-8")
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert whole - len(data) < 600_000
    assert len(data) < 400_000
