"""The timeline as PyTorch's profiler writes it, as TensorBoard's plugin, HolisticTraceAnalysis and Perfetto read it."""

import gzip
import json
from collections import Counter

import pytest
import real_parts

import bridge
from bridge.analyze.core.time_range import step_windows
from bridge.analyze.draw.dialects import TORCH
from bridge.analyze.draw.timeline import Selection
from bridge.importers import frames
from bridge.importers.nsys.write import write_export
from bridge.output import OutputError

TRAINING = "mnist-training"
EVERY = ("pytorch-backward", "two-processes", TRAINING, "simplex-streams")


def read(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def written(joined, path, **how):
    joined.export_trace(path, dialect=TORCH, **how)
    return read(path)


@pytest.fixture(scope="module")
def training(reports, tmp_path_factory):
    """Give the trace of a whole training."""
    return written(reports(TRAINING), tmp_path_factory.mktemp("training") / "t.json.gz")


def events(trace, category, ph="X"):
    return [e for e in trace["traceEvents"] if e.get("cat") == category and e["ph"] == ph]


@pytest.mark.slow
def test_kinds_of_events_are_those_of_kineto(reports, training):
    joined, trace = reports(TRAINING), training
    found = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] == "X")
    activities = joined.capture.activities
    assert found == {
        "cpu_op": len(joined.capture.ranges) - 615,
        "user_annotation": 615,
        "cuda_runtime": len(joined.capture.launches),
        "kernel": int((activities["kind"] == "kernel").sum()),
        "gpu_memcpy": int((activities["kind"] == "memcpy").sum()),
        "gpu_memset": int((activities["kind"] == "memset").sum()),
    }
    assert trace["schemaVersion"] == 1
    [gpu] = trace["deviceProperties"]
    assert (gpu["id"], gpu["numSms"], gpu["maxThreadsPerMultiprocessor"]) == (0, 108, 2048)
    steps = sorted(
        e["name"] for e in events(trace, "user_annotation") if e["name"].startswith("Prof")
    )
    assert steps == sorted(f"ProfilerStep#{n}" for n in range(59))


@pytest.mark.slow
def test_ids_hold_an_op_its_calls_and_its_kernels_together(reports, training):
    joined, trace = reports(TRAINING), training
    op = {e["args"]["External id"]: e for e in events(trace, "cpu_op")}
    call = {e["args"]["correlation"]: e for e in events(trace, "cuda_runtime")}
    owner = joined.op_kernels["op"].astype(object)
    kernels = events(trace, "kernel") + events(trace, "gpu_memcpy") + events(trace, "gpu_memset")
    assert len(kernels) == len(owner)
    found = Counter()
    for kernel in kernels:
        issued = call[kernel["args"]["correlation"]]
        assert issued["args"]["External id"] == kernel["args"]["External id"]
        if not kernel["args"]["External id"]:
            found["annotated"] += 1
            continue
        around = op[kernel["args"]["External id"]]
        assert around["ts"] <= issued["ts"] < around["ts"] + around["dur"]
        assert around["tid"] == issued["tid"]
        found[around["name"]] += 1
    drawn = {e["name"] for e in op.values()}
    annotated = [name for name in owner if name not in drawn]
    assert found.pop("annotated", 0) == len(annotated) < 1_000
    assert found == Counter(owner) - Counter(annotated)


@pytest.mark.slow
def test_kernels_have_their_geometry(training):
    args = events(training, "kernel")[0]["args"]
    assert (args["device"], args["stream"], args["grid"], args["block"]) == (
        0,
        7,
        [1, 1, 1],
        [128, 1, 1],
    )
    assert args["blocks per SM"] == pytest.approx(1 / 108, abs=1e-3)
    assert args["warps per SM"] == pytest.approx(4 / 108, abs=1e-3)
    copy = events(training, "gpu_memcpy")[0]
    assert copy["name"] == "Memcpy HtoD (Pageable -> Device)"
    speed = copy["args"]["bytes"] / (copy["dur"] * 1000)
    assert copy["args"]["memory bandwidth (GB/s)"] == pytest.approx(speed, abs=1e-3)


