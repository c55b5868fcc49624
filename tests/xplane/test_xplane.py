"""Profiles of JAX and TensorFlow: what their events become, against plain loops over Google's protobuf classes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import made_xplane as made
import numpy as np
import pytest
from command import bridge as command

import bridge
from bridge import importers
from bridge.importers.capture import UNREAD
from bridge.importers.xplane.scopes import path_of
from bridge.join.grammar import parse

REAL = Path(__file__).parent / "data/cpu-training.xplane.pb"


@pytest.fixture(scope="module")
def real():
    return importers.load(REAL)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    path = made.gpu_profile().write(tmp_path_factory.mktemp("gpu") / "node7.xplane.pb")
    return bridge.load(path)


def events_of(path, plane_name):
    """Yield line, name, start and end in ns, and stats of each event of a plane, from Google's classes."""
    space = made.CLASSES["XSpace"].FromString(path.read_bytes())
    for plane in space.planes:
        if plane.name != plane_name:
            continue
        names = {entry.key: entry.value.name for entry in plane.event_metadata}
        stats = {entry.key: entry.value.name for entry in plane.stat_metadata}
        for line in plane.lines:
            for event in line.events:
                told = {}
                for stat in event.stats:
                    kind = stat.WhichOneof("value")
                    value = getattr(stat, kind)
                    told[stats[stat.metadata_id]] = stats[value] if kind == "ref_value" else value
                start = line.timestamp_ns + event.offset_ps // 1000
                end = line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000
                yield line, names[event.metadata_id], start, end, told


def totals(rows):
    result = defaultdict(lambda: [0, 0])
    for name, start, end in rows:
        result[name][0] += 1
        result[name][1] += end - start
    return {name: tuple(values) for name, values in result.items()}


def totals_of(capture):
    ranges = capture.ranges
    return totals(zip(ranges.name, ranges.start.tolist(), ranges.end.tolist(), strict=True))


def text_of(name, told):
    if "hlo_op" in told:
        return f"{told['hlo_module']}:#hlo_op={told['hlo_op']}#"
    if "step_num" in told:
        return f"{name}#step_num={told['step_num']}#"
    return name.removeprefix("$")


# -- A real profile of the CPU


def test_every_event_of_the_host_is_a_range_a_mark_or_the_end_of_an_op(real):
    expected, points, ends = [], Counter(), 0
    for _, name, start, end, told in events_of(REAL, "/host:CPU"):
        if name.startswith("end: "):
            ends += 1
        elif start == end and "hlo_op" not in told:
            points[name] += 1
        else:
            expected.append((text_of(name, told), start, end))
    found = totals_of(real)
    modules = {name for name in found if parse(name).kind == "module"}
    assert {name: found[name] for name in found.keys() - modules} == totals(expected)
    assert Counter(real.marks.name) == points
    assert ends == sum("hlo_op" in told for *_, told in events_of(REAL, "/host:CPU"))
    assert len(expected) > 150


def test_ops_of_the_cpu_have_their_program_and_what_it_says_of_them(real):
    details = {
        n: json.loads(j)
        for n, j in zip(real.ranges.name, real.ranges.json, strict=True)
        if "#hlo_op" in n
    }
    assert details["jit_train_step:#hlo_op=dot.2#"] == {
        "hlo_module": "jit_train_step",
        "op_name": "jit(train_step)/transpose(jvp(net))/layer2/transpose",
        "opcode": "dot",
    }
    [fusion] = {tuple(d["fused"]) for n, d in details.items() if "multiply_subtract_fusion.1#" in n}
    assert fusion == ("broadcast", "multiply", "subtract")
    program = next(
        stat.bytes_value
        for plane in made.CLASSES["XSpace"].FromString(REAL.read_bytes()).planes
        for entry in plane.event_metadata
        if entry.value.name.startswith("jit_train_step(")
        for stat in entry.value.stats
        if stat.bytes_value
    )
    module = made.CLASSES["HloProto"].FromString(program).hlo_module
    said = {
        i.name: (i.opcode, i.metadata.op_name) for c in module.computations for i in c.instructions
    }
    own = "jit_train_step:#hlo_op="
    of_step = {
        name.removeprefix(own)[:-1]: told for name, told in details.items() if name.startswith(own)
    }
    assert {n: (d["opcode"], d.get("op_name", "")) for n, d in of_step.items()} == {
        n: said[n] for n in of_step
    }
    assert len(of_step) > 15


