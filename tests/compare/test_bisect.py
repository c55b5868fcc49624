"""`git bisect run` with `bridge diff --bisect`: the statuses, and a slow commit of a made repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import made_reports
import pytest
from command import assert_misused, bridge
from real_parts import ROOT, need

pytestmark = pytest.mark.usefixtures("folder")
FAILED, SKIPPED = 3, 125
LONGER = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 40 WHERE "end" - start = 80'


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give two reports of five steps, whose gemm takes half as long again in the second."""
    folder = tmp_path_factory.mktemp("pair")
    good, slow = (
        made_reports.small(folder / f"{name}.sqlite", steps=5) for name in ("good", "slow")
    )
    return good, made_reports.changed(slow, LONGER)


def status(*words: str | Path) -> int:
    return bridge("diff", *words).exit_code


@pytest.mark.slow
def test_a_commit_is_good_bad_or_skipped(pair, tmp_path: Path):
    good, slow = pair
    limit = ("--fail-over", "op:5%")
    assert status(good, good, *limit, "--bisect") == 0
    assert status(good, slow, *limit, "--bisect") == status(good, slow, *limit) == FAILED
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no database")
    for after in (broken, "nothing.sqlite"):
        assert status(good, after, *limit) == 1
        assert status(good, after, *limit, "--bisect") == SKIPPED
        said = bridge("diff", good, after, *limit, "--bisect").stderr.splitlines()
        assert said[-1].startswith("Error: ")
    for not_there in (("--step", "70..80"), ("--range", "nothing")):
        assert status(good, slow, *limit, *not_there) in (1, 2)
        assert status(good, slow, *limit, *not_there, "--bisect") == SKIPPED


@pytest.mark.slow
def test_a_report_in_which_nothing_can_be_judged_is_skipped(pair, tmp_path: Path):
    one_step = made_reports.small(tmp_path / "one.sqlite", steps=1)
    assert status(pair[0], one_step, "--fail-over", "iteration:5%") == FAILED
    assert status(pair[0], one_step, "--fail-over", "iteration:5%", "--bisect") == SKIPPED
    both = ("--fail-over", "iteration:5%", "--fail-over", "total:0%")
    assert status(one_step, pair[1], *both, "--bisect") == FAILED  # the total was judged
    (tmp_path / "budget.toml").write_text('[ops]\n"no such op" = { calls = 1 }\n')
    assert status(pair[1], "--budget", tmp_path / "budget.toml", "--bisect") == FAILED


def test_without_a_limit_nothing_is_good_or_bad(pair):
    assert_misused(bridge("diff", *pair, "--bisect"), "--bisect", "add --fail-over or --budget")


# -- A repository

PROGRAM = """import time

from bridge import nvtx_range

for step in range(10):
    with nvtx_range(f"step {step}"):
        time.sleep(%s)
"""
QUICK, SLOW, BROKEN = PROGRAM % 0.02, PROGRAM % 0.06, "def broken(:\n"
COMMITS = (
    QUICK,
    f"{QUICK}# two\n",
    BROKEN,
    f"{QUICK}# four\n",
    SLOW,
    f"{SLOW}# six\n",
    f"{SLOW}# seven\n",
)


def script_of_the_page() -> str:
    """Give the script of docs/trend.md, as a reader would write it to a file."""
    text = (ROOT / "docs" / "trend.md").read_text(encoding="utf-8")
    [script] = re.findall(
        r"cat > \.\./bisect\.sh <<'END'\n(.*?)^END$", text, re.MULTILINE | re.DOTALL
    )
    return script


@pytest.mark.slow
@pytest.mark.racy("a program is timed by the clock")
def test_git_finds_the_slow_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    git = need("git", shutil.which("git"), "no git on the path")
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{Path('/usr/bin')}:{Path('/bin')}")
    for name, text in {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, text)

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=repository, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(git, "init", "--quiet")
    for number, program in enumerate(COMMITS, 1):
        (repository / "train.py").write_text(program)
        run(git, "add", "train.py")
        author = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
        run(git, *author, "commit", "--quiet", "-m", f"commit {number}")
    (tmp_path / "bisect.sh").write_text(script_of_the_page())
    run(git, "checkout", "--quiet", "HEAD~6")
    run(sys.executable, "-m", "bridge.autorun", "--record", "../good.jsonl", "train.py")
    run(git, "checkout", "--quiet", "-")
    run(git, "bisect", "start", "HEAD", "HEAD~6")
    said = run(git, "bisect", "run", "sh", "../bisect.sh")
    [bad] = re.findall(r"^(\w+) is the first bad commit$", said, re.MULTILINE)
    assert run(git, "log", "-1", "--format=%s", bad) == "commit 5\n"
