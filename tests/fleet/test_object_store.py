"""Reports in an object store: a local server speaks S3, and workers fetch from it as from a disk."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import done

from fleet.reports import several

pytestmark = pytest.mark.slow
PATIENCE_S = 30
ASKED = ("--by", "report,op", "--format", "csv")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Serve reports as `s3://reports/run/`; yield the folder that they were copied from."""
    missing = [name for name in ("moto", "s3fs", "flask") if find_spec(name) is None]
    if missing:
        pytest.skip(f"at night: not installed: {', '.join(missing)}")
    import s3fs

    folder = tmp_path_factory.mktemp("bucket")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            patched.setenv(name, value)
        try:
            wait_for(port)
            store = s3fs.S3FileSystem()
            store.mkdir("reports")
            for path in several(folder, 3):
                store.put(str(path), f"reports/run/{path.parent.name}-{path.name}")
                path.rename(folder / f"{path.parent.name}-{path.name}")
            yield folder
        finally:
            server.terminate()
            server.wait()


def wait_for(port: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("the server does not answer")


def test_a_bucket_is_as_a_folder(bucket, tmp_path) -> None:
    files = done("report", f"{bucket}/*.sqlite", *ASKED)
    assert done("report", "s3://reports/run/*.sqlite", *ASKED) == files
    assert done("report", "s3://reports/run/*.sqlite", *ASKED, "--workers", 2) == files
    db = tmp_path / "bridge.db"
    done("import", "s3://reports/run/", "--workers", 2, "--db", db)
    assert done("report", "--db", db, *ASKED) == files
