"""A fork within a session: the child records into a file of its own, and the parent's session is unaffected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from watched import names

import bridge
from bridge import importers

pytestmark = pytest.mark.slow


ROOT = Path(bridge.__file__).parent.parent
BEGINNING = """
import bridge, os, sys
def op(name):
    with bridge.nvtx_op(name): pass
def ready(session):
    print("ready in", "parent" if os.getpid() == parent else "child", flush=True)
parent = os.getpid()
session = bridge.profile(path="a{suffix}", on_trace_ready=ready)
"""


def run(program: str, folder: Path, suffix: str = ".jsonl") -> list[str]:
    """Run a program in a folder; give what it said."""
    # Newer Pythons warn of every fork of a process with threads, which is what is tried here.
    filters = "default,ignore:This process:DeprecationWarning"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": filters}
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING.format(suffix=suffix) + program],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def recorded(folder: Path) -> dict[str, list[str]]:
    """Give the ranges of the parent, and of the child."""
    found = {}
    for file in folder.glob("*.jsonl"):
        whose = "parent" if file.name == "a.jsonl" else "child"
        assert whose not in found
        found[whose] = names(importers.load(file))
    return found


ENDS = {
    "stop": "session.stop(); op('unheard'); os._exit(0)",
    "exit": "sys.exit()",
    "return": "op('heard')",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_forked_child_has_a_file_of_its_own(end, tmp_path):
    said = run(
        f"""
session.start()
op("before")
child = os.fork()
if not child:
    op("of the child")
    assert session.is_profiling and bridge.is_profiling()
    session.step()
    {ENDS[end]}
else:
    os.waitpid(child, 0)
    op("of the parent")
    session.stop()
""",
        tmp_path,
    )
    assert said == ["ready in parent"]
    expected = ["of the child", *(["heard"] if end == "return" else [])]
    assert recorded(tmp_path) == {"parent": ["before", "of the parent"], "child": expected}


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_child_in_a_block_that_is_left_in_both(tmp_path):
    said = run(
        """
with session:
    child = os.fork()
    op("of the parent" if child else "of the child")
if child:
    os.waitpid(child, 0)
else:
    op("unheard")
    assert not bridge.is_profiling()
    assert bridge.annotate.emit.state.idle
""",
        tmp_path,
    )
    assert said == ["ready in parent"]
    assert recorded(tmp_path) == {"parent": ["of the parent"], "child": ["of the child"]}


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_workers_of_multiprocessing(tmp_path):
    said = run(
        """
import multiprocessing
with session:
    op("of the parent")
    worker = multiprocessing.get_context("fork").Process(target=op, args=("of the child",))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    op("later")
""",
        tmp_path,
    )
    assert said == ["ready in parent"]
    assert recorded(tmp_path) == {"parent": ["of the parent", "later"], "child": ["of the child"]}


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_trace_is_the_parents_alone(tmp_path):
    said = run(
        """
with session:
    op("a")
    child = os.fork()
    op("b")
if child:
    os.waitpid(child, 0)
""",
        tmp_path,
        ".json",
    )
    assert said == ["ready in parent"]
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_child_may_begin_a_session_itself(within, tmp_path):
    """The same one as well: its file is the child's own."""
    said = run(
        f"""
if {within}:
    session.start()
    op("of the parent")
child = os.fork()
if child:
    os.waitpid(child, 0)
    if not {within}:
        session.start()
        op("of the parent")
    session.stop()
else:
    session.start()
    op("of the child's own")
    session.stop()
""",
        tmp_path,
    )
    assert sorted(said) == ["ready in child", "ready in parent"]
    files = {file.name: names(importers.load(file)) for file in tmp_path.glob("*.jsonl")}
    assert files.pop("a.jsonl") == ["of the parent"]
    assert ["of the child's own"] in files.values()


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_decorated_functions_in_workers(tmp_path):
    run(
        """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
@bridge.profile(path="a.jsonl")
def decorated(name):
    op(name)
    return os.getpid()
decorated("of the parent")
with ProcessPoolExecutor(1, get_context("fork")) as pool:
    [worker] = set(pool.map(decorated, ["first", "second"]))
assert worker != parent
""",
        tmp_path,
    )
    found = [names(importers.load(file)) for file in tmp_path.glob("a*.jsonl")]
    assert sorted(found) == [["first"], ["of the parent"], ["second"]]
    assert names(importers.load(tmp_path / "a.jsonl")) == ["of the parent"]


@pytest.mark.racy("a fork comes at a random moment of other threads")
def test_a_child_forked_while_other_threads_annotate(tmp_path):
    run(
        """
import threading
ended = threading.Event()
def work():
    while not ended.is_set(): op("thread")
threads = [threading.Thread(target=work) for _ in range(2)]
with session:
    for thread in threads: thread.start()
    for _ in range(20):
        child = os.fork()
        if not child:
            op("of the child")
            session.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    ended.set()
    for thread in threads: thread.join()
""",
        tmp_path,
    )
    children = list(tmp_path.glob("a-*.jsonl"))
    assert len(children) == 20
    assert all(names(importers.load(file)) == ["of the child"] for file in children)
    assert "thread" in names(importers.load(tmp_path / "a.jsonl"))