def test_functions_of_python_have_a_domain_of_their_own(real):
    ranges = real.ranges
    python = [name for *_, name, _, _, _ in events_of(REAL, "/host:CPU") if name.startswith("$")]
    assert Counter(ranges.name[ranges.domain_name == "python_function"]) == Counter(
        n[1:] for n in python
    )
    assert set(ranges.category[ranges.domain == 1].tolist()) == {"python_function"}


def test_steps_threads_and_the_epoch(real):
    report = bridge.load(REAL)
    assert report.by("step")["step"].tolist() == [0, 1, 2, 3]
    lines = {line.id: line.name for line, *_ in events_of(REAL, "/host:CPU")}
    assert set(real.threads.name) == {"python", "tf_XLAPjRtCpuClient"}
    assert len(set(real.ranges.thread.tolist())) == len(lines) == len(real.threads)
    space = made.CLASSES["XSpace"].FromString(REAL.read_bytes())
    [started] = [s.uint64_value for p in space.planes for s in p.stats if s.uint64_value > 10**18][
        :1
    ]
    first = min(start for _, _, start, _, _ in events_of(REAL, "/host:CPU"))
    assert real.facts[0].epoch_ns == started + first - 1000
    assert real.facts[0].span == (real.ranges.start.min(), real.ranges.end.max())
    assert real.ranges.start.min() == 1000
    assert real.facts[0].metadata["host"] == space.hostnames[0]


def test_modules_are_around_their_ops_and_in_the_range_that_their_ops_are_in(real):
    """A plain loop: the modules open around each op, by time, are those that the name of the op has."""
    ranges = real.ranges
    rows = [
        *zip(
            ranges.thread.tolist(),
            ranges.start.tolist(),
            ranges.end.tolist(),
            ranges.name,
            ranges.json,
            strict=True,
        )
    ]
    modules = [row for row in rows if parse(row[3]).kind == "module"]
    assert len(modules) > 40
    for thread, start, end, name, details in rows:
        if "#hlo_op" not in name:
            continue
        around = [m for t, s, e, m, _ in modules if t == thread and s <= start and end <= e]
        path = path_of(json.loads(details).get("op_name", ""))
        assert sorted(around) == sorted(path.texts), name
    for thread, start, end, *_ in modules:  # ranges on a thread are nested
        assert not any(t == thread and s < start < e < end for t, s, e, *_ in rows)


@pytest.mark.parametrize(
    ("op_name", "modules", "backward"),
    [
        ("jit(step)/jvp(net)/layer0/dot_general", "net layer0", False),
        ("jit(step)/transpose(jvp(net))/layer0/dot_general", "net layer0", True),
        ("jit(f)/jit(main)/while/body/closed_call/vmap(my scope)/add", "my_scope", False),
        ("jit(f)/transpose(jvp(a/b))/c/mul;jit(g)/d/add", "a.b c", True),
        ("jit(step)/jit(relu)/max", "", False),
        ("model/dense/MatMul", "model dense", False),
        ("reduce_sum", "", False),
        ("", "", False),
        ("/".join(["deep"] * 3000), " ".join(["deep"] * 64), False),
    ],
)
def test_what_the_name_of_an_op_says(op_name, modules, backward):
    assert path_of(op_name) == (tuple(modules.split()), backward)


def test_every_command_reads_it(folder):
    path = folder / "vm.xplane.pb"
    path.write_bytes(REAL.read_bytes())
    for line in (
        "report {} --by op",
        "report {} --by module",
        "summary {}",
        "trace {} -o t.json",
        "trace {} -o t.pftrace",
    ):
        result = command(*line.format(path).split())
        assert result.exit_code == 0, result.output
    assert "jit_train_step:dot.2" in command("report", path, "--by", "op").stdout


def test_a_file_of_another_name_is_known_by_its_first_bytes(tmp_path):
    path = tmp_path / "profile.bin"
    path.write_bytes(REAL.read_bytes())
    assert importers.load(path).facts[0].product == "XLA profiler"


# -- A made profile of a GPU


