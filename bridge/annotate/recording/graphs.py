"""What PyTorch knows of nodes of CUDA graphs as a process ends: names and Python lines, for its recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

GRAPH_ANNOTATIONS = "graph_annotations"  # key in the metadata
MODULE = "torch.cuda._graph_annotations"  # since PyTorch 2.12
KINDS = {"annotation": "get_kernel_annotations", "stack": "get_kernel_py_stacks"}


def graph_annotations() -> dict[str, dict[str, Any]]:
    """Return what `mark_kernels` and ``record_py_stacks`` recorded: annotations and stacks by the id of a node.

    Loads nothing, and raises nothing: these functions are a prototype.
    """
    module = sys.modules.get(MODULE)
    return {kind: found for kind, name in KINDS.items() if (found := _recorded(module, name))}


def _recorded(module: Any, name: str) -> dict[str, Any]:
    with suppress(Exception):  # whatever a prototype raises, the program has no use for it
        said: Mapping[int, Any] = getattr(module, name)()
        return {str(int(node)): _plain(said[node]) for node in [*said]}
    return {}


def _plain(value: Any) -> Any:
    """Return a copy of what JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in [*value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return type(value).__name__
    # The text of another object could be long, or wait for a GPU.
    return value if isinstance(value, str | int | float | None) else type(value).__name__
