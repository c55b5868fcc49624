"""Our package `importers`, also where the user's program has a package of that name.

A script's folder comes first on the path, so `import importers` there means the user's. Ours is then
imported aside and stays reachable through our own modules alone; the user's name is left as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "importers"
HOME = Path(__file__).resolve().parent.parent


@contextmanager
def importers_are_ours() -> Iterator[None]:
    """Within the block, `import importers` means our package."""
    if _is_ours():
        yield
        return
    theirs = _taken_out()
    sys.path.insert(0, str(HOME))
    try:
        yield
        _loaded_whole()
    finally:
        sys.path.remove(str(HOME))
        _taken_out()
        sys.modules.update(theirs)


def _is_ours() -> bool:
    spec = find_spec(NAME)
    return bool(spec and spec.origin) and Path(spec.origin).resolve().parent == HOME / NAME  # type: ignore[union-attr,arg-type]


def _loaded_whole() -> None:
    """Load what our package would load later, when its name means the user's again."""
    formats: Any = sys.modules.get(f"{NAME}.formats")
    if formats is not None:
        formats.all_loaded()


def _taken_out() -> dict[str, ModuleType]:
    """Forget every loaded module of a package called importers, and return them."""
    names = [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]
    return {name: sys.modules.pop(name) for name in names}
