"""libcupti: where it is, and its calls through ctypes.

It comes with PyTorch's wheels, with nvidia-cuda-cupti and with every CUDA toolkit. cupti-python is not used: it makes a
Python object of every record inside CUPTI's callback, and is tied to one minor version.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.capture.tool import CaptureError

VARIABLE = "BRIDGE_LIBCUPTI"
OLDEST = 18  # CUPTI_API_VERSION of CUDA 12.0: the layouts of `records` begin there
NEW_NUMBERS = 130000  # from CUDA 13.0 on: major x 10000 + minor x 100 + patch
OLD_NUMBERS = {
    18: "12.0",
    20: "12.2",
    21: "12.3",
    22: "12.4",
    23: "12.5",
    24: "12.6",
    26: "12.8",
    28: "12.9",
}

# CUptiResult
MULTIPLE_SUBSCRIBERS, INSUFFICIENT_PRIVILEGES, VIRTUAL_INSUFFICIENT_PRIVILEGES = 39, 35, 40
NOT_INITIALIZED, UNKNOWN = 15, 999  # what it says on a machine without a CUDA driver
REMEDIES = {
    MULTIPLE_SUBSCRIBERS: "another profiler uses CUPTI in this process, such as nsys or torch.profiler: stop it first",
    INSUFFICIENT_PRIVILEGES: "the driver allows profiling only to root: load the kernel module nvidia with"
    " NVreg_RestrictProfilingToAdminUsers=0",
    VIRTUAL_INSUFFICIENT_PRIVILEGES: "the hypervisor forbids profiling of this virtual GPU",
    NOT_INITIALIZED: "there is no CUDA driver on this machine",
    UNKNOWN: "does this machine have a CUDA driver?",
}

RequestBuffer = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
BufferCompleted = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class CuptiError(CaptureError):
    """CUPTI refused a call; ``status`` is its CUptiResult."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Library:
    """The loaded libcupti.

    Raises CaptureError if it cannot be loaded or is older than that of CUDA 12.0.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path or find_library()
        if self.path is None:
            raise CaptureError(
                "libcupti was not found: pip install nvidia-cuda-cupti, install a CUDA toolkit, or set"
                f" {VARIABLE} to its path"
            )
        try:
            # CDLL releases the GIL during a call, in which CUPTI may call back.
            self.functions = ctypes.CDLL(self.path)
        except OSError as error:
            raise CaptureError(f"{self.path} cannot be loaded: {error}") from error
        number = ctypes.c_uint32()
        self.call("cuptiGetVersion", ctypes.byref(number))
        self.api_version = number.value
        if self.api_version < OLDEST:
            raise CaptureError(
                f"{self.path} is older than CUDA 12.0 (CUPTI API version {self.api_version})"
            )

    @property
    def version(self) -> str:
        """The CUDA version that this libcupti belongs to, as 13.0."""
        if self.api_version >= NEW_NUMBERS:
            return f"{self.api_version // 10000}.{self.api_version // 100 % 100}"
        known = max(
            (number for number in OLD_NUMBERS if number <= self.api_version), default=OLDEST
        )
        return OLD_NUMBERS[known]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises CuptiError with CUPTI's text and what to do about it."""
        status = getattr(self.functions, name)(*arguments)
        if status:
            remedy = REMEDIES.get(status)
            text = f"{name} failed: {self.result_text(status)} ({status})"
            raise CuptiError(f"{text}: {remedy}" if remedy else text, status)

    def result_text(self, status: int) -> str:
        """Return CUPTI's name of a status."""
        text = ctypes.c_char_p()
        self.functions.cuptiGetResultString(status, ctypes.byref(text))
        return (text.value or b"unknown").decode()

    def timestamp(self) -> int:
        """Return CUPTI's time, ns."""
        time = ctypes.c_uint64()
        self.call("cuptiGetTimestamp", ctypes.byref(time))
        return time.value

    def call_name(self, domain: int, number: int) -> str:
        """Return the name of a CUDA function, such as cudaLaunchKernel_v7000; "" for an unknown one."""
        name = ctypes.c_char_p()
        status = self.functions.cuptiGetCallbackName(
            domain, ctypes.c_uint32(number), ctypes.byref(name)
        )
        return "" if status else (name.value or b"").decode()

    def graph_node(self, node: int | None) -> int:
        """Return the id of a node of a CUDA graph, 0 if CUPTI does not know it."""
        number = ctypes.c_uint64()
        self.functions.cuptiGetGraphNodeId(ctypes.c_void_p(node), ctypes.byref(number))
        return number.value


def find_library() -> str | None:
    """Return the path of the libcupti to use, None if there is none.

    That is `BRIDGE_LIBCUPTI`, else the one that is loaded, else that of the wheels, else that of the newest toolkit.
    Two copies in one process would refuse each other, so the one that PyTorch loads comes before the toolkit's.
    """
    return os.environ.get(VARIABLE) or next(_candidates(), None)


def _candidates() -> Iterator[str]:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    yield from (line.split(maxsplit=5)[5] for line in maps if "/libcupti.so" in line)
    for pattern in ("nvidia/cu1*/lib/libcupti.so.1*", "nvidia/cuda_cupti/lib/libcupti.so.1*"):
        for folder in filter(None, sys.path):
            yield from _newest(Path(folder).glob(pattern))
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    toolkits = [Path(home)] if home else []
    toolkits += sorted(Path("/usr/local").glob("cuda*"), key=_version, reverse=True)
    for toolkit in toolkits:
        for place in ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"):
            yield from _newest((toolkit / place).glob("libcupti.so*"))


def _newest(paths: Any) -> list[str]:
    return [str(path) for path in sorted(paths, key=_version, reverse=True)]


def _version(path: Path) -> list[int]:
    return [int(word) for word in path.name.replace("-", ".").split(".") if word.isdecimal()]