@pytest.mark.slow
def test_arrows_lead_from_forward_to_backward(reports, tmp_path):
    joined = reports("pytorch-backward")
    trace = written(joined, tmp_path / "t.json.gz")
    starts, ends = ({e["id"]: e for e in events(trace, "fwdbwd", ph)} for ph in "sf")
    assert len(starts) == len(ends) > 100
    assert starts.keys() == ends.keys()
    assert all(starts[n]["ts"] < ends[n]["ts"] for n in starts)
    assert {e["tid"] for e in starts.values()}.isdisjoint({e["tid"] for e in ends.values()})
    sequence = [e["args"].get("Sequence number", -1) for e in events(trace, "cpu_op")]
    assert max(sequence) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY if real_parts.NIGHT else EVERY[:2])
def test_perfetto_loses_nothing(name, reports, tmp_path, trace_processor):
    from viewers.trace_processor import check_trace

    joined = reports(name)
    trace = written(joined, tmp_path / "t.json.gz")
    loaded = trace_processor(tmp_path / "t.json.gz")
    check_trace(loaded)
    shown = {
        row.category: row.n
        for row in loaded.query("select category, count(*) as n from slice group by 1")
    }
    expected = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] in "Xbi")
    assert shown == expected
    assert sum(expected.values()) == sum(
        len(table)
        for table in (joined.capture.ranges, joined.capture.launches, joined.capture.activities)
    ) + len(joined.capture.marks)


@pytest.mark.slow
def test_a_part_of_it(reports, tmp_path):
    joined = reports(TRAINING)
    step = Selection((step_windows(joined.attributed, 3, 3),))
    trace = written(joined, tmp_path / "t.json.gz", selection=step)
    launched = int((joined.attributed.activity_step == 3).sum())
    shown = (
        len(events(trace, "kernel"))
        + len(events(trace, "gpu_memcpy"))
        + len(events(trace, "gpu_memset"))
    )
    assert launched <= shown < 2 * launched
    starts, ends = (Counter(e["id"] for e in events(trace, "ac2g", ph)) for ph in "sf")
    assert starts == ends
    slim = written(joined, tmp_path / "s.json.gz", selection=Selection(slim=True))
    assert not events(slim, "cuda_runtime")
    assert len(events(slim, "kernel")) == 9345


@pytest.mark.slow
def test_two_processes_are_a_file_each_for_tensorboard(reports, tmp_path):
    joined = reports("two-processes")
    files = joined.export_tensorboard(tmp_path)
    assert [f.name.split(".")[0] for f in files] == ["two-processes_1679", "two-processes_1680"]
    activities = joined.capture.activities
    for file, process in zip(files, sorted({*activities.process.tolist()}), strict=True):
        trace = read(file)
        kernels = events(trace, "kernel")
        assert len(kernels) == int(
            ((activities["process"] == process) & (activities["kind"] == "kernel")).sum()
        )
        assert {e["pid"] for e in kernels} == {0}
        assert not events(trace, "cuda_runtime")  # the plugin knows them by their older name
        assert events(trace, "Runtime")


def test_numbers_of_two_processes_do_not_meet_in_one_file(reports, tmp_path):
    trace = written(reports("two-processes"), tmp_path / "t.json.gz")
    calls = Counter(e["args"]["correlation"] for e in events(trace, "cuda_runtime"))
    assert max(calls.values()) == 1
    assert {e["pid"] for e in events(trace, "kernel")} == {0, 1000}


@pytest.mark.slow
def test_two_reports_of_one_name_are_files_of_their_own(corpus, tmp_path):
    paths = []
    for rank, name in enumerate(("pytorch-2gpu-before", "mnist-training")):
        folder = tmp_path / f"r{rank}"
        folder.mkdir()
        paths.append(folder / f"rank{3 + rank}.sqlite")
        paths[-1].write_bytes((corpus / "nsys" / f"{name}.sqlite").read_bytes())
    out = tmp_path / "out"
    out.mkdir()
    joined = bridge.load(*paths)
    files = joined.export_tensorboard(out)
    assert len({f.name for f in files}) == len(files) == len(list(out.iterdir())) == 3
    said = [read(file) for file in files]
    assert [trace["distributedInfo"]["rank"] for trace in said] == [3, 5, 4]  # each its own
    assert [trace["distributedInfo"]["world_size"] for trace in said] == [6, 6, 6]
    assert [[gpu["name"] for gpu in trace["deviceProperties"]] for trace in said][2] == [
        "NVIDIA A100-SXM4-80GB"
    ]
    assert said[2]["baseTimeNanoseconds"] > 0
    with pytest.raises(OutputError, match="exists"):
        joined.export_tensorboard(out)
    files[0].unlink()
    with pytest.raises(OutputError, match="exists"):
        joined.export_tensorboard(out)
    assert not files[0].exists()  # nothing was written before it was known that all can be


