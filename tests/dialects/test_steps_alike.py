"""Steps and the times of GPUs, as TensorBoard's plugin and HolisticTraceAnalysis see the same work."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from real_parts import NIGHT

from bridge.analyze.run.steps import ROLES, Coverage, Walls, by_step
from bridge.importers import frames
from bridge.join.attributed import AttributedCapture
from bridge.join.grammar import parse
from bridge.report import Report

US = 1_000
RANKS = ("pytorch-2gpu-before", "pytorch-2gpu-after")
# Steps that are found by repetition, and how many of them at least TensorBoard's plugin keeps.
FOUND = [("saxpy-mpi", 3), *([("jacobi-mpi-two-loops", 1998)] if NIGHT else [])]
RESNETS = ("resnet50-workers0", "resnet50-workers4")  # data loaded in turn, and by workers
LIKE_US = ("kernel", "memcpy", "memset", "communication", "runtime")
ON_HOST = ("dataloader", "cpu", "other")


def with_steps(joined):
    """Name the steps that were found by repetition, so that others see them too."""
    steps, report = joined.attributed.iterations, joined.capture
    one = report.ranges.to_pandas().groupby(["report", "process"])["thread"].first()
    rows = {
        "start": steps.start,
        "end": steps.end,
        "process": steps.process,
        "thread": one.loc[list(zip(steps.report, steps.process, strict=True))].to_numpy(),
        "domain": np.zeros(len(steps), np.int64),
        "domain_name": frames.Names(np.zeros(len(steps), np.int64), [""]),
        "kind": frames.Names(np.zeros(len(steps), np.int64), frames.RANGE_KINDS),
        "name": frames.Names.of([f"ProfilerStep#{n}" for n in steps.number.tolist()]),
        "text": np.zeros(len(steps), np.int64),
        "report": steps.report,
    }
    ranges = frames.Ranges.concat([report.ranges, frames.Ranges(rows)])
    named = Report(AttributedCapture.of(replace(report, ranges=ranges)))
    assert named.attributed.steps.start.tolist() == steps.start.tolist()
    return named


def of_operators(joined):
    """Return for each step how long any operator of the framework ran that no earlier role has taken."""
    attributed, walls = joined.attributed, Walls.of(joined.attributed)
    ranges, steps = joined.capture.ranges, joined.attributed.iterations
    is_operator = np.array(
        [parse(n).kind in ("operator", "communication") for n in ranges.name.texts]
    )[ranges.name.codes]
    found = np.zeros(len(steps), np.int64)
    for first, last in steps.by_process():
        process = steps.process[first]
        parts = [joined.capture.activities, joined.capture.launches, ranges.take(is_operator)]
        ends = [attributed.end, None, None]
        before = Coverage.of(np.empty(0, np.int64), np.empty(0, np.int64))
        taken = []
        for table, end in zip(parts, ends, strict=True):
            own = table.process == process
            stop = table.end if end is None else end
            before = before.union(table.start[own], stop[own])
            times = (before.before(t[first:last]) for t in (walls.end, walls.start))
            taken.append(np.subtract(*times))
        found[first:last] = taken[2] - taken[1]
    return found


def compare_steps(joined, tmp_path, tool_says):
    """Hold each step against TensorBoard's plugin; return how many it has."""
    table, operators = by_step(joined.attributed), of_operators(joined)
    compared = 0
    pids = list(dict.fromkeys(table["pid"].tolist()))
    for pid, file in zip(pids, joined.export_tensorboard(tmp_path), strict=True):
        found = tool_says("in_tensorboard_steps.py", file)["steps"]
        assert f"_{pid}." in file.name
        own = table["pid"] == pid
        last = table["step"][own].max()
        for row, on_host in zip(table[own].records(), operators[own], strict=True):
            if str(row["step"]) not in found:  # it drops the last ones for lack of kernels
                assert row["step"] >= last - 1
                continue
            *theirs, total = found[str(row["step"])]
            theirs = dict(zip(ROLES, theirs, strict=True))
            assert total * US == pytest.approx(row["wall_ns"], abs=10)
            # Of collectives it knows neither all-to-all nor those called by hand: their kernels are kernels.
            kernels = row["kernel_ns"] + row["communication_ns"]
            assert theirs["kernel"] * US == pytest.approx(kernels, abs=10)
            for role in ("memcpy", "memset", "runtime"):
                assert theirs[role] * US == pytest.approx(row[f"{role}_ns"], abs=10)
            # Of ranges it counts those of operators alone: what else is annotated is of "other".
            assert theirs["cpu"] * US == pytest.approx(on_host, abs=10)
            host = sum(row[f"{role}_ns"] for role in ON_HOST)
            assert sum(theirs[role] for role in ON_HOST) * US == pytest.approx(host, abs=10)
            compared += 1
    return compared


