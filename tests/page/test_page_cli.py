"""`bridge html` on the command line: what it takes, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import made_pages
import made_reports
import pytest
from command import assert_misused, assert_refused, bridge, done
from real_parts import ROOT
from release.built import build

pytestmark = pytest.mark.usefixtures("folder")


def data(path: Path | str) -> dict:
    text = Path(path).read_text(encoding="utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


@pytest.fixture
def two_steps_here(two_steps: Path, folder: Path) -> Path:
    return Path(shutil.copy(two_steps, folder / "report.sqlite"))


@pytest.mark.slow
def test_one_report(two_steps_here):
    result = bridge("html", two_steps_here, "-o", "page.html")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1] == "page.html: open it in a browser"
    held = data("page.html")
    assert [one["source"] for one in held["reports"]] == [["report.sqlite"]]
    assert held["comparison"] is None
    assert "<title>report.sqlite</title>" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_reports_are_not_merged(two_steps_here, folder):
    other = made_reports.small(folder / "other.sqlite")
    done("html", two_steps_here, other, "-o", "page.html")
    held = data("page.html")
    assert [one["source"] for one in held["reports"]] == [["report.sqlite"], ["other.sqlite"]]
    assert held["comparison"]["name"]


@pytest.mark.slow
def test_the_newest_run_of_the_store(two_steps_here):
    assert_refused(bridge("html", "-o", "page.html"), "bridge.db")
    done("import", two_steps_here)
    done("html", "-o", "page.html")
    stored = data("page.html")["reports"][0]
    done("html", two_steps_here, "-o", "direct.html")
    direct = data("direct.html")["reports"][0]
    assert stored["source"] == ["report.sqlite"]
    assert stored["figures"] == direct["figures"]
    assert stored["operators"] == direct["operators"]


def test_options_of_attribution_count(two_steps_here):
    done("html", two_steps_here, "--exclude-domain", "default", "-o", "page.html")
    rows = data("page.html")["reports"][0]
    assert "aten::mm" not in {rows["names"][name] for name in rows["operators"]["name"]}


def test_what_is_refused(two_steps_here, folder):
    assert_misused(bridge("html", two_steps_here), "-o report.html")
    assert_misused(bridge("html", two_steps_here, "-o", "page.json"), "page.json", ".html")
    three = bridge("html", two_steps_here, two_steps_here, two_steps_here, "-o", "page.html")
    assert_misused(three, "3 reports", "side by side", "bridge import")
    with_run = bridge("html", two_steps_here, "--run", "1", "-o", "page.html")
    assert_misused(with_run, "--run")
    assert_misused(
        bridge("html", two_steps_here, two_steps_here, "--sidecar", folder, "-o", "page.html"),
        "--sidecar",
    )
    assert_refused(bridge("html", "absent.sqlite", "-o", "page.html"), "absent.sqlite")
    assert not Path("page.html").exists()


@pytest.mark.slow
def test_nothing_is_replaced_without_force(two_steps_here):
    Path("page.html").write_text("mine", encoding="utf-8")
    assert_refused(bridge("html", two_steps_here, "-o", "page.html"), "page.html", "--force")
    assert Path("page.html").read_text(encoding="utf-8") == "mine"
    done("html", two_steps_here, "-o", "page.html", "--force")
    assert data("page.html")["reports"]
    named = two_steps_here.rename("report.html")
    assert_misused(bridge("html", named, "-o", "report.html", "--force"), "the report itself")


@pytest.mark.slow
def test_details_of_calls_become_a_roofline(folder):
    made_pages.calls(folder / "calls.sqlite")
    done("html", "calls.sqlite", "-o", "page.html")
    assert data("page.html")["reports"][0]["roofline"]["flops"] == [7_000.0]


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from make_report import make

    path = tmp_path_factory.mktemp("large") / "large.sqlite"
    make(path, 100_000, threads=2)
    return path


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_a_page_of_many_kernels_is_small_and_quick(large, chromium):
    pytest.importorskip("playwright", reason="playwright is not installed")
    from opened_page import Browser

    start = time.perf_counter()
    done("html", large, "-o", "page.html")
    assert time.perf_counter() - start < 30  # 1 s here: for a change of kind
    assert Path("page.html").stat().st_size < 1_400_000
    with Browser(chromium, bypass_csp=False) as opened:
        ready = []
        while not ready or (min(ready) >= 1_500 and len(ready) < 3):  # the best of three counts
            ready.append(opened.open(Path("page.html").resolve()).evaluate("page.readyMs"))
        assert opened.wrong == []
    assert min(ready) < 1_500, ready


@pytest.mark.slow
def test_the_page_works_from_a_wheel(tmp_path, two_steps_here):
    if find_spec("uv") is None:
        pytest.skip("uv is not installed: pip install -e '.[dev]'")
    wheel = build(tmp_path / "wheel", ROOT, what="wheel")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    command = [sys.executable, "-m", "bridge", "html", two_steps_here, "-o", tmp_path / "page.html"]
    where = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    asked = [sys.executable, "-c", "import bridge; print(bridge.__file__)"]
    found = subprocess.run(
        asked, cwd=tmp_path, env=where, check=True, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(tmp_path))
    subprocess.run(command, cwd=tmp_path, env=where, check=True, capture_output=True, timeout=60)
    done("html", two_steps_here, "-o", "here.html")
    assert (tmp_path / "page.html").read_bytes() == Path("here.html").read_bytes()