def test_work_on_streams_is_work_and_lines_made_of_it_are_not(gpu, tmp_path):
    path = made.gpu_profile().write(tmp_path / "g.xplane.pb")
    expected = Counter()
    for line, name, start, end, told in events_of(path, "/device:GPU:1"):
        if line.name.startswith("Stream") and name != "MemoryAlloc":
            number = int(line.name.partition("#")[2].partition("(")[0])
            expected[number, name, start, end, told.get("correlation_id", -1)] += 1
    work = gpu.capture.activities
    names = [*work.full_name]
    names = [
        {"[CUDA memset]": "Memset", "[CUDA memcpy Device-to-Host]": "MemcpyD2H"}.get(n, n)
        for n in names
    ]
    zero = 5000 - 1000
    times = zip(
        (work.start + zero).tolist(),
        (work.end + zero).tolist(),
        work.correlation.tolist(),
        strict=True,
    )
    assert (
        Counter((s, n, *t) for s, n, t in zip(work.stream.tolist(), names, times, strict=True))
        == expected
    )
    assert Counter(work.kind) == {"kernel": 6, "memcpy": 2, "memset": 2}


def test_what_is_told_of_work(gpu):
    work = gpu.capture.activities
    kernel, copy, fill = (
        int(np.flatnonzero(work.kind == kind)[0]) for kind in ("kernel", "memcpy", "memset")
    )
    columns = "registers shared_static shared_dynamic grid_x grid_y grid_z block_x block_y block_z".split()
    assert [int(work[c][kernel]) for c in columns] == [32, 128, 0, 4, 2, 1, 256, 1, 1]
    assert [int(work[c][kernel]) for c in ("device", "context", "bytes")] == [1, 1, -1]
    assert work.name[kernel] == "fusion_3"
    kinds = importers.capture.frames.MEMORY_KINDS
    assert [int(work[c][copy]) for c in ("bytes", "copy_kind", "registers")] == [4096, 2, -1]
    assert [kinds[work[c][copy]] for c in ("source_kind", "target_kind")] == ["device", "pinned"]
    assert (int(work.bytes[fill]), kinds[work.target_kind[fill]]) == (64, "device")


def test_kernels_have_the_op_that_xla_launched_them_for(gpu):
    table = gpu.by("op-kernel")
    found = {
        (op, kernel): (count, ns)
        for op, kernel, count, ns in zip(
            table["op"],
            table["kernel"],
            table["count"].tolist(),
            table["total_ns"].tolist(),
            strict=True,
        )
    }
    assert found == {
        (f"jit_train_step:{name}", name.replace(".", "_")): (2, 16_002) for name, _ in made.LAYERS
    }


def test_fused_kernels_tell_what_their_program_says_that_they_compute(gpu):
    table = gpu.by("kernel,fused")
    rows = zip(table["kernel"], table["fused"], table["count"].tolist(), strict=True)
    assert sorted(rows) == [("fusion_3", "multiply, add", 2), ("fusion_4", "multiply, add", 2)]


@pytest.mark.parametrize("with_program", [True, False])
def test_modules_of_kernels_by_the_program_or_by_what_the_events_say(with_program, tmp_path):
    report = bridge.load(
        made.gpu_profile(with_program=with_program).write(tmp_path / "g.xplane.pb")
    )
    table = report.by("module")
    rows = zip(
        table["module"],
        table["gpu_forward_ns"].tolist(),
        table["gpu_backward_ns"].tolist(),
        table["gpu_total_ns"].tolist(),
        strict=True,
    )
    assert {name: times for name, *times in rows} == {
        "net": [0, 0, 48_006],
        "net.layer0": [16_002, 0, 16_002],
        "net.layer1": [16_002, 16_002, 32_004],
        "(no module)": [0, 0, 0],
    }


def test_the_gpu_and_the_steps(gpu):
    devices = gpu.capture.devices
    facts = {
        c: int(devices[c][0])
        for c in (
            "device",
            "gpu",
            "sm_count",
            "clock_hz",
            "memory_bytes",
            "memory_bandwidth",
            "compute_major",
        )
    }
    assert devices.name.tolist() == ["NVIDIA H100"]
    assert [*facts.values()] == [1, 1, 132, 1_980_000_000, 80 << 30, 3_350_000_000_000, 9]
    assert gpu.by("step")["step"].tolist() == [0, 1]
    assert gpu.capture.launches.process.tolist() == [4242 << 24] * 8


