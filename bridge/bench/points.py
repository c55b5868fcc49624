"""The points of a sweep, and the shapes at each: `--shape MxK,KxN --sweep M=1,8 --set K=128 --set N=256`.

The invariant: every name in a shape has a number at every point, or BenchError is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from bridge.bench.errors import BenchError

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MOST = 10_000  # points of a sweep
Shape = tuple[int, ...]
Axes = tuple[str, ...]  # of a shape: numbers and names
Point = Mapping[str, int]


def shapes(text: str) -> list[Axes]:
    """Read shapes with commas between them: ``64x128,128x256``, ``MxK``; ``1`` is a vector of one, ``()`` a scalar."""
    found = []
    for one in text.split(","):
        axes = tuple(one.strip().split("x")) if one.strip() != "()" else ()
        # A name may hold an x only if nothing else could be meant: `axis` would be read as `a` and `is`.
        if not all(axis.isdecimal() or NAME.fullmatch(axis) for axis in axes):
            raise BenchError(f"--shape {text}: {one.strip()!r} is no shape; write 64x128 or MxK")
        found.append(axes)
    return found


def points(sweeps: Sequence[str], fixed: Sequence[str] = ()) -> list[dict[str, int]]:
    """Return every combination of ``M=1,8,64`` (or ``M=1:5`` and ``M=0:64:16``, the end left out), the first name turning slowest; with ``K=128`` fixed."""
    axes = dict(_axis(one, "--sweep") for one in sweeps)
    constant = dict(_axis(one, "--set") for one in fixed)
    twice = {*axes} & {*constant}
    if twice or len(axes) != len(sweeps) or len(constant) != len(fixed):
        raise BenchError(
            f"--sweep and --set: {', '.join(sorted(twice)) or 'a name'} is given twice"
        )
    several = [name for name, values in constant.items() if len(values) != 1]
    if several:
        raise BenchError(f"--set {several[0]}: one number; --sweep takes several")
    only = {name: values[0] for name, values in constant.items()}
    many = product(*axes.values())
    found = [{**dict(zip(axes, values, strict=True)), **only} for values in many]
    if len(found) > MOST:
        raise BenchError(f"--sweep: {len(found)} points are more than {MOST}")
    return found


def _axis(text: str, option: str) -> tuple[str, list[int]]:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not NAME.fullmatch(name):
        raise BenchError(f"{option} {text}: write NAME=1,8,64")
    try:
        return name, _numbers(values)
    except ValueError as error:
        raise BenchError(f"{option} {text}: whole numbers with commas are wanted") from error


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        bounds = [int(one) for one in part.split(":")]
        found += range(*bounds) if len(bounds) > 1 else bounds
    if not found:
        raise ValueError(text)
    return found


def at(wanted: Iterable[Axes], point: Point) -> list[Shape]:
    """Return shapes in numbers."""
    found = []
    for axes in wanted:
        unknown = [axis for axis in axes if not axis.isdecimal() and axis not in point]
        if unknown:
            raise BenchError(f"--shape: {unknown[0]} has no number; give it by --sweep or --set")
        shape = tuple(int(axis) if axis.isdecimal() else point[axis] for axis in axes)
        if any(length < 0 for length in shape):
            raise BenchError(f"--shape: {'x'.join(axes)} has a negative length at {dict(point)}")
        found.append(shape)
    return found


def left_over(wanted: Iterable[Axes], point: Point) -> dict[str, int]:
    """Return the numbers that no shape uses: the function's own arguments, by name."""
    used = {axis for axes in wanted for axis in axes}
    return {name: value for name, value in point.items() if name not in used}