def test_tensorboard_parts_the_steps_of_a_training_alike(reports, tmp_path, tool_says):
    assert compare_steps(reports("mnist-training"), tmp_path, tool_says) == 59


@pytest.mark.parametrize(("name", "least"), FOUND)
def test_tensorboard_parts_steps_that_we_found_alike(name, least, reports, tmp_path, tool_says):
    """Once they have names: without any it takes the whole run for one step."""
    assert compare_steps(with_steps(reports(name)), tmp_path, tool_says) >= least


def test_tensorboard_finds_multiprocessors_as_full(reports, tmp_path, tool_says):
    """Its denominator is the time of all steps, ours from the first work to the last."""
    joined = reports("mnist-training")
    [file] = joined.export_tensorboard(tmp_path)
    found, walls = tool_says("in_tensorboard_steps.py", file), Walls.of(joined.attributed)
    whole = int(walls.end[-1] - walls.start[0])
    [row] = joined.within(steps=(0, 58)).by("device").to_dict("records")
    assert found["utilisation"]["0"] * whole == pytest.approx(row["compute_ns"], rel=1e-6)
    # Blocks per multiprocessor are written with three decimals, occupancy in whole per cent.
    ours = row["sm_efficiency"] * row["span_ns"]
    assert found["sm_efficiency"]["0"] * whole == pytest.approx(ours, rel=1e-3)
    assert found["occupancy"]["0"] == pytest.approx(100 * row["occupancy"], abs=0.5)


def check_hta(row, found):
    """Hold a GPU against HolisticTraceAnalysis, which cuts the start and the length of each activity to whole µs."""
    [theirs] = found["breakdown"]
    cut = 2 * row["activities"]
    assert theirs["kernel_time(us)"] == pytest.approx(row["span_ns"] / US, abs=2)
    assert theirs["compute_time(us)"] == pytest.approx(row["compute_ns"] / US, abs=cut)
    assert theirs["idle_time(us)"] == pytest.approx(row["idle_ns"] / US, abs=cut)
    rest = (row["busy_ns"] - row["compute_ns"]) / US
    assert theirs["non_compute_time(us)"] == pytest.approx(rest, abs=cut)
    [overlap] = found["overlap"]
    share = 100 * row["overlap_ns"] / row["communication_ns"] if row["communication_ns"] else 0
    assert share == pytest.approx(overlap["comp_comm_overlap_pctg"] or 0, abs=0.5, nan_ok=True) or (
        not row["communication_ns"] and pd.isna(overlap["comp_comm_overlap_pctg"])
    )


def test_hta_finds_a_gpu_as_busy_in_a_training(reports, tmp_path, tool_says):
    """It leaves out what no step launched."""
    joined = reports("mnist-training")
    joined.export_tensorboard(tmp_path)
    [row] = joined.within(steps=(0, 58)).by("device").to_dict("records")
    check_hta(row, tool_says("in_hta_times.py", tmp_path))


@pytest.mark.parametrize("name", RANKS if NIGHT else RANKS[1:])
def test_hta_finds_two_gpus_as_busy(name, reports, tmp_path, tool_says):
    joined = reports(name)
    rows = joined.by("device").sort_values("device").to_dict("records")
    for row, file in zip(rows, joined.export_tensorboard(tmp_path), strict=True):
        folder = tmp_path / row["device"]
        folder.mkdir()
        file.rename(folder / file.name)
        check_hta(row, tool_says("in_hta_times.py", folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", RESNETS if NIGHT else RESNETS[:1])
def test_tensorboard_on_a_trace_of_the_profilers_own(name, reports, corpus, tool_says):
    """The trace as it was written against the report that we read from it: what waits for data is the same."""
    table = by_step(reports(name, "kineto", ".pt.trace.json.gz").attributed)
    file = corpus / "kineto" / f"{name}.pt.trace.json.gz"
    found = tool_says("in_tensorboard_steps.py", file)["steps"]
    assert len(found) >= len(table) - 1 > 3
    for row in table.records()[: len(found)]:
        *theirs, total = found[str(row["step"])]
        theirs = dict(zip(ROLES, theirs, strict=True))
        assert total * US == row["wall_ns"]
        for role in (*LIKE_US, *ON_HOST):
            assert theirs[role] * US == row[f"{role}_ns"], role
