"""Stacks as text: folded ones, for flamegraph.pl and its kin, and the file format of speedscope."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.calltree import WEIGHTS, CallTree
from bridge.package import VERSION

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
SHOWN = {  # per weight: what a profile is called, and the unit that speedscope knows
    "gpu": ("GPU time", "nanoseconds"),
    "cpu": ("CPU time", "nanoseconds"),
    "calls": ("calls", "none"),
}
UNNAMED = "(unnamed)"  # an empty frame would be lost
ENDS_A_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
AT_ONCE = 50_000  # stacks written at a time


def folded(tree: CallTree, weight: str = "gpu") -> Iterator[str]:
    """Yield lines ``step 3;encoder;aten::mm;gemm 1234``: a stack and what it weighs itself; sorted.

    Names get a comma for each semicolon, a blank for what may end a line; stacks whose names are then the
    same are one.
    """
    names = [ENDS_A_LINE.sub(" ", name).replace(";", ",").strip() for name in tree.names]
    own = tree.weight(weight)
    stacks = _joined(tree, [name or UNNAMED for name in names], ";")[own != 0]
    code, lines = pd.factorize(stacks, sort=True)
    values = np.zeros(len(lines), np.int64)
    np.add.at(values, code, own[own != 0])
    for first in range(0, len(lines), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        pairs = zip(lines[part].tolist(), values[part].tolist(), strict=True)
        yield "".join(f"{line} {value}\n" for line, value in pairs)


def speedscope(tree: CallTree, source: Sequence[str], weight: str = "gpu") -> Iterator[str]:
    """Yield a file of speedscope's with a profile for each weight, the chosen one to be shown first.

    Stacks are told as samples, each followed by what is under it. A weight that nothing has is left out.
    """
    order = np.argsort(tree.place)
    stacks = _joined(tree, [str(code) for code in range(len(tree.names))], ",")[order]
    weights = {kind: tree.weight(kind)[order] for kind in WEIGHTS}
    listed = [kind for kind in WEIGHTS if weights[kind].any()] or [weight]
    about = {
        "name": ", ".join(source),
        "exporter": f"nsight-bridge@{VERSION}",
        "activeProfileIndex": listed.index(weight) if weight in listed else 0,
        "shared": {"frames": [{"name": name or UNNAMED} for name in tree.names]},
    }
    yield f'{{"$schema":"{SCHEMA}",{_json(about)[1:-1]},"profiles":['
    for nth, kind in enumerate(listed):
        yield "," if nth else ""
        yield from _profile(kind, stacks, weights[kind])
    yield "]}\n"


def _profile(kind: str, stacks: NDArray[np.object_], values: NDArray[np.int64]) -> Iterator[str]:
    there = np.flatnonzero(values)
    name, unit = SHOWN[kind]
    about = {"type": "sampled", "name": name, "unit": unit}
    yield f'{_json(about)[:-1]},"startValue":0,"endValue":{values.sum()},"samples":['
    for first in range(0, len(there), AT_ONCE):
        part = stacks[there[first : first + AT_ONCE]].tolist()
        yield ("," if first else "") + ",".join(f"[{stack}]" for stack in part)
    yield f'],"weights":[{",".join(map(str, values[there].tolist()))}]}}'


def _joined(tree: CallTree, names: list[str], between: str) -> NDArray[np.object_]:
    """Return the names on the way to each frame, its own last, in one text."""
    own = np.array(names, dtype=object)[tree.code]
    stacks = own.copy()
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(tree.depth == depth)
        stacks[rows] = stacks[tree.parent[rows]] + between + own[rows]
    return stacks


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