def test_devices_have_the_numbers_that_they_are_drawn_with(reports, tmp_path):
    trace = written(reports("two-processes"), tmp_path / "t.json.gz")
    assert [gpu["id"] for gpu in trace["deviceProperties"]] == [0, 1000]


def test_the_first_process_of_a_container_is_no_device(tmp_path):
    process = 1 << 24
    kernel = {"start": 5, "end": 9, "process": process, "device": 1, "stream": 7, "correlation": 1}
    call = {"start": 1, "end": 3, "thread": process | 1, "correlation": 1, "name": 1}
    path = tmp_path / "one.sqlite"
    write_export(
        path,
        {
            "kernels": [kernel],
            "launches": [call],
            "strings": [{"id": 1, "value": "cudaLaunchKernel"}],
        },
    )
    trace = written(bridge.load(path), tmp_path / "t.json.gz")
    [ran], [called] = events(trace, "kernel"), events(trace, "cuda_runtime")
    assert ran["pid"] == 1
    assert called["pid"] > 1000


# -- the tools


@pytest.mark.parametrize(
    "name",
    [
        TRAINING,
        "pytorch-2gpu-before",
        *(["pytorch-backward", "transformer-annotated"] * real_parts.NIGHT),
    ],
)
def test_tensorboards_plugin_agrees_on_every_op(name, reports, tmp_path, tool_says):
    joined = reports(name)
    table = joined.by("op").set_index("op")
    ops, counted = Counter(), Counter()
    for file in joined.export_tensorboard(tmp_path):
        found = tool_says("in_tensorboard.py", file)
        assert found["has"][:2] == [True, True]
        for op, (calls, own, _total) in found["ops"].items():
            ops[op] += own
            counted[op] += calls
    assert sum(ops.values()) > 0
    for op, own in ops.items():
        if op in table.index:
            assert own * 1000 == pytest.approx(table.loc[op, "gpu_self_ns"], abs=1 + counted[op]), (
                op
            )


def test_tensorboards_plugin_finds_the_steps(reports, tmp_path, tool_says):
    [file] = reports(TRAINING).export_tensorboard(tmp_path)
    assert tool_says("in_tensorboard.py", file)["steps"] == [str(n) for n in range(59)]


def test_holistic_trace_analysis_agrees_on_kernels_and_busy_time(reports, tmp_path, tool_says):
    """It leaves out what was launched outside the steps, and cuts starts and lengths to whole microseconds."""
    joined = reports(TRAINING)
    written(joined, tmp_path / "rank0.json.gz")
    found = tool_says("in_hta.py", tmp_path)
    attributed = joined.attributed
    in_steps = attributed.activity_step != -1
    kernel = joined.capture.activities.kind.among(frames.KERNEL) & in_steps
    cut = int(in_steps.sum())  # µs at most
    [row] = found["breakdown"]
    busy = row["compute_time(us)"] + row["non_compute_time(us)"]
    ran = attributed.duration[in_steps].sum() / 1000  # on one stream, one after the other
    assert ran - cut <= busy <= ran
    computed = attributed.duration[kernel].sum() / 1000
    assert computed - cut <= found["kinds"]["COMPUTATION"] <= computed
    assert found["launches"]["0"] > 9_000


@pytest.mark.parametrize("name", ["pytorch-2gpu-before", "pytorch-2gpu-after", "two-processes"])
def test_holistic_trace_analysis_finds_every_rank_of_a_folder(name, reports, tmp_path, tool_says):
    joined = reports(name)
    joined.export_tensorboard(tmp_path)
    found = tool_says("in_hta.py", tmp_path)
    assert sorted(row["rank"] for row in found["breakdown"]) == [0, 1]
