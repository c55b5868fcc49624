"""One trace of several ranks: on one clock, of those that are asked for, named by who they are."""

import gzip
import json

import pytest
from command import assert_misused, done
from command import bridge as command
from read_once import reading_once

import bridge
from bridge.analyze.draw.timeline import timeline
from ranks.run import BEGIN_NS, GEMM_NS, Rank, run

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000
ZEROS = (0, 3 * SECOND, -2 * SECOND, 7)


def four(folder, **more):
    ranks = [
        Rank(n, zero, pid=100 + n, environment=[f"RANK={n}"], host=f"h{n % 2}", **more)
        for n, zero in enumerate(ZEROS)
    ]
    return run(folder, ranks)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Give reports of four ranks with the right time, each of which is read once, and what is true of them."""
    with reading_once():
        yield four(tmp_path_factory.mktemp("ranks"))


def events(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def drawn(folder, paths, *words):
    done("trace", *paths, "-o", "t.json.gz", "--force", *words)
    found = events(folder / "t.json.gz")
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    return found, names


def gemms(found):
    return sorted(e["ts"] for e in found if e.get("name") == "gemm_kernel")


@pytest.mark.parametrize("wrong", [0, 250_000])
def test_ranks_are_drawn_on_one_clock(folder, wrong):
    paths, truth = four(folder, wrong=wrong)
    found, names = drawn(folder, paths)
    assert all(e["ts"] >= 0 for e in found if "ts" in e)
    at = gemms(found)
    assert len(at) == 4 * len(truth.arrived)
    for step, came in enumerate(truth.arrived):  # in each step all ranks begin at one time
        assert len(set(at[4 * step : 4 * step + 4])) == 1, came
    assert {name for name in names.values() if name.startswith("python")} == {
        f"python rank {n} on h{n % 2} in report-{n}.sqlite" for n in range(4)
    }


def test_some_ranks_are_drawn(folder, right):
    paths, truth = right
    everything, _ = drawn(folder, paths)
    found, names = drawn(folder, paths, "--ranks", "1,3-3")
    shown = [name for name in names.values() if name.startswith("python")]
    assert sorted(shown) == [f"python rank {n} on h1 in report-{n}.sqlite" for n in (1, 3)]
    assert len(gemms(found)) == 2 * len(truth.arrived)
    arrows = [sum("bind_id" in e for e in of) for of in (found, everything)]
    assert 2 * arrows[0] == arrows[1] > 0
    both = [drawn(folder, paths, "--ranks", ranks)[0] for ranks in ("0-1", "2,3")]
    slices = [sum(e.get("ph") == "X" for e in of) for of in (*both, everything)]
    assert slices[0] + slices[1] == slices[2]


def test_windows_are_of_the_common_clock(folder, right):
    paths, truth = right
    base = BEGIN_NS - 50  # the first event: a step's range begins before its kernel
    first, last = truth.arrived[5][0] - GEMM_NS - base, truth.arrived[7][0] - base
    found, _ = drawn(folder, paths, "--from", f"{first}ns", "--to", f"{last}ns")
    assert len(gemms(found)) == 4 * 3
    found, _ = drawn(folder, paths, "--from", f"{first}ns", "--to", f"{last}ns", "--ranks", "2")
    assert len(gemms(found)) == 3
    found, _ = drawn(folder, paths, "--step", "4..5")
    assert len(gemms(found)) == 4 * 2
    for counter in ("GPU concurrency", "GPU busy (%)"):
        samples = [e["ts"] for e in found if e.get("ph") == "C" and e["name"].startswith(counter)]
        assert samples


def test_a_window_beyond_the_end_is_said(folder, right):
    paths, truth = right
    lasts = (truth.arrived[-1][0] - BEGIN_NS) / 1e6
    result = command("trace", *paths, "-o", "t.json", "--from", "30s")
    assert_misused(result, "no events in that window", f"lasts {int(lasts)}.")


def test_a_pftrace_is_on_the_same_clock(folder, right, trace_processor):
    paths, truth = right
    done("trace", *paths, "-o", "t.pftrace", "--ranks", "0-2")
    opened = trace_processor(folder / "t.pftrace")
    rows = opened.query("select ts from slice where name = 'gemm_kernel' order by ts")
    at = [row.ts if hasattr(row, "ts") else row["ts"] for row in rows]
    assert len(at) == 3 * len(truth.arrived)
    assert all(len(set(at[n : n + 3])) == 1 for n in range(0, len(at), 3))


@pytest.mark.parametrize(
    ("ranks", "why"),
    [("7", "no rank 7 in the run; its ranks: 0, 1, 2, 3"), ("3-1", "as 0,3-5"), ("x", "as 0,3-5"), ("1-", "as 0,3-5"), ("", "as 0,3-5")],
)  # fmt: skip
def test_ranks_that_are_not_there(folder, right, ranks, why):
    paths, _ = right
    assert_misused(command("trace", *paths, "-o", "t.json", "--ranks", ranks), why)
    assert not (folder / "t.json").exists()


def test_other_dialects_draw_some_ranks_too(folder, right):
    paths, truth = right
    for dialect in ("torch", "raf", "mxnet", "megengine"):
        done("trace", *paths, "-o", "t.json", "--force", "--dialect", dialect, "--ranks", "2")
        begun = [
            e
            for e in events(folder / "t.json")
            if "gemm_kernel" in e.get("name", "") and e["ph"] in "XB"
        ]
        assert len(begun) == len(truth.arrived), dialect
    (folder / "logs").mkdir()
    done("trace", *paths, "-o", "logs", "--dialect", "torch", "--ranks", "1,2")
    assert len(list((folder / "logs").iterdir())) == 2


def test_one_report_stays_on_its_own_clock(folder, right):
    paths, _ = right
    for path in paths:
        joined = bridge.load(path)
        whole = timeline(joined.attributed)
        assert whole.base == joined.capture.began
        starts = [s.start for s in whole.slices if s.role == "kernel"]
        assert any((start == joined.capture.activities.start).all() for start in starts)
