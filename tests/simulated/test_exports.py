"""Exports of simulated runs: NVIDIA's report scripts read them, and degraded ones tell what is left."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from nvidia.test_totals_match import ns, rows_of

from simulated import Plan, Result, draw, program, simulate, write
from simulated.degraded import DEGRADED, degraded_rows, known_span, known_states, write_degraded
from simulated.device import Kind
from simulated.export import EPOCH, global_pid
from simulated.span import run_span, states, works_of

SEEDS = (3, 9, 12)  # a training, a server, a solver that launches graphs


def count(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module", params=SEEDS)
def result(request: pytest.FixtureRequest) -> Result:
    return simulate(draw(request.param))


# -- NVIDIA's scripts


@pytest.fixture
def theirs(nsys_tool: str, result: Result, tmp_path: Path):
    """Give the rows of one of NVIDIA's reports on an export of the run."""
    path = write(result, tmp_path / "report.sqlite")[0]
    return lambda *names: rows_of(nsys_tool, path, tmp_path, names)


def sums(rows: list[dict[str, str]], name: str, number: str) -> dict[str, tuple[int, int]]:
    """Return count and total time by name."""
    result: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for row in rows:
        result[row[name]] += ns(row, "Total Time")
        calls[row[name]] += int(row[number])
    return {key: (calls[key], result[key]) for key in result}


