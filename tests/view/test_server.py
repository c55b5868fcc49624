"""The server behind `bridge view`: who gets the file, who does not, and when it ends."""

from __future__ import annotations

import http.client
import socket
import time
from threading import Thread

import pytest

from bridge.cli import view
from bridge.cli.view import UI, Handover, opened, origin

pytestmark = pytest.mark.slow

CONTENT = bytes(range(256)) * 4_000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my trace (1).json.gz"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def serving(file):
    """Serve on, until the test is done; 20 s at most."""
    with Handover(file, port=0) as server:
        thread = Thread(target=server.serve, args=(20,))
        thread.start()
        yield server
        server.fetched.set()
        thread.join()


def ask(server, method="GET", path=None, host=None, **headers):
    """Return status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path or server.path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_the_page_gets_the_file_and_the_server_ends(serving):
    status, headers, body = ask(serving, Origin=UI)
    assert (status, body) == (200, CONTENT)
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert headers["Cache-Control"] == "no-store"
    assert serving.fetched.wait(5)


def test_only_this_machine_is_asked(serving):
    assert serving.server_address[0] == "127.0.0.1"


def test_the_path_cannot_be_guessed_and_has_nothing_odd_in_it(file):
    with Handover(file, port=0) as one, Handover(file, port=0) as other:
        assert one.path != other.path
        token, name = one.path.strip("/").split("/")
        assert len(token) >= 32
        assert name == "my_trace_1_.json.gz"
        file = f"http://127.0.0.1:{one.server_port}{one.path}"
        assert one.address.startswith(f"{UI}/#!/?url={file}&startupCommands=%5B%7B%22id%22")


@pytest.mark.parametrize(
    "path", ["/", "/my_trace_1_.json.gz", "/../../etc/passwd", "//etc/passwd", "/status", "/ü"]
)
def test_there_is_nothing_else(serving, path):
    path = path.encode().decode("latin-1")
    connection = socket.create_connection(("127.0.0.1", serving.server_port), timeout=10)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{serving.server_port}\r\n\r\n"
    connection.sendall(head.encode("latin-1"))
    answer = connection.makefile("rb").read()
    connection.close()
    assert answer.startswith(b"HTTP/1.0 404 ")
    assert answer.endswith(b"\r\n\r\n")
    status, _, body = ask(serving, path=serving.path + "/..")
    assert (status, body) == (404, b"")
    assert not serving.fetched.is_set()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_there_is_nothing_else_to_do(serving, method):
    status, headers, body = ask(serving, method)
    assert status == 501
    assert CONTENT[:100] not in body
    assert "Access-Control-Allow-Origin" not in headers


def test_another_name_of_this_machine_is_refused(serving):
    for host in ("evil.example", f"evil.example:{serving.server_port}", "127.0.0.1", "0.0.0.0"):
        assert ask(serving, host=host)[::2] == (403, b"")
    assert ask(serving, host=f"localhost:{serving.server_port}")[0] == 200


def test_another_page_is_refused(serving):
    for page in ("https://evil.example", "null", "http://ui.perfetto.dev"):
        status, headers, body = ask(serving, Origin=page)
        assert (status, body) == (403, b"")
        assert "Access-Control-Allow-Origin" not in headers
        assert ask(serving, "OPTIONS", Origin=page)[0] == 403
    assert not serving.fetched.is_set()


def test_browsers_may_inquire_without_fetching(serving):
    status, headers, _ = ask(serving, "OPTIONS", Origin=UI)
    assert status == 204
    assert headers["Access-Control-Allow-Methods"] == "GET, HEAD"
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    status, headers, body = ask(serving, "HEAD", Origin=UI)
    assert (status, headers["Content-Length"], body) == (200, str(len(CONTENT)), b"")
    assert not serving.fetched.is_set()


@pytest.mark.slow
@pytest.mark.racy("a server's patience is measured by the clock")
def test_a_page_that_goes_away_may_come_again(file):
    file.write_bytes(CONTENT * 30)  # more than the buffers between the two hold
    with Handover(file, port=0) as server:
        thread = Thread(target=server.serve, args=(20,))
        thread.start()
        connection = socket.create_connection(("127.0.0.1", server.server_port))
        host = f"Host: 127.0.0.1:{server.server_port}"
        connection.sendall(f"GET {server.path} HTTP/1.1\r\n{host}\r\n\r\n".encode())
        connection.recv(1_000)
        connection.close()
        time.sleep(0.3)
        assert not server.fetched.is_set()
        idle = socket.create_connection(("127.0.0.1", server.server_port))  # says nothing
        assert ask(server)[2] == CONTENT * 30
        idle.close()
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.racy("a server's patience is measured by the clock")
def test_it_ends_when_nobody_comes(file):
    with Handover(file, port=0) as server:
        start = time.monotonic()
        assert not server.serve(0.4)
        assert 0.3 < time.monotonic() - start < 5


@pytest.mark.slow
@pytest.mark.racy("a server's patience is measured by the clock")
def test_it_stays_if_told_to(file):
    with Handover(file, port=0) as server:
        thread = Thread(target=server.serve, args=(0.4,), kwargs={"keep": True}, daemon=True)
        thread.start()
        assert ask(server)[2] == CONTENT
        time.sleep(0.7)
        assert ask(server)[2] == CONTENT
        assert thread.is_alive()
        server.ended.set()
        thread.join(5)
        assert not thread.is_alive()


def test_a_port_that_is_taken_is_an_error(file):
    with Handover(file, port=0) as server, pytest.raises(OSError):
        Handover(file, port=server.server_port)


def test_origins():
    assert origin("https://Ui.Perfetto.dev/v52/") == "https://ui.perfetto.dev"
    assert origin("http://127.0.0.1:10000") == "http://127.0.0.1:10000"
    for no in ("ui.perfetto.dev", "file:///x", "javascript:alert(1)", "https://"):
        with pytest.raises(ValueError):
            origin(no)


def test_a_browser_needs_a_display(monkeypatch):
    asked = []
    monkeypatch.setattr(view.webbrowser, "open", lambda address: asked.append(address) or True)
    monkeypatch.setattr(view.sys, "platform", "linux")
    for name in view.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    assert not opened("http://x")
    monkeypatch.setenv("DISPLAY", ":0")
    assert opened("http://x")
    assert asked == ["http://x"]

    def none(_):
        raise view.webbrowser.Error

    monkeypatch.setattr(view.webbrowser, "open", none)
    assert not opened("http://x")
