"""FLOPs of oneDNN's primitives, from the problem as its log describes it.

Problems are written as benchdnn takes them: ``mb4_ic3oc16_ih16oh16kh3sh1dh0ph1_iw16ow16kw3sw1dw0pw0`` of
convolutions (``g2`` for groups; ic and oc are of all groups), ``mb64ic768oc10`` of inner products,
``64x768:768x10`` of products of matrices. A multiply-add counts 2, as everywhere here; padding counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod

AXES = "dhw"
EXTENT = re.compile(r"([a-z]+)(\d+)")
MATRICES = re.compile(r"[\dx]+:[\dx]+(?::[\dx]+)?")  # the last, if any, is what comes out
MOST = 1 << 52  # what no execution takes: the line is damaged
GEMM = re.compile(r"(?:b\d+)?m\d+n\d+k\d+")  # before 1.6


def flops(primitive: str, problem: str) -> int | None:
    """Return the FLOPs of one execution, None where they are not known."""
    count = COUNTED.get(primitive)
    try:
        found = count(problem) if count else None
    except (KeyError, ValueError):  # an extent is missing, or has more digits than Python reads
        return None
    return None if found is None or found > MOST else found


def _convolution(problem: str, positions: str = "o") -> int:
    """Count each weight once for every position that it is applied at: of the output, if not transposed."""
    size = _extents(problem)
    channels = size["ic"] * size["oc"] // (size.get("g", 1) or 1)
    return 2 * size["mb"] * channels * _axes(size, "k") * _axes(size, positions)


def _deconvolution(problem: str) -> int:
    return _convolution(problem, "i")


def _inner_product(problem: str) -> int:
    size = _extents(problem)
    return 2 * size["mb"] * size["ic"] * size["oc"] * _axes(size, "i")


def _matmul(problem: str) -> int | None:
    if GEMM.fullmatch(problem):
        size = _extents(problem)
        return 2 * size.get("b", 1) * size["m"] * size["n"] * size["k"]
    if not MATRICES.fullmatch(problem.partition(":dst")[0]):
        return None
    a, b = ([int(n) for n in shape.split("x") if n] for shape in problem.split(":")[:2])
    if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2]:  # noqa: PLR2004 - rows and columns
        return None
    batch = prod(map(max, a[:-2], b[:-2]))  # an extent of 1 is broadcast
    return 2 * batch * a[-2] * a[-1] * b[-1]


def _extents(problem: str) -> dict[str, int]:
    return {name: int(size) for name, size in EXTENT.findall(problem)}


def _axes(size: Mapping[str, int], of: str) -> int:
    return prod(size.get(f"{of}{axis}", 1) for axis in AXES)


COUNTED: dict[str, Callable[[str], int | None]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": _inner_product,
    "matmul": _matmul,
}
