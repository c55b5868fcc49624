"""Names of kernels: the texts that records point to, and as nsys writes them, mangled, demangled, and short."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

ANONYMOUS = "(anonymous namespace)"
SETTLE_S = 1.0  # within which what was unloaded is gone, and other texts are at its addresses
PIECE = 1024  # bytes that are read at once


class Texts:
    """The texts that records point to.

    The name of a kernel belongs to its module: when that has been unloaded, another name may be at its address. The
    other one gets a number, which is smaller than any address, and its records have the number instead of the pointer.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # by address, as read last
        self._fresh: set[int] = set()  # addresses that were read after the last unloading
        self._unloaded_at, self._settles = 0, 0.0
        self._numbers: dict[str, int] = {}
        # By address: the id before, CUPTI's time of the change, the id since then.
        self._changes: dict[int, tuple[int, int, int]] = {}

    def take(self, rows: np.ndarray, unloaded_at: int) -> dict[int, str]:
        """Replace pointers to other texts in records; return the texts that are new, by pointer or number.

        ``unloaded_at`` is CUPTI's time of the last unloading of a module.
        """
        now = time.monotonic()
        if unloaded_at != self._unloaded_at:
            self._unloaded_at, self._settles = unloaded_at, now + SETTLE_S
            self._fresh.clear()
        pointers = set(rows["name"].tolist())
        new: dict[int, str] = {}
        for pointer, text in texts_at(pointers - self._fresh - {0}).items():
            before = self._texts.get(pointer)
            if text != before:
                self._texts[pointer] = text
                new |= {pointer: text} if before is None else self._changed(pointer, text)
        if now >= self._settles:
            self._fresh |= pointers
        for pointer in pointers & self._changes.keys():
            before_id, since, number = self._changes[pointer]
            here = rows["name"] == pointer
            rows["name"][here] = before_id
            rows["name"][here & (rows["start"] >= since)] = number
        return new

    def _changed(self, pointer: int, text: str) -> dict[int, str]:
        """Note that another text is at an address; return its number if it is new."""
        _, _, before_id = self._changes.get(pointer, (0, 0, pointer))
        is_new = text not in self._numbers
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        self._changes[pointer] = before_id, self._unloaded_at, number
        return {number: text} if is_new else {}


def texts_at(addresses: set[int]) -> dict[int, str]:
    """Return the texts at addresses; those where nothing is any more are left out.

    Memory is read as a file, for an access to what an unloaded module has left would end the program.
    """
    if not addresses:
        return {}
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            texts = {address: _bytes_at(memory.fileno(), address) for address in addresses}
    except OSError:  # a process that may not be inspected
        texts = {address: ctypes.string_at(address) for address in addresses}
    return {address: text.decode(errors="replace") for address, text in texts.items() if text}


def _bytes_at(memory: int, address: int) -> bytes:
    text = b""
    with suppress(OSError, OverflowError):
        while b"\0" not in text and (piece := os.pread(memory, PIECE, address + len(text))):
            text += piece
    return text.partition(b"\0")[0]


class KernelName(NamedTuple):
    """The three forms of a kernel's name."""

    short: str
    full: str
    mangled: str


def kernel_name(mangled: str) -> KernelName:
    """Return the forms of a name; a name that is not of C++ is all three."""
    full = demangle(mangled)
    return KernelName(short_name(full), full, mangled)


def demangle(name: str) -> str:
    """Return a C++ name in plain text, by the C++ library that CUDA programs load anyway."""
    convert = _demangler()
    return name if convert is None or not name.startswith("_Z") else convert(name)


@cache
def _demangler() -> Callable[[str], str] | None:
    try:
        function = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]

    def convert(name: str) -> str:
        status = ctypes.c_int()
        text = function(name.encode(), None, None, ctypes.byref(status))
        if status.value or not text:
            return name
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            libc.free(text)

    return convert


def short_name(full: str) -> str:
    """Return a name without result, namespaces, template arguments and parameters."""
    depth, plain = 0, []
    for letter in full.replace(ANONYMOUS, ""):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0:
            if letter == "(":
                break
            plain.append(letter)
    return "".join(plain).rpartition("::")[2].rpartition(" ")[2] or full
