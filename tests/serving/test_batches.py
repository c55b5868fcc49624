"""Requests and tokens of a server: batches that ranges mark, against plain loops over what was scheduled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from captures import exported, profiled
from command import done
from kineto import made as kineto
from made_reports import Made, thread

from bridge.annotate.batches import _text, batch
from bridge.annotate.emit import state
from bridge.join.grammar import parse, written
from bridge.join.steps import without_number

PID = 100
LENGTH = 1_000  # ns from batch to batch
Schedule = list[tuple[str, dict[str, int], list[int]]]  # phase, tokens by request, times of kernels


def schedule(seed: int, *, phases: bool = True) -> Schedule:
    """Draw a server with continuous batching: requests come, are prefilled in one or two parts, and decode."""
    rng = random.Random(seed)
    result: Schedule = []
    waiting = {
        f"r{n}/ü {n % 3}": [rng.randint(2, 50) for _ in range(rng.randint(1, 2))] for n in range(6)
    }
    decoding: dict[str, int] = {}
    while waiting or decoding:
        if waiting and (not decoding or rng.random() < 0.4):
            name = next(iter(waiting))
            tokens = {name: waiting[name].pop(0)}
            phase = "prefill"
            if not waiting[name]:
                del waiting[name]
                decoding[name] = rng.randint(1, 5)
        else:
            phase, tokens = "decode", dict.fromkeys(decoding, 1)
            decoding = {name: left - 1 for name, left in decoding.items() if left > 1}
        kernels = [rng.randint(1, 60) for _ in range(rng.randint(0, 4))]
        result.append((phase if phases else "", tokens, kernels))
    return result


def served(path: Path, batches: Schedule, *, outside: int = 7) -> Path:
    """Write the report of a schedule: kernels run one after another behind the begin of their batch."""
    made = Made()
    for number, (phase, tokens, kernels) in enumerate(batches):
        t = LENGTH * (number + 1)
        made.annotation(59, t, t + 300, text=_text(tokens, phase), thread=thread(PID))
        at = t + 100
        for n, length in enumerate(kernels):
            made.kernel("gemm", t + 10 + 5 * n, PID, at, at + length)
            at += length
    if outside:
        made.kernel("of no batch", 100, PID, 200, 200 + outside)
    return made.written(path)


def table(path: Path, by: str, *words: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(
        done("report", path, "--by", by, "--format", "json", *words)
    )["rows"]
    return rows


def ends(batches: Schedule) -> list[int]:
    """Give when each batch is done: its last kernel, else the range."""
    return [
        LENGTH * (n + 1) + (100 + sum(kernels) if kernels else 300)
        for n, (_, _, kernels) in enumerate(batches)
    ]


@pytest.mark.parametrize("phases", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_requests_against_plain_loops(tmp_path, seed, phases):
    batches = schedule(seed, phases=phases)
    check_requests(table(served(tmp_path / "r.sqlite", batches), "request"), batches, outside=7)


def check_requests(found: list[dict[str, object]], batches: Schedule, outside: int) -> None:
    """Hold the rows of requests beside plain loops over the schedule."""
    rows = {row["request"]: row for row in found}
    done_at, gpu, remainder = ends(batches), defaultdict(int), 0
    seen: dict[str, list[int]] = defaultdict(list)
    for number, (_, tokens, kernels) in enumerate(batches):
        left = sum(kernels)
        for name, count in tokens.items():
            part = sum(kernels) * count // sum(tokens.values())
            gpu[name] += part
            left -= part
            seen[name].append(number)
        remainder += left
    assert {name: row["gpu_ns"] for name, row in rows.items()} == {
        **gpu,
        **({"(remainder)": remainder} if remainder else {}),
        "(no batch)": outside,
    }
    for name, numbers in seen.items():
        prompts = [n for n in numbers if batches[n][1][name] > 1]
        last = max(prompts)
        first = done_at[last] - LENGTH * (numbers[0] + 1)
        gaps = [done_at[b] - done_at[a] for a, b in pairwise(numbers) if b > last]
        row = rows[name]
        assert row["batches"] == len(numbers)
        assert row["prefill_tokens"] == sum(batches[n][1][name] for n in prompts)
        assert row["decode_tokens"] == len(numbers) - len(prompts)
        assert row["first_token_ns"] == max(done_at[n] for n in prompts) - LENGTH * (numbers[0] + 1)
        assert row["first_token_ns"] >= first
        assert row["token_p50_ns"] == (median(gaps) if gaps else -1)
        assert row["token_max_ns"] == (max(gaps) if gaps else -1)


@pytest.mark.parametrize("seed", range(3))
def test_tokens_and_phases_add_up_to_the_time_of_the_gpu(tmp_path, seed):
    batches = schedule(seed)
    path = served(tmp_path / "r.sqlite", batches)
    rows = {row["phase"]: row for row in table(path, "token")}
    whole = sum(sum(kernels) for _, _, kernels in batches) + 7
    assert sum(row["gpu_ns"] for row in rows.values()) == whole
    for phase in ("prefill", "decode"):
        of_phase = [(sum(t.values()), sum(k)) for p, t, k in batches if p == phase]
        assert rows[phase]["tokens"] == sum(tokens for tokens, _ in of_phase)
        assert rows[phase]["gpu_ns"] == sum(time for _, time in of_phase)
    by = {(row["phase"], row["op"]): row["gpu_self_ns"] for row in table(path, "phase,op")}
    for phase in ("prefill", "decode"):
        assert by[phase, "batch"] == rows[phase]["gpu_ns"]


def test_a_report_without_batches_says_how_to_mark_them(tmp_path):
    made = Made()
    made.step(0, PID)
    path = made.written(tmp_path / "r.sqlite")
    for by in ("request", "token"):
        assert table(path, by) == []
    assert "bridge.batch(requests=" in done("report", path, "--by", "request")


def test_a_mixed_batch_is_divided_by_the_tokens_that_its_server_tells(tmp_path):
    made = Made()
    made.annotation(
        59, 1_000, 1_300, text="execute_context_2(900)_generation_100(100)", thread=thread(PID)
    )
    made.kernel("gemm", 1_010, PID, 1_100, 1_601)
    made.annotation(59, 2_000, 2_300, text="execute_new_1_cached_3", thread=thread(PID))
    made.kernel("gemm", 2_010, PID, 2_100, 2_110)
    rows = {row["phase"]: row for row in table(made.written(tmp_path / "r.sqlite"), "token")}
    assert {name: row["gpu_ns"] for name, row in rows.items()} == {
        "prefill": 450,
        "decode": 50,
        "(remainder)": 1,
        "(batches without tokens)": 10,  # of the prefill nothing is known: nothing can be divided
    }


def test_replays_of_graphs_are_of_the_batch_that_launches_them(tmp_path):
    made = Made()
    made.annotation(59, 100, 200, text="capture", thread=thread(PID))
    made.tables["graph_nodes"].append({"time": 150, "thread": thread(PID), "node": 5})
    for n in range(3):
        t = 1_000 * (n + 1)
        made.annotation(59, t, t + 300, text=_text({"a": 1}, "decode"), thread=thread(PID))
        made.launched("kernels", t + 10, PID, t + 100, t + 150, name=made.string("k"), graph_node=5)
    path = made.written(tmp_path / "r.sqlite")
    assert {row["request"]: row["gpu_ns"] for row in table(path, "request")} == {"a": 150}
    assert [(r["phase"], r["total_ns"]) for r in table(path, "phase,kind")] == [("decode", 150)]
    by = table(path, "phase,op", "--graphs", "launch")
    assert [(r["phase"], r["op"]) for r in by if r["gpu_self_ns"]] == [("decode", "batch")]


def test_a_part_of_the_time_counts_its_own_batches(tmp_path):
    batches: Schedule = [("prefill", {"a": 8}, [80])] + [("decode", {"a": 1}, [20])] * 3
    path = served(tmp_path / "r.sqlite", batches, outside=0)
    (row,) = table(path, "request", "--from", "1.5us", "--to", "3.5us")
    assert (row["batches"], row["prefill_tokens"], row["decode_tokens"], row["gpu_ns"]) == (
        2,
        0,
        2,
        40,
    )
    assert (row["first_token_ns"], row["token_max_ns"]) == (-1, LENGTH)
    (row,) = table(path, "token", "--from", "1.5us", "--to", "3.5us")
    assert (row["phase"], row["tokens"], row["token_mean_ns"]) == ("decode", 2, 20)


def test_ranks_have_requests_of_their_own(tmp_path):
    made = Made()
    for pid in (PID, PID + 1):
        for n, tokens in enumerate((8, 1, 1)):
            t = 1_000 * (n + 1)
            made.annotation(59, t, t + 300, text=_text({"a": tokens}, ""), thread=thread(pid))
            made.kernel("gemm", t + 10, pid, t + 100, t + 150)
    rows = table(made.written(tmp_path / "r.sqlite"), "request")
    assert [(r["request"], r["pid"], r["decode_tokens"], r["token_p50_ns"]) for r in rows] == [
        ("a", PID, 2, 1_000),
        ("a", PID + 1, 2, 1_000),
    ]


def test_ranges_of_the_server_within_a_batch_are_parts_of_it(tmp_path):
    made = Made()
    made.annotation(59, 1_000, 1_900, text=_text({"a": 1, "b": 3}, "decode"), thread=thread(PID))
    made.annotation(
        59, 1_100, 1_800, text="execute_context_0(0)_generation_2(4)", thread=thread(PID)
    )
    made.kernel("gemm", 1_200, PID, 2_000, 2_100)
    path = made.written(tmp_path / "r.sqlite")
    assert {row["request"]: row["gpu_ns"] for row in table(path, "request")} == {"a": 25, "b": 75}
    assert [(r["phase"], r["batches"], r["tokens"], r["gpu_ns"]) for r in table(path, "token")] == [
        ("decode", 1, 4, 100)
    ]


def test_numbers_that_no_server_writes(tmp_path):
    made = Made()
    texts = ["a:99999999999999999999", f"a:{'9' * 5000}", "a:1 a:2 b%ZZ:3 :4 x"]
    for n, text in enumerate(texts):
        t = 1_000 * (n + 1)
        made.annotation(59, t, t + 300, text=f"batch#requests={text}#", thread=thread(PID))
        made.kernel("gemm", t + 10, PID, t + 100, t + 200)
    path = made.written(tmp_path / "r.sqlite")
    rows = {row["request"]: row["gpu_ns"] for row in table(path, "request")}
    assert rows == {"a": 30, "b%ZZ": 30, "": 40, "(batches without requests)": 200}
    assert done("report", path, "--by", "phase,op")


class Odd:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "requests", [{Odd(): 1}, {"a": "x"}, {"\udc80": 1}, None, {"a": 2.0, True: True}]
)
def test_odd_requests_never_stop_a_program(requests, monkeypatch):
    monkeypatch.setattr(state, "idle", False)
    with batch(requests, "decode"):
        pass


# -- Texts as servers write them: vLLM and SGLang (nvtx_pytorch_hooks), vLLM (gpu_worker), TensorRT-LLM (PyExecutor)

TEXTS = {
    "{'Module': 'model.layers.0.mlp', 'TrainableParams': {'weight': [8, 4]}, 'Inputs': [[2, 4]]}": (
        "module:model.layers.0.mlp",
        "module",
    ),
    "{'Module': 'model.layers.0.mlp', 'Outputs': [[2, 4]]}": (
        "module:model.layers.0.mlp (output)",
        "range",
    ),
    "transformer.blocks.0.attn in=[(1, 4096, 64)]": ("module:transformer.blocks.0.attn", "module"),
    "denoising_step_3_t999": ("denoising_step", "step"),
    "execute_context_2(1024)_generation_5(5)": ("execute", "batch"),
    "execute_new_2_cached_5": ("execute", "batch"),
    "[Executor] _forward_step 12: 1 ctx reqs, 3 gen reqs": ("[Executor] _forward_step", "batch"),
    "[Executor] _forward_step 12: 1 ctx reqs, 77 ctx tokens, 3 gen reqs": (
        "[Executor] _forward_step",
        "batch",
    ),
    "[Executor] _forward_step: 1 ctx reqs, 3 gen reqs": ("[Executor] _forward_step", "batch"),
    "batch#phase=decode,requests=a:1 b:7#": ("batch", "batch"),
    "ProcessRequests resnet_0": ("ProcessRequests resnet_0", "range"),  # Triton
    "execute_context_menu_item": ("execute_context_menu_item", "range"),
    "a sentence in=[it]": ("a sentence in=[it]", "range"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_servers(text):
    label = parse(text)
    assert (label.op, label.kind) == TEXTS[text]
    assert written(label) == text


def test_steps_of_servers_have_their_numbers():
    assert without_number("[Executor] _forward_step 12: 1 ctx reqs, 3 gen reqs") == (
        "[Executor] _forward_step *: 1 ctx reqs, 3 gen reqs"
    )
    assert without_number("denoising_step_3_t999") == "denoising_step_*_t999"


def test_layers_are_modules_with_shapes(tmp_path):
    made = Made()
    texts = ["{'Module': 'model.layers.0', 'Inputs': [[2, 4]]}", "blocks.1 in=[(3, 5)]"]
    for n, text in enumerate(texts):
        t = 1_000 * (n + 1)
        made.annotation(59, t, t + 300, text=text, thread=thread(PID))
        made.kernel("gemm", t + 10, PID, t + 100, t + 100 + 10 * (n + 1))
    rows = table(made.written(tmp_path / "r.sqlite"), "module,shape")
    assert {(r["module"], r["shape"]): r["gpu_self_ns"] for r in rows} == {
        ("model.layers.0", "[[2, 4]]"): 10,
        ("blocks.1", "[[3, 5]]"): 20,
    }


# -- Recorded by a program


SERVER = """
import sys, bridge
batches = [("prefill", {"a": 8}), ("decode", {"a": 1}), ("prefill", {"b": 4}), ("decode", {"a": 1, "b": 1})]
with bridge.profile(path=sys.argv[1]) if len(sys.argv) > 1 else bridge.nvtx_op("serve"):
    for phase, tokens in batches:
        with bridge.batch(requests=tokens, phase=phase):
            sum(range(10_000))
