"""Figures of steps, GPUs and collectives that must add up in every real profile, and those of two that were looked at."""

import numpy as np
import pytest
from real_parts import corpus_reports

import bridge
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.run.concurrency.overlap import exposed_times, exposure
from bridge.analyze.run.steps import ROLES
from bridge.importers import ReportError
from bridge.join.arrays import NONE

pytestmark = pytest.mark.slow


NO_PROFILES = ("failed-export", "no-kernels-osrt")  # nothing of CUDA in them: they are refused


@pytest.mark.parametrize("path", corpus_reports())
def test_figures_add_up(path):
    if path.stem in NO_PROFILES:
        with pytest.raises(ReportError):
            bridge.load(path)
        return
    joined = bridge.load(path)
    steps, devices, collectives = (joined.by(view) for view in ("step", "device", "collective"))
    roles = [f"{role}_ns" for role in ROLES]
    assert (steps[roles].sum(axis=1) == steps["wall_ns"]).all()
    assert (steps[[*roles, "between_ns"]] >= 0).all().all()
    assert (steps["between_dataloader_ns"] <= steps["between_ns"]).all()
    after = steps.groupby(["pid"])[["start_ns", "wall_ns"]].shift()
    ended = after["start_ns"] + after["wall_ns"]
    assert (ended.isna() | (ended <= steps["start_ns"])).all()
    assert devices["activities"].sum() == len(joined.capture.activities)
    assert devices["gpu_ns"].sum() == joined.totals["gpu_ns"]
    assert (devices["busy_ns"] <= devices["gpu_ns"]).all()
    parts = devices["busy_ns"] + devices["elsewhere_ns"] + devices["idle_ns"]
    assert (parts == devices["run_ns"]).all()
    assert (devices["span_ns"] <= devices["run_ns"]).all()
    hidden, alone = devices["overlap_ns"], devices["exposed_ns"]
    assert (hidden + alone == devices["communication_ns"]).all()
    shares = devices[["sm_efficiency", "occupancy"]].to_numpy()
    assert (((shares >= 0) & (shares <= 1)) | (shares == -1)).all()
    attributed = joined.attributed
    talks = is_communication(attributed)
    assert collectives["count"].sum() == talks.sum()
    assert collectives["total_ns"].sum() == attributed.duration[talks].sum()
    known = collectives["wait_ns"] >= 0
    both = (collectives["wait_ns"] + collectives["transfer_ns"])[known]
    assert (both == collectives["total_ns"][known]).all()


@pytest.mark.parametrize("name", ["pytorch-2gpu-before", "pytorch-2gpu-after"])
def test_exposed_communication_of_ops_and_of_gpus_is_the_same(name, corpus):
    """On each GPU one collective runs at a time, so no time counts twice."""
    joined = bridge.load(corpus / "nsys" / f"{name}.sqlite")
    attributed, devices = joined.attributed, joined.by("device")
    ops = exposure(attributed, attributed.node_op, len(attributed.ops))
    outside = is_communication(attributed) & (attributed.node == NONE)
    rest = (attributed.duration[outside].sum(), exposed_times(attributed)[outside].sum())
    for column, more in zip(("communication_ns", "exposed_ns"), rest, strict=True):
        assert ops[column].sum() + more == devices[column].sum()
    assert np.count_nonzero(ops["communication_ns"]) == 1


def test_collectives_of_two_ranks(corpus):
    """Of each all-to-all one rank has waited for the other."""
    joined = bridge.load(corpus / "nsys" / "pytorch-2gpu-before.sqlite")
    row = joined.by("collective").iloc[0]
    assert (row["collective"], row["op"]) == ("AllToAll", "nccl:all_to_all")
    assert (row["ranks"], row["count"]) == (2, 64)
    times, devices = joined.attributed.duration, joined.capture.activities.device
    talks = is_communication(joined.attributed) & (joined.attributed.node != NONE)
    ranks = [times[talks & (devices == gpu)] for gpu in (0, 1)]
    least = np.minimum(*ranks).sum()
    assert row["transfer_ns"] == 2 * least
    assert row["wait_ns"] == sum(rank.sum() for rank in ranks) - 2 * least
    waited = [rank.sum() - least for rank in ranks]
    assert row["straggler"] == f"GPU {np.argmin(waited)}"
    assert row["bytes"] == -1  # the ranges say no shapes
