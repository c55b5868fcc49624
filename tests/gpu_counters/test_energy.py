"""The energy of activities, against a definition in plain loops over every nanosecond."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import bridge as run
from hypothesis import given
from hypothesis import strategies as st
from join.plain_writer import write

import bridge
from bridge.analyze.cost.counters.energy import energies, energy_columns
from bridge.importers import frames
from gpu_counters.made import made, tables

COPY, KERNEL = 1, 0
SPAN = st.tuples(st.integers(-5, 30), st.integers(0, 12))
ROW = st.tuples(SPAN, st.sampled_from([KERNEL, COPY]), st.integers(0, 2))  # when, what, device
SAMPLES = st.lists(st.tuples(st.integers(-8, 40), st.integers(0, 30)), max_size=6)


def column(rows: Any) -> np.ndarray:
    return np.array([*rows], np.int64)


def attributed_with(rows: list[Any], samples: dict[str, list[tuple[int, int]]]) -> Any:
    """Return a capture of activities on devices 0 to 2, which are GPUs 5, 6 and unknown, and these marks."""
    start, device = column(r[0][0] for r in rows), column(r[2] for r in rows)
    kinds = frames.Names(column(r[1] for r in rows), frames.ACTIVITY_KINDS)
    columns = {"start": start, "process": device * 0, "device": device, "kind": kinds}
    of = {
        "process": column([0, 0, 0]),
        "device": column([0, 1, 2]),
        "gpu": column([5, 6, -1]),
        "name": frames.Names.of(["A", "B", "C"]),
    }
    marks = [(t, name, value) for name, points in samples.items() for t, value in points]
    written = frames.Marks(
        time=column(m[0] for m in marks),
        name=frames.Names.of([m[1] for m in marks]),
        payload=column(m[2] for m in marks),
        domain_name=frames.Names.of(["power"] * len(marks)),
    )
    capture = SimpleNamespace(
        activities=frames.Activities(columns),
        devices=frames.Devices(of),
        marks=written,
        source=("r.sqlite",),
    )
    end = start + column(r[0][1] for r in rows)
    return SimpleNamespace(capture=capture, end=end, results={})


def rising(samples: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return samples whose energy does not fall, one per time."""
    times = sorted({t for t, _ in samples})
    return [*zip(times, sorted(e for _, e in samples), strict=False)]


def power(samples: list[tuple[int, int]]) -> dict[int, Fraction]:
    """Return the energy of each nanosecond between the samples."""
    return {t: Fraction(f - e, b - a) for (a, e), (b, f) in pairwise(samples) for t in range(a, b)}


@given(st.lists(ROW, max_size=8), SAMPLES, SAMPLES)
def test_energy_is_divided_among_what_runs(rows: list[Any], one: Any, two: Any) -> None:
    of_gpu = {5: rising(one), 6: rising(two)}
    marks = {f"counter:GPU {gpu} energy (mJ)": samples for gpu, samples in of_gpu.items()}
    attributed = attributed_with(rows, marks | {"counter:GPU 5 power": [(0, 7), (9, 9)]})
    expected: list[Fraction | None] = [None] * len(rows)
    for device, samples in enumerate(of_gpu.values()):
        if len(samples) > 1:
            first, last = samples[0][0], samples[-1][0]
            for n, ((a, length), _, on) in enumerate(rows):
                if on == device and a < last and a + length > first:
                    expected[n] = Fraction(0)
        for t, energy in power(samples).items():
            running = [
                n
                for n, ((a, length), _, on) in enumerate(rows)
                if on == device and a <= t < a + length
            ]
            kernels = [n for n in running if rows[n][1] == KERNEL]
            for n in kernels or running:
                expected[n] = (expected[n] or 0) + energy / len(kernels or running)
    found = energies(attributed).tolist()
    assert [np.isnan(e) for e in found] == [e is None for e in expected]
    known = [(a, b) for a, b in zip(found, expected, strict=True) if b is not None]
    assert [a for a, _ in known] == pytest.approx([float(b) for _, b in known], abs=1e-9)
    total = sum(samples[-1][1] - samples[0][1] for samples in of_gpu.values() if samples)
    assert sum(a for a, _ in known) <= total + 1e-9
    group = column(n % 2 for n in range(len(rows)))
    columns = energy_columns(attributed, np.arange(len(rows)), group, 2)
    for number in range(2):
        of_group = [e for e in expected[number::2] if e is not None]
        wanted = float(sum(of_group)) / 1000 if of_group else -1
        assert columns["energy_j"][number] == pytest.approx(wanted, abs=1e-9)


def test_the_energy_of_ops_of_a_report(tmp_path: Path) -> None:
    path = made(tmp_path / "r.sqlite")
    ops = bridge.load(path).by("op", columns="energy").set_index("op")["energy_j"]
    watts = (2 * 300 + 2 * 600) / 1e6  # J of a µs in each of four steps
    assert ops["matmul"] == pytest.approx(300 * watts)
    assert ops["load"] == pytest.approx(65 * watts)
    assert ops["step"] == -1
    shown = run("report", path, "--by", "kernel", "--columns", "total,energy_j")
    assert "energy (J)" in shown.stdout


def test_a_report_without_samples_of_energy_says_how_to_record_them(tmp_path: Path) -> None:
    path = write(tmp_path / "r.sqlite", tables({}))
    result = run("report", path, "--columns", "energy_j")
    assert result.exit_code != 0
    assert "bridge.power.start()" in result.stderr
