"""The data file of GPUs that comes with the package, files of the user's own, and who is found in them how.

A device that no file lists is computed: multiprocessors × clock × what one does per clock at its compute capability.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

# -- A GPU as a data sheet has it, and what it can do at most


DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
TENSOR = {"fp64": "fp64_tensor"}  # the faster of two ways to compute in one dtype


@dataclass(frozen=True)
class Peaks:
    """TFLOP/s (10**12 per second) by dtype, GB/s (10**9), and where they are from; a bandwidth of 0 is not known."""

    tflops: Mapping[str, float] = field(default_factory=dict)
    gb_per_s: float = 0.0
    source: str = ""

    def of(self, dtype: str) -> float | None:
        """Return the most TFLOP/s in a dtype (of `DTYPES`), by Tensor Cores where they can; None if not known."""
        return self.tflops.get(TENSOR.get(dtype, dtype), self.tflops.get(dtype))


@dataclass(frozen=True)
class Gpu:
    """One entry of a data file; ``names`` may hold ``*``, and stand without "NVIDIA "."""

    names: tuple[str, ...]
    peaks: Peaks
    sms: int = 0
    clock_mhz: float = 0.0

    def is_called(self, name: str) -> bool:
        """Tell whether this is the GPU of that name."""
        own = name.removeprefix("NVIDIA ").strip()
        return any(fnmatchcase(own, pattern.removeprefix("NVIDIA ")) for pattern in self.names)


# -- The data file of GPUs that comes with the package, files of the user's own, and who is found in them how


OWN_FILE = "BRIDGE_GPUS"  # an environment variable: a file that comes before the built-in one
PER_MULTIPLY_ADD = 2
TERA, GIGA = 1e12, 1e9
ENTRIES = {"gpu", "capability"}
OF_GPU = {"names", "tflops", "gb_per_s", "sms", "clock_mhz", "source"}


@dataclass(frozen=True)
class Catalogue:
    """GPUs, the first that fits counts; and multiply-adds per clock and multiprocessor by compute capability."""

    gpus: tuple[Gpu, ...] = ()
    capabilities: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __add__(self, other: Catalogue) -> Catalogue:
        """Return both, this one first."""
        return Catalogue(self.gpus + other.gpus, {**other.capabilities, **self.capabilities})

    def find(self, name: str) -> Gpu | None:
        """Return the GPU of this name, None if it is not listed."""
        return next((gpu for gpu in self.gpus if gpu.is_called(name)), None)

    def peaks(self, name: str, facts: Mapping[str, int]) -> Peaks:
        """Return what a device can do at most; facts as in the frame `devices`, -1 for what is not known.

        A bandwidth that the report recorded fills in for one that is not listed.
        """
        listed = self.find(name)
        recorded = max(0, facts.get("memory_bandwidth", 0)) / GIGA
        if listed is not None:
            own = listed.peaks
            return Peaks(own.tflops, own.gb_per_s or recorded, own.source)
        return Peaks(self._computed(facts), recorded, "computed from the device's properties")

    def _computed(self, facts: Mapping[str, int]) -> dict[str, float]:
        compute = f"{facts.get('compute_major', -1)}.{facts.get('compute_minor', -1)}"
        speed = facts.get("sm_count", -1) * facts.get("clock_hz", -1)
        if facts.get("sm_count", -1) <= 0 or speed <= 0:
            return {}
        each = self.capabilities.get(compute, {})
        return {dtype: PER_MULTIPLY_ADD * many * speed / TERA for dtype, many in each.items()}


@cache
def catalogue() -> Catalogue:
    """Return the built-in file's GPUs, after those of $BRIDGE_GPUS. Raises ValueError for a bad file."""
    built_in = _parsed(
        files("bridge.knowledge.hardware").joinpath("gpus.toml").read_text(encoding="utf-8"),
        "gpus.toml",
    )
    own = os.environ.get(OWN_FILE)
    return read(Path(own)) + built_in if own else built_in


def read(path: Path) -> Catalogue:
    """Read a file of GPUs; raise ValueError, in a line for the user, for one that cannot be read or says it wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise ValueError(f"{path}: {reason}") from error
    return _parsed(text, str(path))


def _parsed(text: str, where: str) -> Catalogue:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from error
    if unknown := set(found) - ENTRIES:
        raise ValueError(f"{where}: no entry {min(unknown)!r}: [[gpu]] or [[capability]]")
    gpus = tuple(_gpu(entry, where) for entry in _entries(found, "gpu", where))
    listed = _entries(found, "capability", where)
    each = {
        str(entry.get("compute")): _numbers(entry.get("multiply_adds"), where) for entry in listed
    }
    return Catalogue(gpus, each)


def _entries(found: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = found.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise ValueError(f"{where}: {key} is a list of tables: [[{key}]]")
    return entries


def _gpu(entry: Mapping[str, Any], where: str) -> Gpu:
    names = entry.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{where}: a [[gpu]] needs names, a list of texts")
    where = f"{where}: {names[0]}"
    if unknown := set(entry) - OF_GPU:
        raise ValueError(f"{where}: no key {min(unknown)!r}: one of {', '.join(sorted(OF_GPU))}")
    single = {key: entry.get(key, 0) for key in ("gb_per_s", "sms", "clock_mhz")}
    for key, value in single.items():
        _positive(key, value, where, least=0)
    tflops = _numbers(entry.get("tflops", {}), where)
    peaks = Peaks(tflops, float(single["gb_per_s"]), str(entry.get("source", where)))
    return Gpu(tuple(names), peaks, int(single["sms"]), float(single["clock_mhz"]))


def _numbers(table: Any, where: str) -> dict[str, float]:
    """Return a number by dtype."""
    if not isinstance(table, dict):
        raise ValueError(  # noqa: TRY004 (it is the file that is wrong)
            f"{where}: a table by dtype is wanted, not {table!r}"
        )
    for dtype, value in table.items():
        if dtype not in DTYPES:
            raise ValueError(f"{where}: no dtype {dtype!r}: one of {', '.join(DTYPES)}")
        _positive(dtype, value, where, least=1e-9)
    return {dtype: float(value) for dtype, value in table.items()}


def _positive(key: str, value: Any, where: str, least: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value < float("inf"):
        raise ValueError(f"{where}: {key} is a positive number, not {value!r}")
