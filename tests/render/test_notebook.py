"""What notebooks show of a report, and of what its methods return."""

import gzip
import re
import subprocess
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest
from advice.story import Story

import bridge
from bridge.analyze.core.catalog import VIEWS
from bridge.importers.nsys.write import write_export
from bridge.render import notebook

NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
HOSTILE = "</td></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'\n& 100 % $x$"


class Read(HTMLParser):
    """The rows of cells, every tag, and all text outside of styles."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.rows, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.tags[-1] != "style":
            self.text += data
        if self.tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def read(shown):
    return Read(shown._repr_html_())


def in_ns(text):
    number, unit = text.split(" ")
    return float(number) * NS[unit]


@pytest.fixture(scope="module")
def loaded(demo):
    return bridge.load(demo)


@pytest.mark.slow
def test_a_report_shows_its_use_its_ops_and_the_accounting(loaded):
    found = read(loaded)
    assert found.rows[0][0] == "op"
    assert len(found.rows) == 1 + 20
    assert found.text.startswith("GPU 0 Imaginary GPU: busy 98.5 % of the run, 6.584 ms.")
    assert "… and 1 more" in found.text
    assert "aten::addmm" in [row[0] for row in found.rows]
    assert "118 activities" in found.text
    assert "--share: 100.0%" in loaded._repr_html_()


def test_figures_are_those_of_the_table_to_three_decimals_of_their_unit(loaded):
    table = loaded.by("op").set_index("op")
    shown = loaded.show("op", top=100)
    heading, *rows = read(shown).rows
    assert len(rows) == len(table)
    columns = {"GPU self": "gpu_self_ns", "GPU total": "gpu_total_ns"}
    assert set(columns) <= set(heading)
    for row in rows:
        cells = dict(zip(heading, row, strict=True))
        for name, column in columns.items():
            exact = int(table.loc[cells["op"], column])
            assert in_ns(cells[name]) == pytest.approx(exact, rel=5.1e-4, abs=0.5), (cells, name)
        assert int(cells["calls"].replace(" ", "")) == table.loc[cells["op"], "calls"]


def test_a_table_stays_a_plain_frame_of_integers(loaded):
    table = loaded.by("op")
    assert type(table) is pd.DataFrame
    assert table["gpu_self_ns"].dtype == "int64"
    shown = loaded.show("op", top=3)
    assert type(shown.rows) is pd.DataFrame
    assert shown.rows.equals(table.head(3))
    assert shown.left_out == len(table) - 3


def test_a_prompt_gets_the_table_as_text(loaded, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = repr(loaded.show("kernel", top=2)).splitlines()
    assert lines[0].startswith("kernel")
    assert (
        len([line for line in lines if " ms" in line or " µs" in line]) == 3
    )  # and the accounting
    assert "more" in lines[-2]
    assert lines[-1].startswith("118 activities")
    assert max(map(len, lines[:-1])) <= 100


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_shown(loaded, view):
    shown = loaded.show(view, top=1_000_000)
    assert len(read(shown).rows) == 1 + len(loaded.by(view))


def test_columns_and_several_dimensions_can_be_asked_for(loaded):
    heading, *rows = read(loaded.show("op,stream", columns="total")).rows
    assert heading[0] == "op"
    assert rows
    with pytest.raises(ValueError, match="no column"):
        loaded.show("op", columns="nothing")


@pytest.mark.slow
def test_ops_of_numbered_steps_are_one_row(tmp_path):
    story = Story()
    for number in range(4):
        with story.op(f"Batch {number}"):
            story.kernel()
    report = story.load(tmp_path)
    assert [row[0] for row in read(report).rows[1:]] == ["Batch *"]
    assert len(report.by("op")) == 4


@pytest.mark.slow
def test_without_device_work_the_times_are_of_the_cpu(tmp_path):
    path = tmp_path / "host.sqlite"
    ranges = [{"start": 1, "end": 9, "type": 59, "thread": 1 << 24, "text": "on the host"}]
    write_export(path, {"annotations": ranges, "strings": []})
    report = bridge.load(path)
    assert "CPU self" in read(report).rows[0]
    with pytest.raises(ValueError, match=r"host\.sqlite: no work on a GPU in the report"):
        report.plot()


@pytest.mark.slow
def test_without_ranges_the_kernels_are_shown(corpus):
    report = bridge.load(corpus / "nsys" / "gtls-no-nvtx.sqlite")
    heading, *rows = read(report).rows
    assert heading[0] == "kernel"
    assert rows


@pytest.mark.slow
def test_the_summary_and_the_advice_of_a_real_report(corpus):
    report = bridge.load(corpus / "nsys" / "mnist-training.sqlite")
    lines = read(report.summary).text
    assert "data loading" in lines
    assert "busy 2.7 % of the run" in lines  # 419.596 ms of work in 15 375.231 ms
    advised = report.advise()
    html = read(advised)
    assert html.tags.count("li") == len(advised.advice) > 0
    assert all(advice.rule.title in html.text for advice in advised.advice)
    assert re.search(r"at most [0-9.]+ m?s \([0-9.]+ % of the run\)", html.text)
    assert not re.search(r"[0-9]{9,}", html.text)  # no raw nanoseconds
    with gzip.open(corpus / "expected" / "mnist-training" / "cuda_gpu_kern_sum.csv.gz") as file:
        theirs = pd.read_csv(file)
    heading, *rows = read(report.show("kernel", top=1)).rows
    largest = dict(zip(heading, rows[0], strict=True))
    assert in_ns(largest["GPU total"]) == pytest.approx(theirs.iloc[0, 1], rel=5.1e-4)


def test_quality_says_the_score_and_what_each_reason_costs(loaded):
    found = read(loaded.quality)
    assert f"capture quality {loaded.quality.score} of 100" in found.text
    assert found.tags.count("li") == len(loaded.quality.reasons)
    for deduction in loaded.quality.reasons:
        assert f"−{deduction.cost} {deduction.reason.name}" in found.text


def test_a_comparison_shows_changes_and_its_accounting(demo, loaded):
    compared = bridge.diff(demo, loaded)
    found = read(compared)
    assert found.rows[0][0] == "op"
    worked = compared.rows.query("before_ns > 0 or after_ns > 0")
    assert len(found.rows) == 1 + min(20, len(worked))
    assert "demo.sqlite → demo.sqlite" in found.text
    # In µs: 12 layers of 9 + 92 + 61 + 4 forward and 2 × 61 + 184 + 14 + 120 backward, 4 before, 38 × (1 + 1.1 + 1.2)
    # of the optimizer, three copies of 52.428 and three memsets of 1.2
    assert "activity time 7.562 ms → 7.562 ms" in found.text


def test_a_session_shows_what_it_recorded_or_why_there_is_nothing():
    session = bridge.profile(capture=None)
    assert "recorded nothing yet" in read(session).text
    with session, bridge.nvtx_op("my op"):
        pass
    found = read(session)
    assert "my op" in [row[0] for row in found.rows]
    assert "CPU self" in found.rows[0]


def test_names_are_texts(loaded):
    rows = loaded.by("kernel").head(1).assign(kernel=[HOSTILE])
    for shown in (
        notebook.ShownTable("kernel", rows, 3, above=(HOSTILE,), below=(HOSTILE,)),
        notebook.ShownTable("", rows.assign(**{HOSTILE: [1]})),
    ):
        found = read(shown)
        assert not {"script", "img"} & set(found.tags)
        assert HOSTILE.replace("\n", " ") in found.text


@pytest.mark.slow
def test_hostile_names_of_a_report_run_nothing_anywhere(tmp_path, chromium):
    story = Story()
    for _ in range(3):
        with story.op(HOSTILE):
            story.kernel(HOSTILE, 200)
            story.rest(500)
    report = story.load(tmp_path)
    parts = [report, report.summary, report.advise(worth=0), report.quality]
    parts += [report.show("op-kernel"), bridge.diff(report, report)]
    html = "".join(part._repr_html_() for part in parts)
    assert not {"script", "img"} & set(Read(html).tags)
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = in_browser(chromium, html + report.plot().svg, tmp_path)
    assert drawn["dialogs"] == []
    assert drawn["scripts"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_notebooks_of_both_themes_show_readable_text(loaded, chromium, tmp_path, dark):
    shown = [loaded, loaded.summary, loaded.advise(), loaded.quality, bridge.diff(loaded, loaded)]
    html = "".join(part._repr_html_() for part in shown)
    drawn = in_browser(chromium, html, tmp_path, dark=dark)
    assert drawn["colors"] == (["rgb(238, 238, 238)"] if dark else ["rgb(17, 17, 17)"])
    assert drawn["cells"] == sum(len(row) for row in Read(html).rows)
    assert drawn["bars"] == 20
    assert drawn["widest"] > 50


def in_browser(chromium, html, folder, *, dark=False):
    """Show HTML as an output cell in Chromium, and say what is there."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from viewers.ui import QUIET

    page_colors = "#111;color:#eee" if dark else "#fff;color:#111"
    path = folder / "cell.html"
    path.write_text(
        f'<!doctype html><meta charset=utf-8><body style="background:{page_colors}">{html}',
        encoding="utf-8",
    )
    dialogs = []
    with api.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(color_scheme="dark" if dark else "light")
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        found = page.evaluate(
            """() => {
                const all = [...document.querySelectorAll('.nsight-bridge :is(td, th, p, li)')]
                const bars = [...document.querySelectorAll('td.bar')]
                return {
                    colors: [...new Set(all.map(one => getComputedStyle(one).color))],
                    cells: document.querySelectorAll('td, th').length,
                    bars: bars.length,
                    widest: Math.max(0, ...bars.map(one => one.getBoundingClientRect().width)),
                    scripts: document.querySelectorAll('script, img').length,
                }
            }"""
        )
        page.screenshot(path=folder / f"cell-{'dark' if dark else 'light'}.png", full_page=True)
        browser.close()
    return found | {"dialogs": dialogs}


@pytest.mark.slow
def test_the_plot_is_a_picture_of_the_largest_ops(loaded):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = loaded.plot(top=3)
    svg = picture._repr_svg_()
    assert "<svg" in svg
    assert loaded.plot(top=3).svg == svg
    assert "notebook" in repr(picture)


@pytest.mark.slow
def test_without_matplotlib_the_plot_says_what_to_install(demo):
    program = (
        "import sys; sys.modules['matplotlib'] = None; import importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'matplotlib' else f(n, *a)\n"
        "import bridge; bridge.load(sys.argv[1]).plot()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, demo], capture_output=True, text=True, check=False
    )
    last = ended.stderr.splitlines()[-1]
    assert last == "ImportError: matplotlib is needed: pip install 'nsight-bridge[plot]'"


def test_a_plain_prompt_gets_one_line(loaded):
    assert repr(loaded).startswith("<Report demo.sqlite: ")
    assert "118 activities" in repr(loaded)
    assert "\n" not in repr(loaded)
