"""``--memory-limit``: what fits is read as ever, what does not goes in windows and prints the same, or is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge, done, table_in
from made_reports import report
from read_once import reading_once

from bridge import nvtx_op, profile
from bridge.importers.nsys import windows
from bridge.scale.windows import aggregation
from bridge.scale.windows import window as part

ASKED = """
--by op
--by op --direction forward --columns default,gpu_p99,tensor-cores
--by op-kernel --inclusive
--by op-kernel --kernel-names demangled --running
--by kernel --columns median,p95,mean,share,count,busy,span
--by memcpy --memory-kinds
--by op,path,direction --sort gpu_busy --top 5
--by op,phase
--by api --columns default,p99
--by thread,kernel
--by device,stream --columns count,gb_per_s
--by rank,kind
--by op --names raw --filter gpu>1us
--by op --exclude-domain nccl --graphs launch
""".strip().splitlines()
REFUSED = {
    "--by step": "--by step needs the whole report at once",
    "--by op,step": "rows by step need the whole report at once",
    "--by op,module": "rows by module need the whole report at once",
    "--by op --columns launch_gap": "launch_gap_ns needs the whole report at once",
    "--by op --columns flop": "flop needs the whole report at once",
    "--by op --from 1us": "--from needs the rows",
}


@pytest.fixture(scope="module")
def five_steps(tmp_path_factory):
    """Write the report once; what is no window of it is read once."""
    with reading_once():
        yield report(tmp_path_factory.mktemp("input") / "made.sqlite", steps=5)


@pytest.fixture
def path(five_steps, tmp_path, monkeypatch):
    """A report of which every table takes three windows of the least memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(part, "BASE", 0)
    monkeypatch.setattr(part, "MANY", 0)
    monkeypatch.setattr(part, "LEAST", 1)
    monkeypatch.setattr(aggregation, "peak_memory", lambda: 0)  # the tests' own process is larger
    monkeypatch.setattr(part, "PER_CALL", 0)
    monkeypatch.setattr(part, "PER_NAME", dict.fromkeys(part.PER_NAME, (0, 0)))
    monkeypatch.setattr(part, "PER_NAME_OF_MANY", dict.fromkeys(part.PER_NAME, (0, 0)))
    monkeypatch.setattr(part, "memory_needed", lambda _path, _tables, **_: 2_500)
    return five_steps


@pytest.fixture
def read(monkeypatch):
    """How many windows were read."""
    found = []
    window = windows.Windows.window
    monkeypatch.setattr(
        windows.Windows, "window", lambda self, n: found.append(n) or window(self, n)
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("words", ASKED)
def test_a_report_in_windows_prints_the_same(words, path, read):
    command = ["report", path, *words.split(), "--format", "json"]
    expected = done(*command)
    assert not read
    assert done(*command, "--memory-limit", "1KB") == expected
    assert read == [0, 1, 2]


@pytest.mark.slow
def test_two_reports_in_windows_print_the_same(path, read, tmp_path):
    command = ["report", path, report(tmp_path / "other.sqlite", pids=(7,)), "--by", "report,op"]
    expected = parts(done(*command))
    assert "GPU 1 GPU 1 in other.sqlite: busy 7.5 % of the run" in expected[0]  # 306 of 4100 ns
    assert parts(done(*command, "--memory-limit", "1KB")) == expected
    assert read == [0, 1, 2] * 2
    assert parts(done(*command, "--memory-limit", "1KB", "--workers", "1")) == expected


def parts(text: str) -> tuple[str, str]:
    """Return the lines on the GPUs, and what stands below: windows do not know why a GPU is idle."""
    above, _, below = text.partition("\n\n")
    said = " ".join(above.split()).partition(" →")[0]
    return said.partition(" Largest cause")[0], below


@pytest.mark.slow
def test_what_fits_is_read_as_ever(path, read):
    command = ["report", path, "--by", "step"]
    assert done(*command, "--memory-limit", "3KB") == done(*command)
    assert not read


@pytest.mark.parametrize("words", REFUSED)
def test_what_takes_a_look_at_all_of_it_is_refused(words, path):
    result = bridge("report", path, *words.split(), "--memory-limit", "1KB")
    assert_misused(
        result, "larger than --memory-limit", REFUSED[words], "without --memory-limit it works"
    )


def test_a_column_that_there_is_not_is_said(path):
    assert_misused(
        bridge("report", path, "--columns", "x", "--memory-limit", "1KB"), "no column 'x'"
    )


@pytest.mark.slow
def test_a_guess_is_refused(path):
    result = bridge("report", path, "--adopt", "--memory-limit", "1KB")
    assert_refused(result, "made.sqlite", "--adopt needs the whole report at once")


@pytest.mark.slow
def test_a_recording_of_its_process_is_refused(path):
    with profile(path="bridge-100.jsonl"), nvtx_op("a"):
        pass
    head, _, lines = Path("bridge-100.jsonl").read_text(encoding="utf-8").partition("\n")
    head = json.dumps(json.loads(head) | {"pid": 100}, separators=(",", ":"))
    Path("bridge-100.jsonl").write_text(f"{head}\n{lines}", encoding="utf-8")
    result = bridge("report", path, "--memory-limit", "1KB", "--sidecar", "bridge-100.jsonl")
    assert_refused(result, "made.sqlite: larger than --memory-limit, and recordings lie beside it")
    done("report", path, "--sidecar", "bridge-100.jsonl")


def test_too_little_is_refused_with_the_least_that_works(path, monkeypatch):
    monkeypatch.setattr(part, "BASE", 170_000_000)
    monkeypatch.setattr(part, "LEAST", 40_000_000)
    result = bridge("report", path, "--memory-limit", "100MB")
    assert_refused(result, "made.sqlite", "--memory-limit 100MB is too little: 210MB is the least")


def test_a_file_that_is_no_export_is_refused(path, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}', encoding="utf-8")
    assert path.exists()
    assert_refused(
        bridge("report", trace, "--memory-limit", "1KB"),
        "only SQLite exports of Nsight Systems can be read in windows",
    )


@pytest.mark.slow
def test_an_import_in_windows_keeps_aggregates(path, read):
    expected = done("import", path, "--db", "one.db", "--workers", "1")
    result = bridge("import", path, "--db", "two.db", "--memory-limit", "1KB")
    assert result.exit_code == 0, result.stderr
    assert table_in(result.stdout) == table_in(expected.replace("--db one.db", "--db two.db"))
    without = "without the tables by module,report op,step report,step"
    assert f"larger than --memory-limit: {without}" in result.stderr
    assert read == [0, 1, 2]
    for by in ("op", "op-kernel", "kernel,op", "shape", "rank,kind"):
        asked = ["report", "--by", by, "--format", "json", "--db"]
        assert done(*asked, "two.db") == done(*asked, "one.db")
    result = bridge("report", "--by", "op,step", "--db", "two.db")
    assert_misused(result, "no table 'op,step' is kept")


def test_an_import_keeps_no_table_that_windows_do_not_tell(path):
    result = bridge("import", path, "--memory-limit", "1KB", "--keep", "op,step")
    assert_misused(result, "op,step: larger than --memory-limit, and rows by step")
