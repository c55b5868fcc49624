"""The page in a real browser: it draws itself, and everything on it works, with a mouse and with keys alone."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import made_reports
import pypdf
import pytest
from click.testing import CliRunner
from command import bridge as bridge_command
from command import done
from made_pages import make
from opened_page import shown_rows
from real_parts import NIGHT

import bridge
from bridge.cli import main

REAL = "pytorch-backward"
FILES = ("mnist-training", "torch-compile-graphs", "no-kernels-empty", "two-processes")
if NIGHT:
    FILES += ("pytorch-backward", "transformer-annotated", "cupy-power-iteration", "cloverleaf-no-nvtx", "no-kernels-api", "nvfuser")  # fmt: skip
WINDOW = "() => { const {from, to} = document.querySelector('.timeline .scroll canvas').dataset; return [+from, +to]; }"
CRUMBS = "() => [...document.querySelectorAll('.crumbs > *')].map(one => one.textContent)"

pytestmark = pytest.mark.racy("a browser lays out and paints in its own time")


def panels(page) -> list[str]:
    return page.evaluate("() => [...document.querySelectorAll('section.panel')].map(one => one.id)")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_page_draws_itself_without_an_error_or_a_request(browser, page_of, name):
    page = browser.open(page_of(name))
    assert browser.wrong == []
    assert page.title() == f"{name}.sqlite"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_a_report_of_ranges_alone_is_of_the_cpu(browser, tmp_path):
    report = made_reports.report(tmp_path / "cpu.sqlite", without="kernels copies fills graphs")
    page = browser.open(make(tmp_path / "cpu.html", report))
    assert browser.wrong == []
    assert panels(page)[:5] == ["notes", "summary", "advice", "operators", "icicle"]
    assert page.inner_text("#icicle h2") == "CPU time"
    assert "kernels" not in page.inner_text("#icicle .about")
    assert page.evaluate("() => page.table.getColumns().map(one => one.getField())") == [
        "name", "calls", "cpuShare", "cpuSelf", "cpu"
    ]  # fmt: skip
    assert page.inner_text("#operators .about") == "CPU time per op: nothing ran on a GPU."
    assert page.locator("#operators button").all_inner_texts() == ["CSV"]
    said = bridge_command("report", report).stderr.splitlines()
    assert page.locator("#notes li").all_inner_texts() == [
        line.removeprefix("warning: ") for line in said
    ]
    # The witness of the cards is the table of the command.
    rows = json.loads(done("report", report, "--by", "op", "--format", "json"))["rows"]
    whole, largest = sum(row["cpu_self_ns"] for row in rows), max(rows, key=lambda row: row["cpu_self_ns"])  # fmt: skip
    told = page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
    figures = told["reports"][0]["figures"]["cpu"]
    assert figures == {
        "total_ns": whole, "op": largest["op"], "op_ns": largest["cpu_self_ns"], "ops": len(rows),
    }  # fmt: skip
    cards = page.locator("#figures .card h3").all_inner_texts()
    assert {"CPU time", "Largest op on the CPU", "Op calls", "Steps", "Iteration"} <= set(cards)


@pytest.mark.slow
def test_several_reports_as_one_run(browser, page_of, corpus, folder):
    names = ("pytorch-2gpu-before", "two-processes")
    done("import", *(corpus / "nsys" / f"{name}.sqlite" for name in names))
    done("html", "-o", "run.html")
    page = browser.open(folder / "run.html")
    assert browser.wrong == []
    assert page.title() == "pytorch-2gpu-before.sqlite, two-processes.sqlite"
    assert "in two-processes.sqlite" in page.inner_text("#utilisation")


@pytest.mark.slow
def test_a_session_without_a_profiler(browser, folder):
    with bridge.profile(path=folder / "session.jsonl", profile_memory=True) as session:
        for _ in range(3):
            with bridge.nvtx_op("work"):
                time.sleep(0.001)
            session.step()
    page = browser.open(make(folder / "page.html", folder / "session.jsonl"))
    assert browser.wrong == []
    assert {"operators", "timeline", "memory"} <= set(panels(page))
    assert "host resident" in page.inner_text("#memory")


@pytest.mark.slow
def test_the_accounting_tells_what_is_adopted(browser, tmp_path):
    report = made_reports.hand_annotated(tmp_path / "idiom.sqlite")
    done("html", report, "-o", tmp_path / "p.html")
    page = browser.open(tmp_path / "p.html")
    assert "66.7 % of GPU time is adopted: launched outside" in page.inner_text("#accounting")
    assert page.locator("#accounting i.adopted").count() == 1


@pytest.mark.slow
def test_panels_without_data_are_absent(browser, page_of, corpus):
    page = browser.open(page_of(REAL))
    table = bridge.load(corpus / "nsys" / f"{REAL}.sqlite").by("critical").head(10)
    kinds = page.eval_on_selector_all(
        "#critical tbody td:nth-child(2)", "all => all.map(one => one.textContent)"
    )
    assert kinds == table["kind"].tolist()
    assert page.inner_text("#accounted").endswith("activities on the GPU are attributed to ops.")
    assert panels(page) == [
        "summary", "advice", "operators", "icicle", "critical", "timeline", "utilisation"
    ]  # fmt: skip
    without = browser.open(page_of("cloverleaf-no-nvtx"))
    assert panels(without)[-1] == "notes"
    assert "no op: no range" in without.inner_text("#operators")
    assert "record ranges with nsys profile" in without.inner_text("#accounting")


@pytest.mark.slow
def test_advice_is_that_of_the_command(browser, page_of, corpus):
    report = str(corpus / "nsys" / f"{REAL}.sqlite")
    told = json.loads(CliRunner().invoke(main, ["advise", report, "--format", "json"]).stdout)
    page = browser.open(page_of(REAL))
    assert page.eval_on_selector_all("#advice li h3", "all => all.map(one => one.textContent)") == [
        one["title"] for one in told["advice"]
    ]
    shown = page.inner_text("#advice")
    for one in told["advice"]:
        assert one["text"][1:] in shown
        assert one["remedy"] in shown
    assert told["not_judged"][0]["record"] in page.text_content("#advice details")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist-training", "cloverleaf-no-nvtx", "pytorch-2gpu-before"])
def test_cards_are_those_of_the_summary(browser, page_of, corpus, name):
    report = str(corpus / "nsys" / f"{name}.sqlite")
    told = json.loads(CliRunner().invoke(main, ["summary", report, "--format", "json"]).stdout)
    page = browser.open(page_of(name))
    cards = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.card')].map((one) =>"
        " [one.querySelector('h3').textContent, one.querySelector('b').textContent]))"
    )
    gpus = told["gpus"]
    busy = sum(gpu["busy_ns"] for gpu in gpus) / (len(gpus) * told["run"]["length_ns"])
    assert cards["GPU busy"] == f"{100 * busy:.1f} %"
    by_device = json.loads(
        CliRunner().invoke(main, ["report", report, "--by", "device", "--format", "json"]).stdout
    )["rows"]
    assert sorted(row["busy_ns"] for row in by_device) == sorted(gpu["busy_ns"] for gpu in gpus)
    largest = told["causes"][0]["idle_ns"] / told["idle_ns"]
    assert cards["Largest cause of idleness"] == f"{100 * largest:.1f} %"
    assert ("Iteration" in cards) == any(one["iteration_ns"] for one in told["iterations"])


@pytest.mark.slow
def test_figures_are_those_of_the_report(browser, page_of, corpus):
    report = str(corpus / "nsys" / f"{REAL}.sqlite")
    page = browser.open(page_of(REAL))
    held = page.evaluate(
        "() => page.table.getData().map(({name, self, total, calls, max, cpu}) => ({name, self, total, calls, max, cpu}))"
    )
    told = json.loads(CliRunner().invoke(main, ["report", report, "--format", "json"]).stdout)
    assert [
        (row["op"], row["gpu_self_ns"], row["gpu_total_ns"], row["calls"], row["gpu_max_ns"], row["cpu_total_ns"])
        for row in told["rows"]
    ] == [tuple(row.values()) for row in held]  # fmt: skip
    assert page.evaluate("page.table.getData()[0]._children.length") > 0
    kernels = json.loads(
        CliRunner().invoke(main, ["report", report, "--by", "op-kernel", "--format", "json"]).stdout
    )
    under = page.evaluate(
        "() => page.table.getData().flatMap(op => (op._children ?? []).map(one => [op.name, one.name, one.self, one.calls]))"
    )
    assert {tuple(row) for row in under} >= {
        (row["op"], row["kernel"], row["total_ns"], row["count"]) for row in kernels["rows"]
    }


# -- the table


@pytest.mark.slow
def test_sorting_by_a_heading(browser, page_of):
    page = browser.open(page_of(REAL))
    page.click(".tabulator-col[tabulator-field=calls]")
    page.wait_for_selector(".tabulator-col[tabulator-field=calls][aria-sort=descending]")
    calls = page.evaluate("() => page.table.getData('active').map(row => row.calls)")
    assert calls == sorted(calls, reverse=True)
    page.click(".tabulator-col[tabulator-field=calls]")
    page.wait_for_selector(".tabulator-col[tabulator-field=calls][aria-sort=ascending]")
    assert page.evaluate("() => page.table.getData('active').map(row => row.calls)") == calls[::-1]


@pytest.mark.slow
def test_a_heading_sorts_by_keys_too(browser, page_of):
    page = browser.open(page_of(REAL))
    page.focus(".tabulator-col[tabulator-field=max]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tabulator-col[tabulator-field=max][aria-sort=descending]")


@pytest.mark.slow
def test_a_filter_finds_ops_and_kernels(browser, page_of):
    page = browser.open(page_of(REAL))
    page.fill("input[type=search]", "sgemm_128x64_nt")
    page.wait_for_function("() => document.querySelector('.found').textContent")
    names = [row[0] for row in shown_rows(page)]
    work = page.evaluate("() => [...document.querySelectorAll('.work-row')].length")
    assert work
    assert all("sgemm_128x64_nt" in name or name.startswith("aten::") for name in names)
    page.fill("input[type=search]", "aten::bmm")
    assert len(shown_rows(page)) > 1  # all kernels of the op are there
    page.fill("input[type=search]", "no such thing")
    assert page.inner_text(".found").startswith("0 of")
    page.fill("input[type=search]", "")
    assert page.evaluate("page.table.getDataCount('active')") > 20


@pytest.mark.slow
def test_expanding_one_and_all(browser, page_of):
    page = browser.open(page_of(REAL))
    rows = page.locator(".work-row")
    first = rows.count()
    assert first  # the largest op is open
    page.click("#operators button:has-text('Collapse all')")
    assert rows.count() == 0
    page.click(".tabulator-row >> nth=1 >> .tabulator-data-tree-control")
    assert rows.count() > 0
    page.click("#operators button:has-text('Expand all')")
    opened = page.evaluate(
        "() => page.table.getRows().every(row => !row.getData()._children || row.isTreeExpanded())"
    )
    assert opened


@pytest.mark.slow
def test_the_table_by_keys(browser, page_of):
    page = browser.open(page_of(REAL))
    page.click("#operators button:has-text('Collapse all')")
    page.focus(".tabulator-tableholder")
    page.keyboard.press("ArrowDown")
    focused = "() => document.activeElement.querySelector('.tabulator-cell')?.innerText.trim()"
    ops = page.evaluate("() => page.table.getData().map(row => row.name)")
    assert page.evaluate(focused) == ops[0]
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == ops[1]
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-level')") == "2"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == ops[1]
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-expanded')") == "false"
    for _ in range(26):  # far below what is drawn at first
        page.keyboard.press("ArrowDown")
    page.wait_for_function(f"name => ({focused})() === name", arg=ops[27])


@pytest.mark.slow
def test_the_table_by_pages_and_to_its_ends(browser, page_of):
    page = browser.open(page_of(REAL))
    page.click("#operators button:has-text('Collapse all')")
    page.focus(".tabulator-tableholder")
    page.keyboard.press("ArrowDown")
    place = (
        "() => { const row = document.activeElement; const name = row.querySelector('.tabulator-cell')?.innerText.trim();"
        " return row.matches('.tabulator-row') ? page.table.getData().findIndex(one => one.name === name) : -1; }"
    )
    last = page.evaluate("page.table.getData().length - 1")
    seen = []
    for key in ("PageDown", "PageDown", "PageUp", "End", "PageUp", "Home"):
        was = page.evaluate(place)
        page.keyboard.press(key)
        page.wait_for_function(f"was => ![-1, was].includes(({place})())", arg=was)
        page.evaluate("() => new Promise(done => setTimeout(done, 100))")  # drawn anew by scrolling
        seen.append(page.evaluate(place))
    far = seen[0]
    assert 5 < far < 20
    assert seen == [far, 2 * far, far, last, last - far, 0]


@pytest.mark.slow
def test_full_names_tell_kernels_apart(browser, tmp_path):
    made = made_reports.Made()
    made.names_of(100)
    for at, name in enumerate(("kernel", "Kernel", "kernel")):
        made.kernel(name, 10 + 1_000 * at, 100, 100 + 1_000 * at, 200 + 1_000 * at)
    report = made.written(tmp_path / "named.sqlite")
    for page_file, given in (("one.html", [report]), ("two.html", [report, report])):
        page = browser.open(make(tmp_path / page_file, *given))
        titles = page.evaluate(
            "() => [...document.querySelectorAll('.work-row .work')].map(one => [one.innerText, one.title])"
        )
        # CUTLASS has a kernel of this name; that of the program is marked as not CUTLASS's.
        named = (("::Kernel", "Kernel"), ("kernel", "kernel"))
        assert sorted(titles) == [[n, f"void {f}<float>(float *)"] for n, f in named]
        with page.expect_download() as download:
            page.click("#operators button:has-text('CSV')")
        text = download.value.path().read_text(encoding="utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {row["kernel"]: row["full_name"] for row in rows} == {"": "", **dict(titles)}


@pytest.mark.slow
def test_csv_holds_all_rows(browser, page_of):
    page = browser.open(page_of(REAL))
    with page.expect_download() as download:
        page.click("#operators button:has-text('CSV')")
    text = download.value.path().read_text(encoding="utf-8-sig")
    head, *rows = csv.reader(io.StringIO(text))
    assert head[:4] == ["op", "kernel", "share", "self_ns"]
    ops = [row for row in rows if not row[1]]
    held = page.evaluate("() => page.table.getData().map(row => [row.name, String(row.self)])")
    assert [[row[0], row[3]] for row in ops] == held
    assert len(rows) > len(ops)


# -- icicle and timeline


@pytest.mark.slow
def test_the_icicle_zooms_by_mouse_and_back_by_a_crumb(browser, page_of):
    page = browser.open(page_of(REAL))
    assert page.evaluate(CRUMBS) == ["profile"]
    page.click(".icicle canvas", position={"x": 60, "y": 24 * 2 + 10})
    assert len(page.evaluate(CRUMBS)) == 3
    page.click(".crumbs button >> nth=0")
    assert page.evaluate(CRUMBS) == ["profile"]


@pytest.mark.slow
def test_the_icicle_by_step_and_with_idle_time(browser, page_of, corpus):
    report = bridge.load(corpus / "nsys" / "mnist-training.sqlite")
    page = browser.open(page_of("mnist-training"))
    tree = "document.querySelector('.icicle').view.root"
    levels = f"(() => {{ const all = (f) => [f.level, ...f.children.flatMap(all)]; return all({tree}); }})()"
    assert "step" not in page.evaluate(levels)
    assert page.evaluate(f"{tree}.value") == report.totals["gpu_ns"]
    page.check("[data-choice=bySteps]")
    assert page.evaluate(levels).count("step") == 59
    assert page.evaluate(f"{tree}.value") == report.totals["gpu_ns"]
    page.check("[data-choice=withIdle]")
    idle = page.evaluate(f"{tree}.children.find((one) => one.level === 'idle')?.value")
    assert idle == report.use.idle_ns
    assert page.evaluate(f"{tree}.value") == report.totals["gpu_ns"] + idle
    page.uncheck("[data-choice=bySteps]")
    page.uncheck("[data-choice=withIdle]")
    assert page.evaluate(f"{tree}.value") == report.totals["gpu_ns"]
    assert browser.wrong == []


@pytest.mark.slow
def test_the_icicle_by_keys(browser, page_of):
    page = browser.open(page_of(REAL))
    page.focus(".icicle canvas")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert len(page.evaluate(CRUMBS)) == 3
    assert "of all" in page.inner_text("#live")
    page.keyboard.press("Escape")
    assert len(page.evaluate(CRUMBS)) == 2
    page.keyboard.press("Home")
    assert page.evaluate(CRUMBS) == ["profile"]


@pytest.mark.slow
def test_widths_of_the_icicle_add_up(browser, page_of):
    page = browser.open(page_of("mnist-training"))
    wrong = page.evaluate(
        "() => { const bad = []; const walk = (frame) => { const sum = frame.children.reduce((s, c) => s + c.value, 0);"
        " if (frame.children.length && sum !== frame.value) bad.push(frame.name); frame.children.forEach(walk); };"
        " walk(document.querySelector('.icicle').view.root); return bad; }"
    )
    assert wrong == []
    root = page.evaluate("document.querySelector('.icicle').view.root.value")
    held = page.evaluate("page.table.getData().reduce((sum, row) => sum + row.self, 0)")
    assert root == held


@pytest.mark.slow
def test_the_timeline_zooms_by_drag_wheel_and_keys(browser, page_of):
    page = browser.open(page_of(REAL))
    canvas = page.locator(".timeline .scroll canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    whole = page.evaluate(WINDOW)
    page.mouse.move(box["x"] + 400, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 45, steps=4)
    page.mouse.up()
    page.wait_for_function(f"() => ({WINDOW})()[0] > 0")
    dragged = page.evaluate(WINDOW)
    assert (dragged[1] - dragged[0]) / whole[1] == pytest.approx(
        300 / (box["width"] - 156), rel=0.02
    )
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"width => {{ const [a, b] = ({WINDOW})(); return b - a < width; }}",
        arg=dragged[1] - dragged[0],
    )
    canvas.focus()
    page.keyboard.press("Home")
    page.wait_for_function(f"() => ({WINDOW})()[0] === 0")
    page.keyboard.press("+")
    page.wait_for_function(
        f"width => {{ const [a, b] = ({WINDOW})(); return Math.abs((b - a) - width / 2) < 2; }}",
        arg=whole[1],
    )
    before = page.evaluate(WINDOW)
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"from => ({WINDOW})()[0] > from", arg=before[0])
    page.keyboard.press("-")
    page.wait_for_function(
        f"width => {{ const [a, b] = ({WINDOW})(); return b - a === width; }}", arg=whole[1]
    )
    assert browser.wrong == []


@pytest.mark.slow
def test_the_wheel_alone_scrolls_the_page(browser, page_of):
    page = browser.open(page_of(REAL))
    canvas = page.locator(".timeline .scroll canvas")
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    whole = page.evaluate(WINDOW)[1]
    page.keyboard.press("+")
    page.wait_for_function(f"whole => ({WINDOW})()[1] < whole", arg=whole)
    zoomed = page.evaluate(WINDOW)
    page.evaluate("window.scrollTo(0, scrollY - 200)")
    before = page.evaluate("scrollY")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 40)
    page.mouse.wheel(0, -150)
    page.wait_for_function("before => scrollY === before - 150", arg=before)
    assert page.evaluate(WINDOW) == zoomed
    assert "Ctrl and the wheel" in page.inner_text("#timeline .about")


@pytest.mark.slow
def test_tooltips_name_what_the_pointer_is_at(browser, page_of):
    page = browser.open(page_of(REAL))
    canvas = page.locator(".timeline .scroll canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 26)
    assert page.inner_text("#tip b") == "profile"
    page.hover(".icicle canvas", position={"x": 60, "y": 10})
    assert page.inner_text("#tip b") == "profile"
    assert "100.0 %" not in page.inner_text("#tip b")
    page.mouse.move(2, 2)
    assert not page.is_visible("#tip")


# -- themes, sizes, paper


@pytest.mark.slow
def test_the_theme_is_chosen_and_toggled(browser, page_of):
    page = browser.open(page_of(REAL))
    colour = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.click("#theme")
    dark = page.evaluate(colour)
    assert dark != light
    assert page.inner_text("#theme") == "Light"
    page.click("#theme")
    assert page.evaluate(colour) == light
    page.emulate_media(color_scheme="dark")
    browser.open(page_of(REAL))
    assert page.evaluate(colour) == dark
    page.emulate_media(color_scheme="light")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 820, 2200])
def test_no_width_makes_the_page_scroll_sideways(browser, page_of, width):
    browser.page.set_viewport_size({"width": width, "height": 800})
    try:
        page = browser.open(page_of("pytorch-2gpu-before", "pytorch-2gpu-after"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.wrong == []
    finally:
        browser.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.slow
def test_on_paper_the_first_rows_are_a_table(browser, page_of):
    page = browser.open(page_of(REAL))
    assert not page.is_visible(".on-paper")
    page.emulate_media(media="print")
    assert page.is_visible(".on-paper")
    assert not page.is_visible("#operators-table")
    assert page.locator(".on-paper tbody tr").count() == 25
    page.emulate_media(media="screen")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("mnist-training", "A4"), ("pytorch-backward", "Letter")]
)
def test_a_wide_window_prints_all_panels(browser, page_of, name, size):
    page = browser.open(page_of(name))
    page.pdf(format="A4")  # printing twice is printing the same
    printed = pypdf.PdfReader(io.BytesIO(page.pdf(format=size, print_background=True)))
    said = " ".join("".join(sheet.extract_text() for sheet in printed.pages).split())
    headings = page.evaluate(
        "() => [...document.querySelectorAll('.panel h2')].map(one => one.textContent)"
    )
    assert "GPU utilization" in headings
    for heading in headings:
        assert heading in said
    assert "it loads nothing and sends nothing" in said


@pytest.mark.slow
def test_controls_have_names_and_charts_have_texts(browser, page_of):
    page = browser.open(page_of(REAL))
    nameless = page.evaluate(
        "() => [...document.querySelectorAll('button, input, canvas[role], [role=img], section, nav')]"
        ".filter(one => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.innerText))"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    assert "busy" in page.get_attribute(".chart", "aria-label")
    assert "Timeline of" in page.get_attribute(".timeline .scroll canvas", "aria-label")


# -- numbers

TIMES = {
    0: "0 ns", 1: "1 ns", 999: "999 ns", 999.96: "1.000 µs", 1_000: "1.000 µs", 9_999.6: "10.00 µs",
    99_996: "100.0 µs", 999_940: "999.9 µs", 999_960: "1.000 ms", 999_960_000: "1.000 s",
    -999_960_000: "-1.000 s", 1_234_567_890_000: "1235 s",
}  # fmt: skip


@pytest.mark.slow
def test_what_rounds_up_to_a_larger_unit_is_told_in_it(browser, page_of):
    page = browser.open(page_of(REAL))
    source = (Path(bridge.__file__).parent / "render/page/scripts/format.js").read_text("utf-8")
    told = page.evaluate(
        "([source, times]) => times.map(new Function(`${source}; return time`)())",
        [source, list(TIMES)],
    )
    assert told == list(TIMES.values())
    size = "source => [1048575, 1023].map(new Function(`${source}; return size`)())"
    assert page.evaluate(size, source) == ["1.000 MiB", "1023 B"]


# -- two reports


@pytest.mark.slow
def test_two_reports_of_host_times_alone(browser, tmp_path):
    reports = [
        made_reports.report(tmp_path / f"{name}.sqlite", without="kernels copies fills graphs")
        for name in "ab"
    ]
    page = browser.open(make(tmp_path / "cpu.html", *reports))
    assert browser.wrong == []
    headings = page.evaluate("() => page.table.getColumns().map(one => one.getDefinition().title)")
    assert headings[:3] == ["op", "A: CPU total", "B: CPU total"]
    held = page.evaluate("page.table.getData().map(row => [row.name, row.a, row.b])")
    assert ["aten::mm", 1_160, 1_160] in held
    assert all(a == b for _, a, b in held)
    cards = page.evaluate(
        "() => [...document.querySelectorAll('.card h3')].map(one => one.innerText)"
    )
    assert "Op calls" in cards
    assert not {"GPU time", "Activities"} & set(cards)


@pytest.mark.slow
def test_two_reports_side_by_side(browser, page_of, corpus):
    page = browser.open(page_of("pytorch-2gpu-before", "pytorch-2gpu-after"))
    assert browser.wrong == []
    assert page.title() == "pytorch-2gpu-before.sqlite and pytorch-2gpu-after.sqlite"
    sides = [
        {
            row["op"]: row["gpu_self_ns"]
            for row in json.loads(
                CliRunner()
                .invoke(main, ["report", str(corpus / "nsys" / f"{name}.sqlite"), "--format", "json"])
                .stdout
            )["rows"]
        }
        for name in ("pytorch-2gpu-before", "pytorch-2gpu-after")
    ]  # fmt: skip
    held = page.evaluate("() => page.table.getData().filter(row => row.kind === 'op')")
    assert {row["name"] for row in held} == sides[0].keys() | sides[1].keys()
    for row in held:
        a, b = (side.get(row["name"]) for side in sides)
        assert (row["a"], row["b"], row["delta"]) == (a, b, (b or 0) - (a or 0))
        assert row["ratio"] == (pytest.approx(b / a) if a and b is not None else None)
    for panel in ("icicle", "timeline", "utilisation"):
        assert page.locator(f"#{panel} .of-side").count() == 2
    assert page.locator(".card .change").count() >= 5
    paths = [str(corpus / "nsys" / f"pytorch-2gpu-{side}.sqlite") for side in ("before", "after")]
    printed = json.loads(CliRunner().invoke(main, ["diff", *paths, "--format", "json"]).stdout)
    states = {row["op"]: row["state"] for row in printed["rows"]}
    assert {row["name"]: row["state"] for row in held} == states
    assert {"new", "vanished", "same"} <= set(states.values())
    assert {row["interval"] for row in held} == {None}


@pytest.mark.slow
def test_pictures(browser, page_of, shots):
    if shots is None:
        pytest.skip("BRIDGE_SHOTS names no folder for pictures")
    page = browser.page
    try:
        for name, width, scheme, media in (
            ("light", 1440, "light", "screen"),
            ("dark", 1440, "dark", "screen"),
            ("phone", 390, "light", "screen"),
            ("tablet", 820, "dark", "screen"),
            ("print", 800, "light", "print"),
        ):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, media=media)
            browser.open(page_of(REAL))
            time.sleep(0.2)
            page.screenshot(path=shots / f"page-{name}.png", full_page=True)
        browser.open(page_of("pytorch-2gpu-before", "pytorch-2gpu-after"))
        page.screenshot(path=shots / "page-two.png", full_page=True)
        page.pdf(path=shots / "page-print.pdf", format="A4", print_background=True)
    finally:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.emulate_media(color_scheme="light", media="screen")