def counted(pairs: list[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    counts, total = Counter(name for name, _ in pairs), Counter[str]()
    for name, length in pairs:
        total[name] += length
    return {name: (counts[name], total[name]) for name in counts}


@pytest.mark.slow
def test_nvidias_sums_are_those_of_the_simulator(theirs, result):
    machine = result.machine
    recorded = [w for w in machine.works() if w.stream.context.process.recorded]
    calls = [
        (re.sub(r"_v\d{4}$", "", row[2]), row[1] - row[0])  # as they do: of four digits alone
        for row in machine.calls
        if row[3].process.recorded
    ]
    assert sums(theirs("cuda_api_sum", "cudaapisum"), "Name", "Num Calls") == counted(calls)

    kernels = [
        (f"void {w.name}(float *, const float *, int)", w.end - w.start)
        for w in recorded
        if w.kind in {Kind.COMPUTE, Kind.COMMUNICATION}
    ]
    found = sums(theirs("cuda_gpu_kern_sum", "gpukernsum"), "Name", "Instances")
    assert found == counted(kernels)

    ranges = [(row[2], row[1] - row[0]) for row in machine.ranges if row[3].process.recorded]
    found = sums(theirs("nvtx_sum", "nvtxsum"), "Range", "Instances")
    assert {name.removeprefix(":"): value for name, value in found.items()} == counted(ranges)

    memory = sum(w.end - w.start for w in recorded if w.kind in {Kind.COPY, Kind.FILL})
    found = sums(theirs("cuda_gpu_mem_time_sum", "gpumemtimesum"), "Operation", "Count")
    assert sum(total for _, total in found.values()) == memory
    assert sum(n for n, _ in found.values()) == len(recorded) - len(kernels)

    os_calls = [(row[2], row[1] - row[0]) for row in machine.os_calls if row[3].process.recorded]
    assert sums(theirs("osrt_sum", "osrtsum"), "Name", "Num Calls") == counted(os_calls)


# -- One export, or one per process


def test_exports_of_single_processes_hold_together_what_that_of_all_holds(tmp_path):
    plan = next(p for p in map(Plan.draw, range(80)) if p.ranks == 2 and not p.one_process)
    plan.iterations = 10
    result = simulate(program(0, plan))
    whole = write(result, tmp_path / "all.sqlite")[0]
    parts = write(result, tmp_path / "rank.sqlite", per_process=True)
    assert [part.name for part in parts] == ["rank.0.sqlite", "rank.1.sqlite"]
    for table in ("KERNEL", "MEMCPY", "RUNTIME", "CUDA_EVENT"):
        sql = f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{table}"
        assert count(whole, sql)[0][0] == sum(count(part, sql)[0][0] for part in parts)
    first = "SELECT min(start) + utcEpochNs FROM CUPTI_ACTIVITY_KIND_KERNEL, TARGET_INFO_SESSION_START_TIME"
    begins = [count(part, first)[0][0] for part in parts]
    assert min(begins) == EPOCH + min(
        w.start for w in result.machine.works() if w.kind is Kind.COMPUTE
    )


def test_streams_have_their_flags_and_contexts_their_null_stream(result, tmp_path):
    path = write(result, tmp_path / "report.sqlite")[0]
    flags = dict(count(path, "SELECT streamId, flag FROM TARGET_INFO_CUDA_STREAM"))
    assert flags[7] == 3
    used = {
        row[0] for row in count(path, "SELECT DISTINCT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL")
    }
    assert used <= set(flags)
    assert {
        row[0] for row in count(path, "SELECT nullStreamId FROM TARGET_INFO_CUDA_CONTEXT_INFO")
    } == {7}


def test_an_activity_has_the_correlation_of_its_call(result, tmp_path):
    path = write(result, tmp_path / "report.sqlite")[0]
    calls = "SELECT globalTid >> 24, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    kernels = "SELECT globalPid >> 24, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert set(count(path, kernels)) <= set(count(path, calls))
    assert global_pid(result.machine.processes[0]) & 0xFFFFFF == 0


# -- Degraded exports


def test_what_is_known_of_a_whole_export_is_the_truth(result):
    rows, machine = degraded_rows(result, "whole"), result.machine
    span = run_span(machine)
    assert known_span(rows) == span
    gpus = {gpu.number: works_of(gpu) for gpu in machine.gpus}
    assert known_states(rows) == {n: states(works, span) for n, works in gpus.items() if works}


@pytest.mark.parametrize("name", sorted(DEGRADED))
def test_degraded_exports_are_less_and_add_up(name, result, tmp_path):
    rows, whole = degraded_rows(result, name), degraded_rows(result, "whole")
    first, last = known_span(rows)
    assert all(sum(by.values()) == last - first for by in known_states(rows).values())
    total, left = (sum(map(len, r.tables.values())) for r in (whole, rows))
    assert left <= total
    if name.startswith(("without", "begins", "ends", "lost")) and name != "without_ranges":
        assert left < total
    assert write_degraded(result, name, tmp_path / "report.sqlite").exists()


def test_a_cut_leaves_calls_that_began_in_it_and_work_whose_call_did_not(result):
    rows = degraded_rows(result, "begins_in_the_middle")
    first, _ = known_span(rows)
    assert all(row[0] >= first for row in rows.tables["CUPTI_ACTIVITY_KIND_RUNTIME"])
    tables = degraded_rows(result, "ends_in_the_middle").tables
    open_ranges = [row for row in tables.get("NVTX_EVENTS", []) if row[1] is None]
    assert len(open_ranges) <= 12


def test_whole_graphs_hide_their_nodes():
    plan = next(p for p in map(Plan.draw, range(80)) if p.base == "solver")
    result = simulate(program(0, plan, "launch_bound"), frozenset(["launch_bound"]))
    whole, hidden = (degraded_rows(result, name) for name in ("whole", "whole_graphs"))
    kernels, graphs = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    assert len(hidden.tables[graphs]) == plan.iterations
    assert kernels not in hidden.tables
    assert len(whole.tables[kernels]) == plan.iterations * len(plan.forward)
    assert known_states(hidden)[0]["graph"] > known_states(whole)[0]["compute"]


def test_the_clock_error_is_small_and_keeps_durations(result):
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    before = degraded_rows(result, "whole").tables[kernels]
    behind = degraded_rows(result, "clock_error").tables[kernels]
    errors = [b[0] - a[0] for a, b in zip(before, behind, strict=True)]
    assert max(map(abs, errors)) <= 2_000
    assert len(set(errors)) > 3
    assert [b[1] - b[0] for b in behind] == [a[1] - a[0] for a in before]
