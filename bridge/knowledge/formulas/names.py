"""The names of ops: what `aten::mm`, `torch.mm` and `aten.mm.default` have in common.

The invariant: what a name is matched by is a part of it, as written.
"""

from __future__ import annotations

from collections.abc import Iterator

LIBRARIES = ("aten", "prims")  # after these comes the op, then maybe an overload
OTHERS = {"sparse"}  # namespaces whose ops have the names of dense ones, and do less


def keys(name: str) -> Iterator[str]:
    """Give what an op's formula may stand under, the likeliest first: ``add_`` is ``add`` in place."""
    parts = name.replace("::", ".").split(".")
    if OTHERS.isdisjoint(parts[:-1]):
        op = _op(parts)
        yield from dict.fromkeys((op, op.rstrip("_"), op.strip("_") if op[:2] == "__" else op))


def _op(parts: list[str]) -> str:
    """Return the part that names the op: the last one, but for overloads."""
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:  # noqa: PLR2004 (torch.ops.aten.mm)
        return parts[3]
    at = next((parts.index(library) for library in LIBRARIES if library in parts[:-1]), -2)
    return parts[at + 1]
