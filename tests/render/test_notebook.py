"""What a notebook shows of a report."""

from html.parser import HTMLParser

import pytest

import bridge
from bridge.analyze.tables.views import VIEWS
from bridge.cli import demo_report
from bridge.render import table
from importers.nsys.write import write


class Read(HTMLParser):
    """The cells of the table, and every tag."""

    def __init__(self):
        super().__init__()
        self.tags, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and self.tags[-1] in ("td", "th"):
            self.cells[-1] += data


def read(html):
    found = Read()
    found.feed(html)
    return found


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    demo_report.make(path)
    return bridge.load(path)


@pytest.mark.slow
def test_a_report_shows_its_ops_and_the_accounting(joined):
    html = joined._repr_html_()
    found = read(html)
    assert found.cells[0] == "op"
    assert found.tags.count("tr") == 1 + 20
    assert "… and 1 more rows" in html
    assert "aten::addmm" in found.cells
    assert "118 activities" in html
    assert "--share: 100.0%" in html


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_shown(joined, view):
    rows = joined.by(view)
    found = read(table.as_html(view, rows, "nothing"))
    assert found.tags.count("tr") == 1 + len(rows)


def test_names_are_texts(joined):
    rows = joined.by("kernel").head(1).assign(kernel=["</td><script>alert(1)</script>"])
    found = read(table.as_html("kernel", rows, "<img src=x>", left_out=3))
    assert not {"script", "img"} & set(found.tags)
    assert "</td><script>alert(1)</script>" in found.cells


@pytest.mark.slow
def test_without_device_work_the_times_are_of_the_cpu(tmp_path):
    path = tmp_path / "host.sqlite"
    ranges = [{"start": 1, "end": 9, "type": 59, "thread": 1 << 24, "text": "on the host"}]
    write(path, {"annotations": ranges, "strings": []})
    assert "CPU self" in read(bridge.load(path)._repr_html_()).cells


def test_a_plain_prompt_gets_one_line(joined):
    assert repr(joined).startswith("<Joined demo.sqlite: ")
    assert "118 activities" in repr(joined)
    assert "\n" not in repr(joined)
