"""Peak rates of GPUs: from data sheets (gpus.toml and files of the user), or computed.

The peaks of other GPUs are computed: multiprocessors × clock × operations per clock at their
compute capability.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from bridge.knowledge.package import data_file
from bridge.knowledge.suggestions import unknown_name

# -- GPUs


DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
FASTER_DTYPE = {"fp64": "fp64_tensor"}  # with Tensor Cores


@dataclass(frozen=True)
class Peaks:
    """TFLOP/s (10**12 per second) by dtype, GB/s (10**9, 0 if unknown), and their source."""

    tflops: Mapping[str, float] = field(default_factory=dict)
    gb_per_s: float = 0.0
    source: str = ""

    def of(self, dtype: str) -> float | None:
        """Return the peak TFLOP/s in a dtype, with Tensor Cores if possible; None if unknown."""
        return self.tflops.get(FASTER_DTYPE.get(dtype, dtype), self.tflops.get(dtype))


@dataclass(frozen=True)
class Gpu:
    """An entry of a data file; ``names`` may contain ``*`` and omit "NVIDIA ".

    ``link_gb_per_s`` is the bandwidth to other GPUs in one direction, 0 if unknown.
    """

    names: tuple[str, ...]
    peaks: Peaks
    sms: int = 0
    clock_mhz: float = 0.0
    link_gb_per_s: float = 0.0

    def is_called(self, name: str) -> bool:
        short_name = name.removeprefix("NVIDIA ").strip()
        return any(
            fnmatchcase(short_name, pattern.removeprefix("NVIDIA ")) for pattern in self.names
        )


# -- Data files


USER_FILE_VARIABLE = "BRIDGE_GPUS"  # an environment variable: a file that precedes the built-in one
FLOP_PER_MULTIPLY_ADD = 2
TERA, GIGA = 1e12, 1e9
TABLES = {"gpu", "capability"}
NUMBER_KEYS = ("gb_per_s", "sms", "clock_mhz", "link_gb_per_s")
GPU_KEYS = {"names", "tflops", "source", *NUMBER_KEYS}


@dataclass(frozen=True)
class Catalogue:
    """GPUs, of which the first match counts, and rates by compute capability.

    Rates are multiply-adds per clock and multiprocessor.
    """

    gpus: tuple[Gpu, ...] = ()
    capabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __add__(self, other: Catalogue) -> Catalogue:
        """Return both catalogues as one; this one takes precedence."""
        return Catalogue(self.gpus + other.gpus, {**other.capabilities, **self.capabilities})

    def find(self, name: str) -> Gpu | None:
        """Return the GPU with this name, None if it is not listed."""
        return next((gpu for gpu in self.gpus if gpu.is_called(name)), None)

    def link_gb_per_s(self, name: str) -> float:
        """Return the bandwidth of a GPU's link to others in one direction, 0 if it is not listed."""
        listed = self.find(name)
        return listed.link_gb_per_s if listed else 0.0

    def peaks(self, name: str, facts: Mapping[str, int]) -> Peaks:
        """Return the peaks of a device; ``facts`` are of the frame `devices`, -1 for unknown ones.

        A recorded bandwidth replaces one that is not listed.
        """
        listed = self.find(name)
        recorded = max(0, facts.get("memory_bandwidth", 0)) / GIGA
        if listed is not None:
            peaks = listed.peaks
            return Peaks(peaks.tflops, peaks.gb_per_s or recorded, peaks.source)
        return Peaks(self._computed(facts), recorded, "computed from the device's properties")

    def _computed(self, facts: Mapping[str, int]) -> dict[str, float]:
        compute = f"{facts.get('compute_major', -1)}.{facts.get('compute_minor', -1)}"
        speed = facts.get("sm_count", -1) * facts.get("clock_hz", -1)
        if facts.get("sm_count", -1) <= 0 or speed <= 0:
            return {}
        rates = self.capabilities.get(compute, {})
        return {dtype: FLOP_PER_MULTIPLY_ADD * rate * speed / TERA for dtype, rate in rates.items()}


@cache
def catalogue() -> Catalogue:
    """Return the built-in GPUs, after those of $BRIDGE_GPUS. Raises ValueError for a bad file."""
    built_in = _parse(
        data_file("bridge.knowledge.hardware", "gpus.toml"),
        "gpus.toml",
    )
    user_file = os.environ.get(USER_FILE_VARIABLE)
    return read(Path(user_file)) + built_in if user_file else built_in


def read(path: Path) -> Catalogue:
    """Read a file of GPUs; raises ValueError with a message for the user if it is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise ValueError(f"{path}: {reason}") from error
    return _parse(text, str(path))


def _parse(text: str, where: str) -> Catalogue:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from error
    if unknown := set(values) - TABLES:
        raise ValueError(f"{where}: no entry {min(unknown)!r}: [[gpu]] or [[capability]]")
    gpus = tuple(_gpu(entry, where) for entry in _entries(values, "gpu", where))
    capabilities = _entries(values, "capability", where)
    rates = {
        str(entry.get("compute")): _numbers(entry.get("multiply_adds"), where)
        for entry in capabilities
    }
    return Catalogue(gpus, rates)


def _entries(result: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = result.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{where}: {key} is a list of tables: [[{key}]]")
    return entries


def _gpu(entry: Mapping[str, Any], where: str) -> Gpu:
    names = entry.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: a [[gpu]] needs names, a list of texts")
    where = f"{where}: {names[0]}"
    if unknown := set(entry) - GPU_KEYS:
        raise ValueError(f"{where}: {unknown_name('key', min(unknown), sorted(GPU_KEYS))}")
    numbers = {key: entry.get(key, 0) for key in NUMBER_KEYS}
    for key, value in numbers.items():
        _check_positive(key, value, where, minimum=0)
    tflops = _numbers(entry.get("tflops", {}), where)
    peaks = Peaks(tflops, float(numbers["gb_per_s"]), str(entry.get("source", where)))
    return Gpu(
        names=tuple(names),
        peaks=peaks,
        sms=int(numbers["sms"]),
        clock_mhz=float(numbers["clock_mhz"]),
        link_gb_per_s=float(numbers["link_gb_per_s"]),
    )


def _numbers(table: Any, where: str) -> dict[str, float]:
    """Return a number by dtype."""
    if not isinstance(table, dict):
        raise ValueError(  # noqa: TRY004 - an error of the file
            f"{where}: a table by dtype is needed, not {table!r}"
        )
    for dtype, value in table.items():
        if dtype not in DTYPES:
            raise ValueError(f"{where}: {unknown_name('dtype', dtype, DTYPES)}")
        _check_positive(dtype, value, where, minimum=1e-9)
    return {dtype: float(value) for dtype, value in table.items()}


def _check_positive(key: str, value: Any, where: str, minimum: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not minimum <= value < float("inf"):
        raise ValueError(f"{where}: {key} is a positive number, not {value!r}")


__all__ = ["DTYPES", "Catalogue", "Gpu", "Peaks", "catalogue", "read"]
