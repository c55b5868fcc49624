"""Sampling of energy, with a stand-in for NVML."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge import importers
from bridge.annotate import power

HERE = Path(__file__).parent


class FakeNvml:
    """NVML with GPUs 0 and 2, which take 7 mJ from one look to the next."""

    def __init__(self) -> None:
        self.energy, self.closed = 0, False

    def energies(self) -> list[tuple[int, int]]:
        self.energy += 7
        return [(0, self.energy), (2, 100 + self.energy)]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    power.stop()


def recorded(path: Path, **options: Any) -> dict[str, list[int]]:
    """Return the samples that a session records, by the name of the counter."""
    with bridge.profile(path=path):
        bridge.power.start(**options)
        with bridge.nvtx_op("work"):
            time.sleep(0.01)
        bridge.power.stop()
    marks = importers.load(path).marks
    assert set(marks["domain_name"]) == {"power"}
    return {name: marks.payload[marks.name == name].tolist() for name in marks.name.used}


def test_a_session_records_the_energy_of_each_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml()
    monkeypatch.setattr(power, "Nvml", lambda: fake)
    samples = recorded(tmp_path / "run.jsonl", interval_s=0.002)
    assert list(samples) == ["counter:GPU 0 energy (mJ)", "counter:GPU 2 energy (mJ)"]
    first, second = samples.values()
    assert first == [7 * n for n in range(2, len(first) + 2)]  # it is asked once before
    assert second == [100 + energy for energy in first]
    assert len(first) >= 2
    assert fake.closed


def test_without_nvml_it_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(power, "LIBRARY", "libnone-of-this-name.so.9")
    monkeypatch.setattr(power, "warn", said.append)
    bridge.power.start()
    bridge.power.stop()
    assert said == [
        "power is not sampled: no libnone-of-this-name.so.9, which comes with the driver"
    ]


def test_a_failure_ends_the_sampling_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    fake = FakeNvml()
    answers = iter([[(0, 5)]])
    monkeypatch.setattr(fake, "energies", lambda: next(answers, None) or 1 // 0)
    monkeypatch.setattr(power, "Nvml", lambda: fake)
    monkeypatch.setattr(power, "warn", said.append)
    with bridge.profile(path=tmp_path / "run.jsonl"):
        bridge.power.start(0.001)
        bridge.power.stop()
    assert said == ["power is no longer sampled: integer division or modulo by zero"]


def test_gpus_without_the_counter_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    fake = FakeNvml()
    monkeypatch.setattr(fake, "energies", list)
    monkeypatch.setattr(power, "Nvml", lambda: fake)
    monkeypatch.setattr(power, "warn", said.append)
    bridge.power.start()
    bridge.power.stop()
    assert said == ["power is not sampled: no GPU counts its energy; those from Volta on do"]


@pytest.mark.parametrize("interval", [0, -1, True, float("nan")])
def test_an_interval_is_a_time(interval: Any) -> None:
    with pytest.raises(ValueError, match="interval_s"):
        bridge.power.start(interval)


@pytest.mark.slow
def test_the_calls_of_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    library = tmp_path / "libfake.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, HERE / "fake_nvml.c"], check=True, timeout=60
    )
    monkeypatch.setattr(power, "LIBRARY", str(library))
    nvml = power.Nvml()
    assert nvml.energies() == [(0, 1005)]
    assert nvml.energies() == [(0, 1010)]
    nvml.close()
    assert list(recorded(tmp_path / "run.jsonl")) == ["counter:GPU 0 energy (mJ)"]
