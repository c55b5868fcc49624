"""A part that is missing is named in the skip, and fails where it is required."""

import subprocess
import sys

import pytest
import real_parts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("required", ["corpus, nsys", "corpus", ""])
def test_a_missing_part_skips_unless_it_is_required(required, monkeypatch):
    monkeypatch.setenv("BRIDGE_REQUIRE", required)
    outcome = pytest.fail.Exception if "nsys" in required else pytest.skip.Exception
    with pytest.raises(outcome, match="nsys is not installed"):
        real_parts.need("nsys", None, "nsys is not installed")
    assert real_parts.need("nsys", "/usr/bin/nsys", "nsys is not installed") == "/usr/bin/nsys"


def test_the_corpus_is_listed_or_its_absence_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("BRIDGE_REQUIRE", raising=False)
    monkeypatch.setattr(real_parts, "CORPUS", tmp_path)
    [absent] = real_parts.corpus_reports()
    assert absent.marks[0].kwargs == {"reason": real_parts.NO_CORPUS}
    monkeypatch.setenv("BRIDGE_REQUIRE", "corpus")
    with pytest.raises(RuntimeError, match="no corpus"):
        real_parts.corpus_reports()
    (tmp_path / "nsys").mkdir()
    (tmp_path / "nsys" / "a.sqlite").touch()
    with pytest.raises(RuntimeError, match="no corpus"):
        real_parts.corpus_reports()  # none of the sample
    assert [one.id for one in real_parts.corpus_reports(names=["a"])] == ["a"]
    monkeypatch.setattr(real_parts, "NIGHT", True)
    [present] = real_parts.corpus_reports()
    assert (present.id, present.values) == ("a", (tmp_path / "nsys" / "a.sqlite",))


@pytest.mark.parametrize("required", ["", "nsys,chromium,corpus"])
def test_the_fixtures_use_it(required, tmp_path):
    """Ask for the parts in a pytest of its own, where nothing is on the path and there is no corpus."""
    absent = {"nsys": "nsys is not installed", "corpus": real_parts.NO_CORPUS}
    program = tmp_path / "test_absent.py"
    program.write_text("".join(f"def test_{name}({name}): pass\n" for name in absent))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-rsf", "-p", "conftest", "-c", "/dev/null", str(program)],
        env={
            "PATH": "",
            "PYTHONPATH": str(real_parts.ROOT / "tests"),
            "BRIDGE_CORPUS": str(tmp_path / "none"),
            "BRIDGE_REQUIRE": required,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == bool(required), run.stdout + run.stderr
    assert ("2 errors" if required else "2 skipped") in run.stdout
    assert [reason for reason in absent.values() if reason not in run.stdout] == []


@pytest.mark.parametrize(("most", "status"), [("2", 0), ("1", 1), ("", 0)])
def test_a_run_that_skips_more_than_it_may_fails(most, status, tmp_path):
    program = tmp_path / "test_skipping.py"
    program.write_text(
        "import pytest\ndef test_a(): pytest.skip('a')\ndef test_b(): pytest.skip('b')\ndef test_c(): pass"
    )
    environ = {"PATH": "", "PYTHONPATH": str(real_parts.ROOT / "tests"), "BRIDGE_MOST_SKIPS": most}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", "/dev/null", str(program)]
    run = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == status, run.stdout + run.stderr
    assert ("2 tests were skipped; BRIDGE_MOST_SKIPS allows 1" in run.stdout) == bool(status)


def test_the_shards_of_a_run_are_the_whole(tmp_path):
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text(
            f"def test_{name}(): pass\ndef test_{name}{name}(): pass"
        )
    seen = []
    for part in ("1/3", "2/3", "3/3"):
        environ = {"PATH": "", "PYTHONPATH": str(real_parts.ROOT / "tests"), "BRIDGE_SHARD": part}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "-p",
            "conftest",
            "-c",
            "/dev/null",
            str(tmp_path),
        ]
        run = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        seen.append({line for line in run.stdout.splitlines() if "::" in line})
    assert len(set.union(*seen)) == sum(map(len, seen)) == 12
