"""Names of kernels as nsys writes them: mangled, demangled, and short."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

ANONYMOUS = "(anonymous namespace)"


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