def test_starts_and_ends_are_cut_to_ns_on_one_grid(tmp_path):
    """Events that follow one another without a gap do so still, and their times add up to the whole."""
    space = made.Space()
    line = space.plane("/host:CPU").line(1, "python")
    lengths = [1, 999, 1500, 2501, 7, 1_000_000, 3333]
    edges = np.cumsum([300, *lengths]).tolist()
    line.event("whole", edges[0], edges[-1] - edges[0])
    for number, (start, length) in enumerate(zip(edges, lengths, strict=False)):
        line.event("part", start, length, hlo_op=f"op{number}")
    ranges = importers.load(space.write(tmp_path / "g.xplane.pb")).ranges
    whole = ranges.name == "whole"
    start, end = (np.sort(column[~whole]) for column in (ranges.start, ranges.end))
    assert start[1:].tolist() == end[:-1].tolist()
    assert (end - start).sum() == (ranges.end - ranges.start)[whole].sum()


def test_a_call_whose_work_is_of_several_ops_is_of_none(tmp_path):
    """A CUDA graph is launched by one call: which of its ops that would be is not told."""
    space = made.Space()
    host = space.plane("/host:CPU").line(1, "python")
    host.event("PjitFunction(f)", 0, 9 * made.US)
    host.event("cuGraphLaunch (CudaGraph:5)", made.US, made.US, correlation_id=3)
    stream = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    for place in (1, 2):
        stream.event(
            f"k{place}",
            place * 9 * made.US,
            made.US,
            correlation_id=3,
            hlo_op=f"add.{place}",
            kernel_details="regs:8",
            cuda_graph_id=5,
            cuda_graph_node_id=place,
        )
    stream.event("graph", 40 * made.US, made.US, correlation_id=4, cuda_graph_exec_id=9)
    report = bridge.load(space.write(tmp_path / "g.xplane.pb"))
    work = report.capture.activities
    assert work.graph.tolist() == [5, 5, 9]
    assert work.graph_node.tolist() == [1, 2, -1]
    assert (work.kind[2], work.name[2]) == ("graph", "[CUDA graph 9]")
    assert report.capture.launches.name.tolist() == ["cuGraphLaunch"]
    assert report.capture.ranges.name.tolist() == ["PjitFunction(f)"]
    assert report.by("op")["op"].tolist() == ["PjitFunction(f)"]


def test_programs_with_modules_of_one_name_are_told_apart_by_their_number(tmp_path):
    space = made.Space()
    metadata, host = space.plane("/host:metadata"), space.plane("/host:CPU").line(1, "python")
    for number in (1, 2):
        packed = made.program("jit_f", number, [[("add.1", "add", f"jit(f)/scope{number}/add", 0)]])
        metadata.name(f"jit_f({number})", **{"Hlo Proto": packed, "program_id": number})
    for place, told in enumerate([{"program_id": 1}, {"program_id": 2}, {"program_id": 3}, {}]):
        host.event(
            f"add {place}", 9 * place * made.US, made.US, hlo_op="add.1", hlo_module="jit_f", **told
        )
    ranges = importers.load(space.write(tmp_path / "g.xplane.pb")).ranges
    told = [json.loads(j).get("op_name") for j in ranges.json if j]
    assert told == ["jit(f)/scope1/add", "jit(f)/scope2/add", None, None]


def test_a_program_is_known_by_its_module_where_events_tell_no_number(tmp_path):
    space = made.Space()
    metadata, host = space.plane("/host:metadata"), space.plane("/host:CPU").line(1, "python")
    packed = made.program("jit_f", 1, [[("add.1", "add", "jit(f)/scope/add", 0)]])
    metadata.name("jit_f(1)", **{"Hlo Proto": packed, "program_id": 1})
    for place, told in enumerate([{}, {"program_id": 1}, {"program_id": 2}]):
        host.event(
            f"add {place}", 9 * place * made.US, made.US, hlo_op="add.1", hlo_module="jit_f", **told
        )
    ranges = importers.load(space.write(tmp_path / "g.xplane.pb")).ranges
    told = [json.loads(j).get("op_name") for j in ranges.json if j]
    assert told == ["jit(f)/scope/add", "jit(f)/scope/add", None]


