"""The rank that a hung program waits for, from dumps of PyTorch's flight recorder."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import bridge
from made_reports import PUSH_POP, thread

from ranks.run import Rank, begun

NAMES = ("all_reduce", "all_gather", "reduce_scatter")
RANKS = 4
GROUP = ("0", "default_pg")


def entry(number: int, name: str, state: str, **more: Any) -> dict[str, Any]:
    frames = [
        {
            "name": name,
            "filename": "/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
            "line": 1,
        },
        {"name": "step", "filename": "/home/me/train.py", "line": 100 + number},
    ]
    return {
        "frames": frames,
        "pg_id": 0,
        "process_group": GROUP,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "state": state,
        "is_p2p": False,
        **more,
    }


def dumped(folder: Path, rank: int, entries: list[dict[str, Any]]) -> Path:
    path = folder / f"nccl_trace_rank_{rank}"
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(RANKS)])}}
    path.write_bytes(pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries}))
    return path


def found(*paths: Path) -> list[dict[str, Any]]:
    result = bridge("hang", *paths, "--format", "json")
    hangs: list[dict[str, Any]] = json.loads(result.stdout)["hangs"]
    assert result.exit_code == bool(hangs)
    return hangs


def ranks(states: list[dict[str, Any]]) -> list[int]:
    return [one["rank"] for one in states]


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_stop_are_named(tmp_path, seed):
    """Simulate: each rank calls the same collectives, and stops somewhere; a collective ends if all called it."""
    rng = random.Random(seed)
    names = [rng.choice(NAMES) for _ in range(12)]
    called = [rng.randint(1, 12) for _ in range(RANKS)]
    kept = rng.randint(1, 5)  # the recorder keeps the newest
    complete = min(called)
    paths = [
        dumped(
            tmp_path,
            rank,
            [
                entry(n + 1, names[n], "completed" if n < complete else "started")
                for n in range(max(0, called[rank] - kept), called[rank])
            ],
        )
        for rank in range(RANKS)
    ]
    hangs = found(*paths)
    if complete == max(called):
        assert hangs == []
        return
    (hang,) = hangs
    assert hang["kind"] == "missing"
    seen = [n for n in range(complete, 12) if any(max(0, c - kept) <= n < c for c in called)]
    first = min(seen)
    assert hang["number"] == first + 1
    assert ranks(hang["culprits"]) == [r for r in range(RANKS) if called[r] <= first]
    assert set(ranks(hang["waiting"])) <= {r for r in range(RANKS) if called[r] > first}
    assert all(
        one["line"] == f"/home/me/train.py:{100 + one['number']}" for one in hang["culprits"]
    )


def test_a_rank_that_calls_something_else_is_named(tmp_path):
    paths = [
        dumped(tmp_path, r, [entry(1, "all_gather" if r == 2 else "all_reduce", "scheduled")])
        for r in range(RANKS)
    ]
    (hang,) = found(*paths)
    assert (hang["kind"], ranks(hang["culprits"])) == ("unlike", [2])
    text = bridge("hang", *paths).stdout
    assert "Rank 2 called something else than all_reduce, number 1 of default_pg." in text
    assert "rank 2 called all_gather [[8]] Float" in text


def test_a_gpu_that_does_not_begin_it_and_a_collective_that_all_began(tmp_path):
    paths = [
        dumped(tmp_path, r, [entry(1, "all_reduce", "scheduled" if r == 1 else "started")])
        for r in range(RANKS)
    ]
    (hang,) = found(*paths)
    assert (hang["kind"], ranks(hang["culprits"])) == ("not started", [1])
    paths = [dumped(tmp_path, r, [entry(1, "all_reduce", "started")]) for r in range(RANKS)]
    (hang,) = found(*paths)
    assert (hang["kind"], ranks(hang["waiting"])) == ("stuck", [0, 1, 2, 3])


def test_a_rank_without_a_dump_is_named(tmp_path):
    path = dumped(tmp_path, 0, [entry(1, "all_reduce", "started")])
    (hang,) = found(path)
    assert hang["without_dump"] == [1, 2, 3]
    text = bridge("hang", path).stdout
    assert "Rank 0 called all_reduce, number 1 of default_pg, and it does not complete" in text
    assert "nothing is known of ranks 1, 2, 3" in text


def in_group(name: str, number: int, state: str, operation: str = "all_reduce") -> dict[str, Any]:
    """Give an entry of a group that is described as others are: those of a device mesh, or of new_group()."""
    more = {"pg_id": int(name), "process_group": (name, "mesh_tp")}
    return entry(number, operation, state, **more)


def dumped_groups(
    folder: Path,
    rank: int,
    groups: dict[str, list[int]],
    entries: list[dict[str, Any]],
    **status: int,
) -> Path:
    path = folder / f"nccl_trace_rank_{rank}"
    config = {n: {"name": n, "desc": "mesh_tp", "ranks": str(ranks)} for n, ranks in groups.items()}
    said = {n: {"last_enqueued_collective": last} for n, last in status.items()}
    dump = {
        "pg_config": config,
        "entries": entries,
        "pg_status": {n[1:]: v for n, v in said.items()},
    }
    path.write_bytes(pickle.dumps(dump))
    return path


def test_groups_that_are_described_alike_are_not_one(tmp_path):
    groups = {"1": [0, 1], "2": [2, 3]}
    calls = {0: ("1", 5), 1: ("1", 5), 2: ("2", 3), 3: ("2", 3)}
    paths = [
        dumped_groups(
            tmp_path, rank, groups, [in_group(g, n + 1, "completed") for n in range(last)]
        )
        for rank, (g, last) in calls.items()
    ]
    assert found(*paths) == []


def test_a_rank_whose_entries_left_the_buffer_is_not_blamed(tmp_path):
    groups = {"1": [0, 1], "2": [0, 1]}
    done, open_one = in_group("1", 5, "completed"), in_group("1", 6, "started")
    busy = [in_group("2", n, "completed") for n in range(90, 100)]
    other = dumped_groups(tmp_path, 1, groups, busy)
    assert found(dumped_groups(tmp_path, 0, groups, [*busy, done]), other) == []
    path = dumped_groups(tmp_path, 0, groups, [*busy, done, open_one])
    (hang,) = found(path, other)
    assert (hang["kind"], hang["without_dump"]) == ("stuck", [1])
    other = dumped_groups(tmp_path, 1, groups, [*busy, in_group("1", 4, "completed")], _1=5)
    (hang,) = found(path, other)
    assert (hang["kind"], ranks(hang["culprits"])) == ("missing", [1])


def test_sizes_that_must_be_alike(tmp_path):
    own = [
        entry(1, "all_reduce", "started", input_sizes=[[16 if r == 3 else 8]]) for r in range(RANKS)
    ]
    (hang,) = found(*(dumped(tmp_path, r, [one]) for r, one in enumerate(own)))
    assert (hang["kind"], ranks(hang["culprits"])) == ("unlike", [3])
    own = [entry(1, "all_to_all", "started", input_sizes=[[r]]) for r in range(RANKS)]
    assert [
        one["kind"] for one in found(*(dumped(tmp_path, r, [e]) for r, e in enumerate(own)))
    ] == ["stuck"]


def test_without_a_majority_nobody_is_right(tmp_path):
    own = [entry(1, "all_reduce" if r < 2 else "broadcast", "started") for r in range(RANKS)]
    paths = [dumped(tmp_path, r, [one]) for r, one in enumerate(own)]
    assert "The ranks disagree on number 1 of default_pg." in bridge("hang", *paths).stdout


def test_a_send_and_its_receive_are_not_called_missing(tmp_path):
    send = entry(0, "send 0->1", "started", is_p2p=True, p2p_seq_id=7)
    receive = entry(0, "recv 1<-0", "started", is_p2p=True, p2p_seq_id=7)
    paths = [dumped(tmp_path, 0, [send]), dumped(tmp_path, 1, [receive])]
    assert {hang["kind"] for hang in found(*paths)} == {"stuck"}


def test_a_receive_without_a_send(tmp_path):
    one = entry(0, "recv 0<-1", "started", is_p2p=True, p2p_seq_id=7)
    (hang,) = found(dumped(tmp_path, 0, [one]))
    assert (hang["kind"], hang["number"], hang["name"]) == ("waiting", 7, "recv 0<-1")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("rank_0", b"\x80\x04}\x94.", "no dump of the flight recorder of PyTorch"),
        ("rank_0", b"cut", "cut off or damaged"),
        ("dump", pickle.dumps({"entries": []}), "End its name with the rank"),
        (
            "rank_0",
            pickle.dumps({"entries": [subprocess.CompletedProcess([], 0)]}),
            "none of its code was run",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    result = bridge("hang", path)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1


def test_two_dumps_of_one_rank_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    paths = [dumped(folder, 0, []) for folder in (tmp_path, tmp_path / "other")]
    assert "two dumps are of rank 0" in bridge("hang", *paths).stderr


# -- Beside a report of the same run


def reported(folder: Path, rank: int) -> Path:
    """Write a report that ends in an open range, 3 µs after a read that a launch and a step came before."""
    made = begun(Rank(rank, pid=100 + rank, environment=[f"RANK={rank}"]))
    made.tables["session"][0]["duration"] = 20_000  # of which the last 3 µs are empty
    made.kernel("gemm", 1_000, 100 + rank, 2_000, 3_000, by=100 + rank)
    own = {"thread": thread(100 + rank, 100 + rank)}
    made.annotation(PUSH_POP, 500, 5_000, text="step 1", **own)
    made.annotation(PUSH_POP, 6_000, None, text="step 2", **own)
    made.annotation(PUSH_POP, 7_000, None, text="load", **own)
    made.annotation(PUSH_POP, 8_000, 8_500, text="before", **own)
    for at in (1_000, 2_000, 3_000):  # more calls than on the main thread
        made.kernel("backward", at, 100 + rank, at + 500, at + 900, by=5)
    made.tables["system_calls"].append(
        {"start": 9_000, "end": 17_000, "name": made.string("read"), **own}
    )
    return made.written(folder / f"rank{rank}.sqlite")


def test_reports_tell_where_the_missing_rank_is(tmp_path):
    dumps = [
        dumped(
            tmp_path, 0, [entry(1, "all_reduce", "completed"), entry(2, "all_reduce", "started")]
        ),
        dumped(tmp_path, 1, [entry(1, "all_reduce", "completed")]),
    ]
    options = [word for rank in range(2) for word in ("--report", reported(tmp_path, rank))]
    result = bridge("hang", *dumps, *options, "--format", "json")
    (hang,) = json.loads(result.stdout)["hangs"]
    (one,) = hang["recorded"]
    assert (one["source"], one["rank"], one["path"]) == ("rank1.sqlite", 1, "step 2/load")
    assert one["call"] == "read"
    assert one["since_ns"] == 3_000
    text = " ".join(bridge("hang", *dumps, *options).stdout.split())
    assert (
        "at the end of rank1.sqlite rank 1 is in step 2/load after read, and nothing is recorded of it for the last 3.000 µs"
        in text
    )


def test_a_report_without_the_rank_says_nothing_of_it(tmp_path):
    dumps = [
        dumped(tmp_path, 0, [entry(1, "all_reduce", "started")]),
        dumped(tmp_path, 1, [entry(0, "all_reduce", "completed")]),
    ]
    result = bridge("hang", *dumps, "--report", reported(tmp_path, 0), "--format", "json")
    assert json.loads(result.stdout)["hangs"][0]["recorded"] == []
    assert "no report says that it is of rank 1" in result.stderr


def test_a_report_of_an_unknown_rank_is_of_none(tmp_path):
    """By its place it would be rank 0, which is the missing one."""
    dumps = [
        dumped(tmp_path, 0, [entry(0, "all_reduce", "completed")]),
        dumped(tmp_path, 1, [entry(1, "all_reduce", "started")]),
    ]
    made = begun(Rank(0, pid=100))
    made.kernel("gemm", 1_000, 100, 2_000, 3_000)
    path = made.written(tmp_path / "some.sqlite")
    result = bridge("hang", *dumps, "--report", path, "--format", "json")
    assert json.loads(result.stdout)["hangs"][0]["recorded"] == []


def test_silence_lasts_to_the_end_of_the_session(tmp_path):
    dumps = [
        dumped(tmp_path, 0, [entry(1, "all_reduce", "started")]),
        dumped(tmp_path, 1, [entry(0, "all_reduce", "completed")]),
    ]
    made = begun(Rank(1, pid=101, environment=["RANK=1"]))
    made.tables["session"][0]["duration"] = 30_000_000
    made.kernel("gemm", 1_000, 101, 2_000, 5_000, by=101)
    path = made.written(tmp_path / "r.sqlite")
    result = bridge("hang", *dumps, "--report", path, "--format", "json")
    [one] = json.loads(result.stdout)["hangs"][0]["recorded"]
    assert one["since_ns"] == 30_000_000 - 1_005  # a launch takes 5 ns


PROGRAM = """
import os, sys, time
rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
x = torch.ones(8)
dist.all_reduce(x)
dist.broadcast(x, 0)
if rank == 0:
    work = dist.all_reduce(x, async_op=True)  # the other rank never comes
time.sleep(0.5)
open(f"{folder}/trace_rank_{rank}", "wb").write(_dump_fr_trace())
open(f"{folder}/done_{rank}", "w").close()
while not all(os.path.exists(f"{folder}/done_{r}") for r in range(2)):
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.racy("PyTorch marks collectives as completed some time after they are")
def test_dumps_that_pytorch_wrote(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    words = [sys.executable, program]
    both = [subprocess.Popen([*words, str(r), tmp_path / "store", tmp_path]) for r in range(2)]
    assert [one.wait(timeout=120) for one in both] == [0, 0]
    (hang,) = found(*(tmp_path / f"trace_rank_{r}" for r in range(2)))
    assert (hang["kind"], hang["number"], hang["name"]) == ("missing", 3, "all_reduce")
    assert ranks(hang["culprits"]) == [1]
    assert hang["culprits"][0]["name"] == "broadcast"
    (waiting,) = hang["waiting"]
    assert (waiting["rank"], waiting["line"]) == (
        0,
        f"{program}:{PROGRAM.split('rank == 0', maxsplit=1)[0].count(chr(10)) + 2}",
    )
    assert waiting["since_ns"] >= 500_000_000
