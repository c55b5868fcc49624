"""Both formats of a trace give Perfetto's trace processor the same slices, arrows and arguments."""

import json
from collections import Counter

import pytest
import real_parts
from made_reports import Made, thread

import bridge.report
from bridge.analyze.draw.timeline import timeline

pytestmark = pytest.mark.slow

NAMES = ("memcpy-heavy", "pytorch-forward", "torch-compile-graphs", "two-processes")
SLICES = """select s.id as id, s.category as category, s.ts as ts, s.dur as dur, s.depth as depth, s.name as name,
  s.arg_set_id as args from slice s where s.category != 'phase'"""
FLOWS = "select slice_out as o, slice_in as i from flow"
ARGS = (
    "select arg_set_id as id, key, coalesce(string_value, int_value, real_value) as value from args"
)
COUNTERS = "select ts, value from counter"
NOT_IN_BOTH = {"kind"}  # JSON needs a first argument, which repeats the category


def read(trace, base):
    """Slices with their arguments, arrows by the slices at their ends, samples of counters."""
    from viewers.trace_processor import check_trace

    check_trace(trace)
    args = {}
    for row in trace.query(ARGS):
        # JSON is read below `args`, annotations below `debug`
        root, _, key = row.key.partition(".")
        if root in {"args", "debug"} and key not in NOT_IN_BOTH:
            args.setdefault(row.id, set()).add((key, row.value))
    slices = {
        s.id: (s.category, s.ts - base, s.dur, s.depth, s.name, frozenset(args.get(s.args, ())))
        for s in trace.query(SLICES)
    }
    flows = Counter((slices[f.o], slices[f.i]) for f in trace.query(FLOWS))
    return Counter(slices.values()), flows, Counter(trace.query(COUNTERS))


def hold(joined, folder, trace_processor):
    """Compare what the trace processor reads from the two formats; return the slices and the arrows."""
    base = timeline(joined.attributed).base
    found = []
    for name, first in (("t.json.gz", 0), ("t.pftrace", base - min(base, 0))):
        joined.export_trace(folder / name)
        slices, flows, counters = read(trace_processor(folder / name), first)
        found.append(
            (slices, flows, Counter({(t - first, v): n for (t, v), n in counters.items()}))
        )
    assert found[0] == found[1]
    return found[0][:2]


@pytest.mark.parametrize("path", real_parts.corpus_reports(names=NAMES))
def test_real_reports(path, trace_processor, tmp_path):
    hold(bridge.report.load(path), tmp_path, trace_processor)


@pytest.fixture
def launches(tmp_path):
    """Ops of one call and of several, calls of several kernels, of none, of no op, and one after its kernel."""
    made, host = Made(), {"thread": thread(7)}
    for start, end, name in ((0, 9000, "outer"), (100, 900, "one call"), (1000, 3000, "two calls")):
        made.annotation(59, start, end, text=name, **host)
    made.annotation(59, 4000, 5000, text="one call of three kernels", **host)
    made.annotation(59, 6000, 7000, text="late call", **host)
    calls = {
        200: [1000],
        1100: [2000],
        1200: [3000],
        4100: [5000, 5500, 6500],
        6100: [6050],
        20000: [30000, 31000],
    }
    for call, kernels in calls.items():
        for n, start in enumerate(kernels):
            made.correlation -= n > 0  # the same as of the first kernel
            made.kernel(f"k{start}", -1 if n else call, 7, start, start + 400)
    return bridge.report.load(made.written(tmp_path / "launches.sqlite"))


def test_arrows_of_all_shapes(launches, trace_processor, tmp_path):
    """Compare with a list by hand: (category and start of the one end, of the other)."""
    slices, flows = hold(launches, tmp_path, trace_processor)
    ends = Counter((*o[:2], *i[:2]) for o, i in flows.elements())
    assert ends == Counter({
        ("op", 100, "api", 200): 1, ("api", 200, "kernel", 1000): 1,
        ("op", 1000, "api", 1100): 1, ("api", 1100, "kernel", 2000): 1,
        ("op", 1000, "api", 1200): 1, ("api", 1200, "kernel", 3000): 1,
        ("op", 4000, "api", 4100): 1, **{("api", 4100, "kernel", n): 1 for n in (5000, 5500, 6500)},
        ("op", 6000, "api", 6100): 1,  # its kernel began before it: viewers draw no arrow back in time
        **{("api", 20000, "kernel", n): 1 for n in (30000, 31000)},
    })  # fmt: skip
    kernels = [dict(s[5]) for s in slices if s[0] == "kernel"]
    assert len(kernels) == 9
    assert {args["grid"] for args in kernels} == {"8x2x1"}
    assert {args["registers per thread"] for args in kernels} == {32}


def test_events_of_arrows_are_written_only_where_a_number_does_not_do(launches, tmp_path):
    """The two calls of one op, and the call after its kernel."""
    launches.export_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    assert [e["ts"] for e in events if e["ph"] == "s"] == [1.1, 1.2, 6.1]
    bound = [
        e["ts"] for e in events if e["cat" if "cat" in e else "ph"] == "kernel" and "bind_id" in e
    ]
    assert bound == [1.0, 5.0, 5.5, 6.5, 30.0, 31.0]


def test_the_ui_opens_the_compressed_trace(launches, perfetto_ui, tmp_path):
    path = tmp_path / "t.pftrace"
    launches.export_trace(path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"  # gzip
    perfetto_ui.open(path)
    assert not perfetto_ui.errors
    assert perfetto_ui.sql("select count(*) as n from flow") == [{"n": 13}]
    [kernel] = perfetto_ui.sql("select id from slice where name = 'k3000'")
    perfetto_ui.select("slice", kernel["id"])
    assert {"8x2x1", "128x1x1", "two calls"} <= {*perfetto_ui.text().split("\n")}