"""


def check_recorded(path: Path) -> None:
    rows = {row["request"]: row for row in table(path, "request")}
    assert [rows[name]["batches"] for name in "ab"] == [3, 2]
    assert [rows[name]["prefill_tokens"] for name in "ab"] == [8, 4]
    assert [rows[name]["decode_tokens"] for name in "ab"] == [2, 1]
    assert all(0 < rows[name]["first_token_ns"] < rows[name]["token_max_ns"] * 100 for name in "ab")


@pytest.mark.slow
def test_a_session_records_batches(tmp_path):
    program, path = tmp_path / "server.py", tmp_path / "session.jsonl"
    program.write_text(SERVER)
    subprocess.run([sys.executable, program, path], check=True, timeout=60)
    check_recorded(path)


@pytest.mark.slow
def test_nsys_records_batches(tmp_path, nsys):
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    profiled(nsys, tmp_path, sys.executable, program)
    check_recorded(exported(nsys, tmp_path / "report.nsys-rep"))


def test_a_trace_of_pytorch_has_batches(tmp_path):
    events = []
    for n, (phase, tokens) in enumerate([("prefill", {"a": 8}), ("decode", {"a": 1, "b": 3})]):
        t = 100 * (n + 1)
        events += [
            kineto.event("user_annotation", _text(tokens, phase), t, 50),
            kineto.call(t + 10, 5, n + 1),
            kineto.kernel("gemm", t + 20, 20, n + 1),
        ]
    path = kineto.write(tmp_path / "t.json", kineto.trace(events))
    rows = {row["request"]: row["gpu_ns"] for row in table(path, "request")}
    assert rows == {"a": 20_000 + 5_000, "b": 15_000}


def test_another_phase_is_refused_and_nothing_is_computed_without_a_profiler():
    with pytest.raises(
        ValueError, match="the phase is one of prefill, decode, mixed, not 'sampling'"
    ):
        batch({"a": 1}, "sampling")
    with batch({"a": 1}, "decode"):
        pass