def test_modules_do_not_go_on_from_one_range_thread_or_run_to_the_next(tmp_path):
    """Ops of one module are in one range of it only while nothing around them ends."""
    space = made.Space()
    plane = space.plane("/host:CPU")
    first, second = plane.line(1, "a"), plane.line(2, "b")
    op = {"hlo_op": "add", "hlo_module": "jit_f", "name": "jit(f)/m/add"}
    for call in range(2):  # two calls of two ops: a range of the module in each
        first.event("call", 100 * call * made.US, 90 * made.US)
        for place in range(2):
            first.event("add", (100 * call + 10 * place + 1) * made.US, made.US, **op)
    second.event("add", 0, made.US, **op)
    for place, run in enumerate((5, 5, 6)):  # in no range: two executions
        second.event("add", (300 + 10 * place) * made.US, made.US, run_id=run, **op)
    ranges = importers.load(space.write(tmp_path / "g.xplane.pb")).ranges
    us = 1000  # the first event is at 1 µs
    found = sorted(
        (thread, start // us - 1, end // us - 1)
        for name, thread, start, end in zip(
            ranges.name,
            ranges.thread.tolist(),
            ranges.start.tolist(),
            ranges.end.tolist(),
            strict=True,
        )
        if name == "module:m"
    )
    assert found == [(1, 1, 12), (1, 101, 112), (2, 0, 1), (2, 300, 311), (2, 320, 321)]


def test_times_since_the_epoch_are_such(tmp_path):
    space = made.Space()
    space.plane("/host:CPU").line(1, "python", made.STARTED).event("f", made.US, made.US)
    [facts] = importers.load(space.write(tmp_path / "g.xplane.pb")).facts
    assert facts.epoch_ns == made.STARTED


def test_a_step_that_jax_annotates_is_one_whatever_it_is_called(tmp_path):
    space = made.Space()
    line = space.plane("/host:CPU").line(1, "python")
    line.event("my loop", 0, 9 * made.US, step_num=7, _r=1)
    line.event("f", made.US, made.US)
    report = bridge.load(space.write(tmp_path / "g.xplane.pb"))
    assert report.by("step")["step"].tolist() == [7]
    assert report.by("op")["op"].tolist() == ["my loop", "f"]


def test_stats_of_a_name_hold_for_all_its_events(tmp_path):
    """Newer profilers tell what all events of a name share once, at the name."""
    space = made.Space()
    plane = space.plane("/host:CPU")
    plane.name("dot", hlo_op="dot.7", hlo_module="jit_g")
    plane.line(1, "python").event("dot", 5, made.US, hlo_module="jit_h")
    assert importers.load(space.write(tmp_path / "g.xplane.pb")).ranges.name.tolist() == [
        "jit_h:#hlo_op=dot.7#"
    ]


def test_stats_are_the_arguments_of_ranges(tmp_path):
    space = made.Space()
    line = space.plane("/host:CPU").line(1, "python")
    for number in range(3):
        line.event(
            "load",
            9 * number * made.US,
            made.US,
            batch=number // 2,
            file=made.Ref("a\n.txt"),
            _src="x",
        )
    line.event("bare", 99 * made.US, made.US)
    ranges = importers.load(space.write(tmp_path / "g.xplane.pb")).ranges
    assert [json.loads(text) if text else {} for text in ranges.json] == [
        *({"batch": number // 2, "file": "a\n.txt"} for number in range(3)),
        {},
    ]
    assert importers.load(tmp_path / "g.xplane.pb", details=False).ranges.json.tolist() == [""] * 4


def test_devices_that_are_not_read_are_said(tmp_path):
    space = made.Space()
    space.plane("/host:CPU").line(1, "python").event("f", 0, made.US)
    space.plane("/device:TPU:0").line(1, "XLA Ops").event("fusion", 0, made.US)
    [facts] = importers.load(space.write(tmp_path / "g.xplane.pb")).facts
    assert facts.beside == {UNREAD: 1}
    assert "the 1 events of other devices are not read" in facts.warnings[0]


def test_lines_of_one_number_are_one_thread(tmp_path):
    """Calls of the driver may be on a line of their own, with the number of the thread that made them."""
    space = made.Space()
    plane = space.plane("/host:CPU")
    plane.line(7, "python").event("f", 0, 9 * made.US)
    plane.line(7, "Host Threads/7").event("cuLaunchKernel", made.US, made.US, correlation_id=1)
    plane.line(2**63 - 1, "pool/9223372036854775807").event("g", 0, made.US)
    capture = importers.load(space.write(tmp_path / "g.xplane.pb"))
    assert capture.launches.thread.tolist() == [7]
    assert sorted(capture.threads.thread.tolist()) == [7, (1 << 24) - 3]
    assert capture.threads.name.tolist() == ["python", "pool"]
