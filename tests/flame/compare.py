"""Whether a tree of stacks says the same as the witness of stacks."""

from __future__ import annotations

from collections import Counter

from witness.stacks import TrueStacks

from bridge.analyze.core.calltree import LEVELS, CallTree


def hold(tree: CallTree, truth: TrueStacks) -> None:
    """Hold a tree to the truth: its shape, its paths, its figures, its totals."""
    paths, parent = paths_of(tree), tree.parent.tolist()
    assert all(above < row for row, above in enumerate(parent))
    assert len(set(paths)) == len(paths)
    gpu, activities = truth.gpu()
    count = truth.calls() + activities
    assert figures(paths, tree.gpu_self_ns) == +gpu
    assert figures(paths, tree.cpu_self_ns) == truth.cpu()
    assert figures(paths, tree.count) == count
    assert {*paths} == {p[:n] for p in {*gpu, *truth.cpu(), *count} for n in range(1, len(p) + 1)}
    under = Counter()
    for path, ns in gpu.items():
        under.update({path[:n]: ns for n in range(1, len(path) + 1)})
    assert figures(paths, tree.total(tree.gpu_self_ns)) == +under


def figures(paths, values) -> Counter:
    return +Counter(dict(zip(paths, values.tolist(), strict=True)))


def paths_of(tree: CallTree):
    paths: list[tuple[tuple[str, str], ...]] = []
    rows = zip(tree.parent.tolist(), tree.level.tolist(), tree.code.tolist(), strict=True)
    for parent, level, code in rows:
        paths.append((() if parent == -1 else paths[parent]) + ((LEVELS[level], tree.names[code]),))
    return paths
