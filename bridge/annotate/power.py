"""Samples of the energy that GPUs take, by NVIDIA's management library (NVML).

A thread asks for the energy counter of every GPU of the machine, and records it as a counter, which
reports of nsys and recordings hold. docs/counters.md says what tables make of it.

    bridge.power.start()    # every 50 ms, of all GPUs of the machine
    …
    bridge.power.stop()
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from threading import Event, Thread

from bridge.annotate.emit import current, state
from bridge.annotate.emitter import EXIT_S, warn
from bridge.annotate.instant import counter

__all__ = ["start", "stop"]  # of `bridge.power`

LIBRARY = "libnvidia-ml.so.1"
DOMAIN = "power"
INTERVAL_S = 0.05
MIN_INTERVAL_S = 0.001


NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED


class NvmlError(Exception):
    """NVML is not there, or a call of it failed with ``status``."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Nvml:
    """The calls of NVML that power needs; GPUs have the numbers of nvidia-smi."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NvmlError(f"no {LIBRARY}, which comes with the driver") from error
        self._call("nvmlInit_v2")
        self._handles = [*self._devices()]

    def energies(self) -> list[tuple[int, int]]:
        """Return (number, mJ since the driver was loaded) of each GPU that has the counter.

        Raises NvmlError if the call fails for another reason.
        """
        result = []
        for number, handle in self._handles:
            energy = ctypes.c_ulonglong()
            try:
                self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(energy))
            except NvmlError as problem:
                if problem.status != NOT_SUPPORTED:  # that is a GPU older than Volta
                    raise
                continue
            result.append((number, int(energy.value)))
        return result

    def close(self) -> None:
        self._call("nvmlShutdown")

    def _devices(self) -> Iterator[tuple[int, ctypes.c_void_p]]:
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for number in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
            yield number, handle

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name, None)
        status = -1 if function is None else function(*arguments)
        if status:
            raise NvmlError(f"{name} failed with {status}", status)


class _Sampling(Thread):
    """The thread that samples until it is told to stop."""

    def __init__(self, nvml: Nvml, interval_s: float) -> None:
        super().__init__(name="bridge power", daemon=True)
        self._nvml, self._interval_s = nvml, interval_s
        self._stopped = Event()

    def run(self) -> None:
        try:
            while True:
                record(self._nvml)
                if self._stopped.wait(self._interval_s):
                    record(self._nvml)
                    break
            self._nvml.close()
        except Exception as problem:  # noqa: BLE001 - sampling must not make the program fail
            warn(f"power is no longer sampled: {problem}")

    def stop(self) -> None:
        """Take the last sample, and end."""
        self._stopped.set()
        self.join(EXIT_S)


_running: list[_Sampling] = []
os.register_at_fork(after_in_child=_running.clear)  # the thread belongs to the parent


def start(interval_s: float = INTERVAL_S) -> None:
    """Record the energy of all GPUs of the machine every ``interval_s`` seconds from now on.

    Without NVML it warns and does nothing. Raises ValueError for an interval under 1 ms.
    """
    if isinstance(interval_s, bool) or not interval_s >= MIN_INTERVAL_S:
        raise ValueError(f"interval_s is a time of {MIN_INTERVAL_S} s or more, not {interval_s!r}")
    stop()
    try:
        nvml = Nvml()
        has_counter = bool(nvml.energies())
    except NvmlError as problem:
        warn(f"power is not sampled: {problem}")
        return
    if not has_counter:
        warn("power is not sampled: no GPU counts its energy; those from Volta on do")
        return
    sampling = _Sampling(nvml, interval_s)
    _running.append(sampling)
    sampling.start()


def stop() -> None:
    """Take a last sample and stop sampling. Does nothing if sampling is off."""
    while _running:
        _running.pop().stop()


def record(nvml: Nvml) -> None:
    """Record a sample of each GPU, if anything records this process."""
    current()
    if state.idle:
        return
    for number, energy in nvml.energies():
        counter(f"GPU {number} energy (mJ)", energy, domain=DOMAIN)
