"""A program traced by JAX on the CPU, read by bridge and by JAX's own reader of profiles."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import made_xplane as made  # noqa: E402
import traced_by_jax  # noqa: E402

import bridge  # noqa: E402
from bridge import importers  # noqa: E402
from bridge.join.grammar import parse  # noqa: E402

pytestmark = pytest.mark.slow


def newest(folder):
    [path] = Path(folder).glob("plugins/profile/*/*.xplane.pb")
    return path


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Trace the program in a process of its own."""
    folder = tmp_path_factory.mktemp("traced")
    subprocess.run(
        [sys.executable, traced_by_jax.__file__, str(folder)], check=True, capture_output=True
    )
    return newest(folder)


def witness(path, plane_name):
    """Yield line, name, start, end and stats of events, as JAX's reader tells them."""
    profile = jax.profiler.ProfileData.from_file(str(path))
    for plane in profile.planes:
        if plane.name == plane_name:
            for line in plane.lines:
                for event in line.events:
                    yield line.name, event.name, event.start_ns, event.end_ns, dict(event.stats)


def sums(rows):
    result = defaultdict(lambda: [0, 0])
    for op, start, end in rows:
        result[op][0] += 1
        result[op][1] += round(end - start)
    return {op: tuple(values) for op, values in result.items()}


def of_witness(path):
    """Sum what JAX's reader tells by the op that each event is called."""
    for _, name, start, end, stats in witness(path, "/host:CPU"):
        if name.startswith(("$", "end: ")) or (start == end and "hlo_op" not in stats):
            continue
        yield f"{stats['hlo_module']}:{name}" if "hlo_op" in stats else name, start, end


def test_ops_as_jaxs_own_reader_has_them(traced):
    """Calls and times of every op are equal; JAX's clock of the host has whole ns."""
    table = bridge.load(traced).by("op", columns=("op", "calls", "cpu_total_ns"))
    found = {
        op: (calls, ns)
        for op, calls, ns in table.itertuples(index=False)
        if parse(op).kind != "module"
    }
    expected = sums(of_witness(traced))
    assert {op: calls for op, (calls, _) in found.items()} == {
        op: calls for op, (calls, _) in expected.items()
    }
    nested = {
        op for op in expected if op.startswith("PjitFunction")
    }  # JAX nests two events of one name
    assert {op: v for op, v in found.items() if op not in nested} == {
        op: v for op, v in expected.items() if op not in nested
    }
    assert (
        sum(calls for op, (calls, _) in found.items() if op.startswith("jit_train_step:"))
        >= 4 * traced_by_jax.STEPS
    )


def test_steps_and_modules_of_the_program(traced):
    report = bridge.load(traced)
    assert report.by("step")["step"].tolist() == [*range(traced_by_jax.STEPS)]
    modules = set(report.by("module")["module"])
    assert {"net", "net.layer0", "net.layer1", "net.layer2"} <= modules
    loops = report.by("op").set_index("op")["calls"]
    assert loops[[op for op in loops.index if op.startswith("jit_smooth:while")]].tolist() == [1]
    assert (
        traced_by_jax.TURNS
        in loops[
            [op for op in loops.index if op.startswith("jit_smooth:") and "sine" in op]
        ].tolist()
    )


def test_functions_of_python(traced):
    python = importers.load(traced).ranges
    python = python.take(python.domain == 1)
    expected = sums(
        (n[1:], s, e) for _, n, s, e, _ in witness(traced, "/host:CPU") if n.startswith("$")
    )
    rows = zip(python.name, python.start.tolist(), python.end.tolist(), strict=True)
    assert sums(rows) == expected


def test_work_of_a_gpu_as_jaxs_own_reader_has_it(tmp_path):
    """No GPU: JAX's reader is given the made profile."""
    path = made.gpu_profile().write(tmp_path / "g.xplane.pb")
    expected = sums(
        (name, start, end)
        for line, name, start, end, _ in witness(path, "/device:GPU:1")
        if line.startswith("Stream") and "fusion" in name
    )
    work = importers.load(path).activities
    work = work.take(work.full_name.matching(lambda name: "fusion" in name))
    found = sums(zip(work.full_name, work.start.tolist(), work.end.tolist(), strict=True))
    assert {n: c for n, (c, _) in found.items()} == {n: c for n, (c, _) in expected.items()}
    assert all(
        abs(found[n][1] - expected[n][1]) <= found[n][0] for n in found
    )  # JAX's reader cuts to ns itself


def test_ranges_of_bridge_and_of_jax_in_one_program(tmp_path):
    """What `bridge.jax` names for NVTX is no event of JAX; JAX itself has one for each call of a jitted function."""
    import bridge.jax

    @jax.jit
    def doubled(x):
        return x * 2

    doubled(1.0).block_until_ready()
    with jax.profiler.trace(str(tmp_path)), bridge.jax.annotate():
        for _ in range(3):
            doubled(1.0).block_until_ready()
    names = set(importers.load(newest(tmp_path)).ranges.name)
    assert "PjitFunction(doubled)" in names
    assert not any(name.startswith(("jit:", "jax::")) for name in names)
