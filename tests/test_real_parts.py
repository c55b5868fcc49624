"""A part that is missing is named in the skip, and fails where it is required."""

import json
import re
import subprocess
import sys

import pytest
import real_parts


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


# One process runs pytest again and again, each time with other variables: most of a run is its start.
AGAIN = """
import json, os, sys
import pytest
for words, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    status = pytest.main(["-p", "conftest", "-c", "/dev/null", *words])
    print("END", int(status), flush=True)
"""


def runs(*wanted):
    """Run a pytest of its own with these words and variables, nothing on the path; give the status and the output of each."""
    ran = subprocess.run(
        [sys.executable, "-c", AGAIN, json.dumps(wanted)],
        env={"PATH": "", "PYTHONPATH": str(real_parts.ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    *found, rest = re.split(r"END (\d)\n", ran.stdout)
    assert not rest
    return [(int(status), said) for said, status in zip(found[::2], found[1::2], strict=True)]


@pytest.mark.slow
def test_the_fixtures_use_it(tmp_path):
    """Ask for the parts where nothing is on the path and there is no corpus."""
    absent = {
        "nsys": "nsys is not installed",
        "go": "Go is not installed",
        "corpus": real_parts.NO_CORPUS,
    }
    program = tmp_path / "test_absent.py"
    program.write_text("".join(f"def test_{name}({name}): pass\n" for name in absent))
    nowhere = {"BRIDGE_CORPUS": str(tmp_path / "none")}
    cases = ("", "nsys,chromium,go,corpus")
    found = runs(
        *([["-rsf", str(program)], nowhere | {"BRIDGE_REQUIRE": required}] for required in cases)
    )
    for required, (status, said) in zip(cases, found, strict=True):
        assert status == bool(required), said
        assert ("3 errors" if required else "3 skipped") in said
        assert [reason for reason in absent.values() if reason not in said] == []


@pytest.mark.slow
def test_a_run_that_skips_more_than_it_may_fails(tmp_path):
    program = tmp_path / "test_skipping.py"
    program.write_text(
        "import pytest\ndef test_a(): pytest.skip('a')\ndef test_b(): pytest.skip('b')\ndef test_c(): pass"
        "\ndef test_d(corpus): pass\ndef test_e(parity_script): pass"
    )
    cases = {"2": 0, "1": 1, "": 0}
    nowhere = {"BRIDGE_CORPUS": str(tmp_path / "none")}
    found = runs(*([[str(program)], nowhere | {"BRIDGE_MOST_SKIPS": most}] for most in cases))
    for expected, (status, said) in zip(cases.values(), found, strict=True):
        assert status == expected, said
        words = "2 tests were skipped for other reasons; BRIDGE_MOST_SKIPS allows 1"
        assert (words in said) == bool(expected)
    assert ["2 tests were skipped for want of the corpus" in said for _, said in found] == [
        True,
        True,
        False,
    ]


@pytest.mark.slow
def test_tests_of_the_corpus_are_marked_with_and_without_it(tmp_path):
    program = tmp_path / "test_marked.py"
    program.write_text(
        "import pytest, real_parts\ndef test_a(corpus): pass\ndef test_b(): pass\n"
        "@pytest.mark.parametrize('path', real_parts.corpus_reports('nsys/*.sqlite'))\ndef test_c(path): pass"
    )
    nowhere = {"BRIDGE_CORPUS": str(tmp_path / "none")}
    [(_, said)] = runs([["-m", "corpus", str(program)], nowhere])
    assert "2 skipped, 1 deselected" in said


@pytest.mark.slow
def test_the_shards_of_a_run_are_the_whole(tmp_path):
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text(
            f"def test_{name}(): pass\ndef test_{name}{name}(): pass"
        )
    words = ["-q", "--collect-only", str(tmp_path)]
    found = runs(*([words, {"BRIDGE_SHARD": part}] for part in ("1/3", "2/3", "3/3")))
    seen = [{line for line in said.splitlines() if "::" in line} for _, said in found]
    assert len(set.union(*seen)) == sum(map(len, seen)) == 12
