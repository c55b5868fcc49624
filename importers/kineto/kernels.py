"""The short names of kernels: what is left of a demangled one without types, namespaces and arguments.

`void at::native::reduce_kernel<512, 1, …>(…)` is `reduce_kernel`, as Nsight Systems calls it.
"""

from __future__ import annotations

import re

OPEN, CLOSE = "<([{", ">)]}"
OPERATOR = "operator"
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>")
BRACKET = re.compile(r"[<>()\[\]{}]")


def short_name(name: str) -> str:
    """Return the name of a kernel alone; one that is no C++ comes back as it is."""
    outer = "".join(_outside(UNNAMED.sub("_", name)))
    found = outer.strip().rpartition("::")[2].rpartition(" ")[2]
    return found or name


def _outside(name: str) -> list[str]:
    """Return the parts that are in no brackets, up to the arguments."""
    parts, depth, start = [], 0, 0
    for found in BRACKET.finditer(name):
        at, mark = found.start(), found[0]
        if not depth:
            parts.append(name[start:at])
            if mark == "(" and parts[-1].endswith(OPERATOR) and name.startswith("()", at):
                parts.append("()")
            elif mark == "(" and "".join(parts).strip():
                return parts
        depth = max(0, depth + (1 if mark in OPEN else -1))
        start = at + 1
    return [*parts, name[start:]] if not depth else parts
