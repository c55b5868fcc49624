"""Which call of NCCL a kernel belongs to and what that makes of the table, beside a walk through the calls in plain loops."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from contextlib import closing

import pytest
from command import done
from hypothesis import given
from hypothesis import strategies as st
from real_parts import corpus_reports

import bridge
from bridge.analyze.run.concurrency.collectives import by_collective
from bridge.analyze.run.concurrency.communication import CommunicationCalls
from concurrency.nccl_made import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECV, Nccl, blob

COMM, OTHER = 0xFEDC_BA98_7654_3210, 5
KERNELS = {
    "ncclAllReduce": ALL_REDUCE,
    "ncclAllGather": ALL_GATHER,
    "ncclSend": SEND_RECV,
    "ncclRecv": SEND_RECV,
}
KIND = {
    "ncclAllReduce": "AllReduce",
    "ncclAllGather": "AllGather",
    "ncclSend": "SendRecv",
    "ncclRecv": "SendRecv",
}
KIND_OF_KERNEL = {ALL_REDUCE: "AllReduce", ALL_GATHER: "AllGather", SEND_RECV: "SendRecv"}


def message(function: str, size: int, comm: int = COMM) -> bytes:
    more = {"ncclAllReduce": (0,), "ncclSend": (1,), "ncclRecv": (1,)}.get(function, ())
    return blob(function, comm, size, *more)


steps = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(sorted(KERNELS)), st.sampled_from((8, 16, 24))),
    st.tuples(st.just("start"), st.none(), st.none()),
    st.tuples(st.just("end"), st.lists(st.sampled_from(sorted(KIND_OF_KERNEL)), max_size=3), st.none()),
)  # fmt: skip


def sizes(units: list[tuple[list[tuple[str, int]], list[str]]]) -> list[int]:
    """Give the bytes of each kernel; a unit has its messages (function, bytes) and its kernels."""
    result = []
    for messages, kernels in units:
        for kernel in kernels:
            own = [(f, size) for f, size in messages if KIND[f] == KIND_OF_KERNEL[kernel]]
            if any(f == "ncclSend" for f, _ in own):
                counted = [size for f, size in own if f != "ncclRecv"]
            else:
                counted = [size for _, size in own]
            of_kind = [k for k in kernels if k == kernel]
            if not own:
                result.append(-1)
            elif len(of_kind) == 1:
                result.append(sum(counted))
            elif len(of_kind) == len(counted) and len({size for _, size in own}) == 1:
                result.append(counted[0])
            else:
                result.append(-1)
    return result


@pytest.mark.slow
@given(st.lists(steps, min_size=1, max_size=14), st.booleans())
def test_a_kernel_has_the_messages_of_its_call_or_of_its_group(tmp_path_factory, drawn, within):
    made, units, depth, group = Nccl(), [], 0, []
    if within:  # the recording begins within a group
        made.function("ncclSend", message("ncclSend", 8))
        made.function("ncclGroupEnd", None, SEND_RECV)
        units.append(([], [SEND_RECV]))
    for what, value, size in drawn:
        if what == "call":
            launched = [] if depth else [KERNELS[value]]
            made.function(value, message(value, size), *launched)
            if depth:
                group.append((value, size))
            else:
                units.append(([(value, size)], launched))
        elif what == "start":
            made.function("ncclGroupStart")
            depth += 1
        elif depth:
            depth -= 1
            made.function("ncclGroupEnd", None, *([] if depth else value))
            if not depth:
                units.append((group, value))
                group = []
    made.function("ncclAllReduce", message("ncclAllReduce", 8))  # so that a payload is there
    report = bridge.load(made.report(tmp_path_factory.mktemp("nccl") / "r.sqlite"))
    calls = CommunicationCalls.of(report.attributed)
    assert calls.messages.bytes.tolist() == sizes(units)


def table(made: Nccl, folder, **options) -> list[dict]:
    return (
        bridge.load(made.report(folder / "r.sqlite")).by("collective", **options).to_dict("records")
    )


def test_bandwidths_are_those_of_nccl_tests(tmp_path):
    made, n, size = Nccl(), 8, 1 << 20
    made.gpu("NVIDIA H100 80GB HBM3")
    made.function("ncclCommInitRank", blob("ncclCommInitRank", COMM, n, 3, 0))
    cases = {  # function: kernel, bytes as nccl-tests count, factor
        "ncclAllReduce": (ALL_REDUCE, size, 2 * (n - 1) / n),
        "ncclAllGather": (ALL_GATHER, size * n, (n - 1) / n),
        "ncclReduceScatter": (REDUCE_SCATTER, size * n, (n - 1) / n),
        "ncclBroadcast": ("ncclDevKernel_Broadcast_RING_LL", size, 1),
        "ncclReduce": ("ncclDevKernel_Reduce_Sum_f32_RING_LL", size, 1),
        "ncclSend": (SEND_RECV, size, 1),
    }
    for function, (kernel, _, _) in cases.items():
        more = {
            "ncclReduceScatter": (0,),
            "ncclAllReduce": (0,),
            "ncclBroadcast": (2,),
            "ncclReduce": (2, 0),
            "ncclSend": (1,),
        }
        made.function(
            function, blob(function, COMM, size, *more.get(function, ())), kernel, time=50_000
        )
    rows = {row["collective"]: row for row in table(made, tmp_path)}
    for function, (_, counted, factor) in cases.items():
        row = rows["SendRecv" if function == "ncclSend" else function.removeprefix("nccl")]
        assert (row["message_bytes"], row["comm_ranks"], row["bytes"]) == (size, n, counted)
        assert row["gb_per_s"] == counted / 50_000
        assert row["bus_gb_per_s"] == pytest.approx(counted * factor / 50_000)
        assert row["link_gb_per_s"] == 450
        assert row["link_share"] == pytest.approx(counted * factor / 50_000 / 450)


def test_rows_of_different_sizes_and_communicators_are_apart(tmp_path):
    made = Nccl()
    made.function("ncclCommInitRank", blob("ncclCommInitRank", COMM, 8, 0, 0))
    made.function("ncclCommInitRank", blob("ncclCommInitRank", OTHER, 2, 1, 0))
    for size, comm in ((64, COMM), (64, COMM), (128, COMM), (64, OTHER)):
        made.function("ncclAllReduce", message("ncclAllReduce", size, comm), ALL_REDUCE)
    rows = table(made, tmp_path)
    assert sorted((r["message_bytes"], r["comm_ranks"], r["count"]) for r in rows) == [
        (64, 2, 1),
        (64, 8, 2),
        (128, 8, 1),
    ]
    assert {row["link_gb_per_s"] for row in rows} == {-1}  # no GPU is named
    whole = by_collective(bridge.load(tmp_path / "r.sqlite").attributed, by_message=False)
    assert whole["count"].tolist() == [4]
    assert "message_bytes" not in whole


def test_without_the_number_of_ranks_what_depends_on_it_is_unknown(tmp_path):
    made = Nccl()
    made.function("ncclAllReduce", message("ncclAllReduce", 64), ALL_REDUCE)
    made.function("ncclAllGather", message("ncclAllGather", 64), ALL_GATHER)
    rows = {row["collective"]: row for row in table(made, tmp_path)}
    assert [rows["AllReduce"][c] for c in ("bytes", "bus_gb_per_s", "comm_ranks")] == [64, -1, -1]
    assert [rows["AllGather"][c] for c in ("message_bytes", "bytes", "gb_per_s")] == [64, -1, -1]


def test_communicators_that_disagree_and_huge_messages_are_unknown(tmp_path):
    made = Nccl()
    for ranks in (8, 4):
        made.function("ncclCommInitRank", blob("ncclCommInitRank", COMM, ranks, 0, 0))
    made.function("ncclAllReduce", message("ncclAllReduce", 64), ALL_REDUCE)
    made.function("ncclAllReduce", message("ncclAllReduce", 2**63 + 5), ALL_REDUCE)
    made.function("ncclAllReduce", message("ncclAllReduce", 2**60), ALL_REDUCE)
    rows = sorted(
        (row["message_bytes"], row["comm_ranks"], row["count"]) for row in table(made, tmp_path)
    )
    assert rows == [(-1, -1, 2), (64, -1, 1)]


def test_the_calls_of_other_threads_and_processes_do_not_count(tmp_path):
    made = Nccl()
    made.function("ncclGroupStart", by=2)
    made.function("ncclSend", message("ncclSend", 100), by=2)
    made.function("ncclGroupStart", pid=2)
    made.function("ncclSend", message("ncclSend", 1_000), pid=2)
    made.function("ncclGroupEnd", None, SEND_RECV, by=2)
    made.function("ncclGroupEnd", None, SEND_RECV, pid=2)
    made.function("ncclGroupEnd", None, SEND_RECV)
    assert sorted(row["message_bytes"] for row in table(made, tmp_path)) == [-1, 100, 1_000]


@pytest.mark.slow
def test_why_and_the_trace_tell_of_the_message(tmp_path):
    made = Nccl()
    made.function("ncclCommInitRank", blob("ncclCommInitRank", COMM, 8, 3, 0))
    made.function("ncclReduce", blob("ncclReduce", COMM, 4 << 20, 2, 1), ALL_REDUCE)
    path = made.report(tmp_path / "r.sqlite")
    text = done("why", path, "#0")
    assert (
        "NCCL says: 4.0 MiB, product, root 2, rank 3 of 8 ranks, communicator 0xfedcba9876543210"
        in text
    )
    said = json.loads(done("why", path, "#0", "--format", "json"))["nccl"]
    assert said == {"bytes": 4 << 20, "messages": 1, "communicator": "0xfedcba9876543210", "ranks": 8, "rank": 3,
                    "peer": -1, "root": 2, "reduction": "product"}  # fmt: skip
    done("trace", path, "-o", tmp_path / "t.json")
    [args] = [
        e["args"]
        for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if e.get("cat") == "kernel"
    ]
    told = {name: value for name, value in args.items() if name.startswith("NCCL")}
    assert told == {"NCCL message (bytes)": 4 << 20, "NCCL messages": 1, "NCCL ranks": 8, "NCCL rank": 3, "NCCL root": 2,
                    "NCCL communicator": "0xfedcba9876543210", "NCCL reduction": "product"}  # fmt: skip


def test_a_report_without_payloads_says_nothing_of_messages(tmp_path):
    made = Nccl()
    made.function("ncclAllReduce", None, ALL_REDUCE)
    path = made.report(tmp_path / "r.sqlite")
    [row] = bridge.load(path).by("collective").to_dict("records")
    assert (row["message_bytes"], row["comm_ranks"], row["bytes"]) == (-1, -1, -1)
    assert "NCCL says" not in done("why", path, "#0")


@pytest.mark.slow
def test_a_run_of_the_store_says_the_same(folder):
    made = Nccl()
    made.function("ncclCommInitRank", blob("ncclCommInitRank", COMM, 8, 0, 0))
    made.function("ncclAllReduce", message("ncclAllReduce", 64), ALL_REDUCE)
    made.report(folder / "r.sqlite")
    done("import", "r.sqlite")
    words = ("report", "--by", "collective", "--format", "csv")
    assert done(*words) == done(*words[:1], "r.sqlite", *words[1:])
    assert ",64,8," in done(*words)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", corpus_reports(names=["pytorch-2gpu-before", "pytorch-2gpu-after"])
)
def test_groups_of_a_real_program(path, tmp_path):
    """The payloads of a real program with its own schemas: each all-to-all of PyTorch sends to both ranks in one group."""
    copy = tmp_path / "r.sqlite"
    shutil.copy(path, copy)
    copy.chmod(0o644)
    assert (
        bridge.load(path).by("collective")["message_bytes"] == -1
    ).all()  # it was exported without blobs
    with closing(sqlite3.connect(copy)) as db, db:
        rows = db.execute(
            "SELECT e.rowid, s.value FROM NVTX_EVENTS e JOIN StringIds s ON s.id = e.textId WHERE s.value IN ('ncclSend', 'ncclRecv')"
        ).fetchall()
        number = {"ncclSend": 16777225, "ncclRecv": 16777226}
        for row, name in rows:
            body = struct.pack("<QQi4x", COMM, 1_000_000, 1)
            data = struct.pack("<QQQQ", 1, number[name], 24, 32) + body
            db.execute("UPDATE NVTX_EVENTS SET binaryData = ? WHERE rowid = ?", (data, row))
    report = bridge.load(copy)
    known = report.by("collective").query("message_bytes >= 0")
    assert known["message_bytes"].unique().tolist() == [2_000_000]  # to itself, too
    assert known["collective"].unique().tolist() == ["AllToAll"]
    assert (
        known["count"].sum()
        == report.by("collective").query("op == 'nccl:all_to_all'")["count"].sum()
    )
    assert (known["bytes"] == 2_000_000 * known["count"]).all()
