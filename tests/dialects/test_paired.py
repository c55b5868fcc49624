"""The timeline as RAF, MXNet and MegEngine write it: what begins ends, in order, and nothing is lost."""

import gzip
import json
from collections import Counter
from functools import cache

import pytest
import real_parts

import bridge
from bridge.compat import raf
from bridge.importers import ReportError

pytestmark = pytest.mark.slow


PAIRED = ("raf", "mxnet", "megengine")
READ = ("mnist-training", "simplex-streams", "two-processes")
EVERY = [(name, dialect) for dialect in PAIRED for name in READ]  # every fourth: each once


@cache
def loaded(path):
    return bridge.load(path)


def written(joined, dialect, folder):
    path = folder / f"{dialect}.json.gz"
    joined.export_trace(path, dialect=dialect)
    return json.loads(gzip.decompress(path.read_bytes())), path


@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_every_begin_has_its_end_in_order(path, tmp_path):
    """In each dialect by turns: what is begun and ended is the same in all."""
    try:
        joined = loaded(path)
    except ReportError:
        real_parts.skip_what_holds_no_profile(path)
    dialect = PAIRED[len(joined.capture.activities) % len(PAIRED)]
    trace, _ = written(joined, dialect, tmp_path)
    stacks, last, found = {}, {}, Counter()
    for event in trace["traceEvents"]:
        if event["ph"] in "BE":
            track = event["pid"], event["tid"]
            assert event["ts"] >= last.get(track, -1)
            last[track] = event["ts"]
            if event["ph"] == "B":
                stacks.setdefault(track, []).append(event["name"])
                found[event["cat"]] += 1
            else:
                assert stacks[track].pop() == event["name"]
    assert not any(stacks.values())
    report = joined.capture
    stacked = int((report.ranges["kind"] == "push_pop").sum())
    assert sum(found.values()) == stacked + len(report.launches) + len(report.activities)


@pytest.mark.parametrize(("name", "dialect"), EVERY if real_parts.NIGHT else EVERY[::4])
def test_perfetto_reads_every_slice_with_its_times(
    name, dialect, corpus, tmp_path, trace_processor
):
    from viewers.trace_processor import check_trace

    joined = loaded(corpus / "nsys" / f"{name}.sqlite")
    _, path = written(joined, dialect, tmp_path)
    trace = trace_processor(path)
    check_trace(trace)
    report = joined.capture
    stacked = report.ranges["kind"] == "push_pop"
    [row] = trace.query(
        "select count(*) as n, sum(dur) as dur from slice where category != 'phase'"
    )
    assert row.n == stacked.sum() + len(report.launches) + len(report.activities) + len(
        report.marks
    )
    length = sum(
        int((table.end - table.start).clip(0).sum())
        for table in (report.ranges.take(stacked), report.launches, report.activities)
    )
    if dialect != "raf":  # whose times are whole microseconds
        assert row.dur == length


def test_raf_finds_a_duration_as_ever(corpus, tmp_path):
    joined = loaded(corpus / "nsys" / "mnist-training.sqlite")
    trace, _ = written(joined, "raf", tmp_path)
    assert raf.profiler.get_duration(trace, "Epoch 2", "operator") == pytest.approx(
        15313.364, abs=0.002
    )
    first = next(e for e in trace["traceEvents"] if e["ph"] == "B")
    assert isinstance(first["ts"], int)
    assert isinstance(first["tid"], str)
    assert first["args"] == {"args_string": ""}


def test_sizes_are_rafs_arguments(corpus, tmp_path):
    joined = loaded(corpus / "nsys" / "pytorch-backward.sqlite")
    trace, _ = written(joined, "raf", tmp_path)
    said = {e["args"]["args_string"] for e in trace["traceEvents"] if e["ph"] == "B"}
    assert any(text.startswith("[[") for text in said)


def test_megengines_curves_have_its_names(corpus, tmp_path):
    joined = loaded(corpus / "nsys" / "mnist-training.sqlite")
    trace, _ = written(joined, "megengine", tmp_path)
    curves = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            curves.setdefault(event["name"], []).append(event["args"]["value"])
    assert {"nr_op_pending", "gpu_usgae_ratio", "device_ahead_ms"} <= set(curves)
    assert 0 < max(curves["gpu_usgae_ratio"]) <= 1
    assert trace["metadata"]["localTime"] > 1e15
