"""What nsys records and what a session records of one run agree, range by range."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import both
import numpy as np
import pandas as pd
import pytest
from captures import exported, profiled, with_bridge

import bridge
from bridge import importers
from bridge.importers.arrays import MISSING
from bridge.importers.capture import Capture

TEXTS = ("name", "domain_name", "category", "kind")
USUAL_NS = 1_000_000  # the two clocks are read one after the other
NEAR_NS = 20_000_000
HELD_UP = 0.002  # the system may take the processor away between the two, for as long as it likes
OF_SESSION = "nsight-bridge"  # the domain of the capture range, which only nsys is told of


@pytest.fixture(scope="module", params=["interop", "auto"])
def folder(request: Any, nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("both")
    program = (sys.executable, both.__file__, made / "own.jsonl")
    env, options = with_bridge(BRIDGE_NVTX=request.param), ["--trace-fork-before-exec=true"]
    profiled(nsys, made, *program, options=options, env=env)
    exported(nsys, made / "report.nsys-rep")
    return made


def ranges(report: Capture, process: int | None = None) -> pd.DataFrame:
    """Return the ranges of one process (by default the first), texts as texts, in order."""
    table = report.ranges.to_pandas().assign(**{c: report.ranges[c].to_numpy() for c in TEXTS})
    table["text"] = report.texts.decode(report.ranges.text)
    table["pid"] = report.ranges.process >> 24 & 0xFFFFFF
    first = table.sort_values("start")["pid"].iloc[0] if process is None else process
    table = table[(table["pid"] == first) & (table["domain_name"] != OF_SESSION)]
    table["tid"] = table["thread"] & 0xFFFFFF
    return table.sort_values(
        ["kind", "tid", "domain_name", "start"], kind="stable", ignore_index=True
    )


@pytest.fixture(scope="module")
def both_records(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    return ranges(importers.load(folder / "report.sqlite")), ranges(
        importers.load(folder / "own.jsonl")
    )


@pytest.mark.slow
def test_every_range_is_in_both_with_all_that_was_said_of_it(both_records) -> None:
    theirs, ours = both_records
    assert len(ours) > both.DEEP
    for column in ("kind", "tid", "domain_name", "text", "payload", "category"):
        assert theirs[column].tolist() == ours[column].tolist(), column
    said = ours["color"] != MISSING  # nvtx gives what has no colour one of its own
    assert (theirs["color"][said] & 0xFFFFFFFF).tolist() == ours["color"][said].tolist()


def test_times_differ_by_what_reading_a_clock_takes(both_records) -> None:
    theirs, ours = both_records
    closed = ~(ours["open"] | theirs["open"]).to_numpy()
    spans = [(t["end"] - t["start"]).to_numpy()[closed] for t in both_records]
    ahead = ours["start"].to_numpy() - theirs["start"].to_numpy()  # their zeros differ as well
    for differs in (spans[0] - spans[1], ahead - int(np.median(ahead))):
        off = np.abs(differs)
        assert np.median(off) < USUAL_NS
        assert (off > NEAR_NS).mean() < HELD_UP


@pytest.mark.slow
def test_ops_have_the_same_calls_and_paths(folder: Path) -> None:
    theirs, ours = (bridge.load(folder / name) for name in ("report.sqlite", "own.jsonl"))
    first = ranges(ours.capture)["pid"].iloc[0]

    def paths(joined: bridge.Report) -> list[tuple[str, str]]:
        table = joined.by("range")
        table = table[(table["thread"].to_numpy() >> 24 & 0xFFFFFF) == first]
        return sorted(zip(table["name"], table["path"], strict=True))

    assert paths(theirs) == paths(ours)


@pytest.mark.slow
def test_the_forked_child_is_in_both(folder: Path) -> None:
    [child] = folder.glob("own-*.jsonl")
    pid = int(child.stem.removeprefix("own-"))
    theirs = ranges(importers.load(folder / "report.sqlite"), pid)
    ours = ranges(importers.load(child), pid)
    own = ["in the child", "within"]
    assert ours["text"].tolist()[-2:] == sorted(own) or set(own) <= set(ours["text"])
    for table in (theirs, ours):
        found = table[table["text"].isin(own)].sort_values("text")
        assert found[["text", "domain_name"]].to_numpy().tolist() == [
            ["in the child", ""],
            ["within", "forked"],
        ]
    assert (theirs[theirs["text"] == "in the child"]["color"] & 0xFFFFFFFF).tolist() == [0xFF008080]


@pytest.mark.slow
def test_marks_are_in_both(folder: Path) -> None:
    def marks(name: str) -> list[tuple[Any, ...]]:
        table = importers.load(folder / name).marks
        columns = [table[c] for c in ("name", "domain_name", "json")]
        return sorted(zip(*columns, table["payload"], strict=True))

    assert marks("report.sqlite") == marks("own.jsonl")
    assert marks("own.jsonl")
