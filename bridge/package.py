"""The distribution: its version, and its package `importers`, whose name a user's program may use, too.

A script's folder comes first on the path, so `import importers` there means the user's package. Ours is
then imported aside and stays reachable through our own modules alone; the user's name is left as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

VERSION = "0.1.0"
IMPORTERS = "importers"


@contextmanager
def importers_are_ours() -> Iterator[None]:
    """Within the block, `import importers` means our package."""
    from importlib.util import find_spec  # `import bridge` is light
    from pathlib import Path

    home = Path(__file__).resolve().parent.parent
    spec = find_spec(IMPORTERS)
    if spec and spec.origin and Path(spec.origin).resolve().parent == home / IMPORTERS:
        yield
        return
    other = _forgotten()
    sys.path.insert(0, str(home))
    try:
        yield
        _load_all_formats()
    finally:
        sys.path.remove(str(home))
        _forgotten()
        sys.modules.update(other)


def _load_all_formats() -> None:
    """Load what our package would load later, when its name means the user's package again."""
    formats: Any = sys.modules.get(f"{IMPORTERS}.formats")
    if formats is not None:
        formats.all_loaded()


def _forgotten() -> dict[str, ModuleType]:
    """Remove every loaded module of a package called importers from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == IMPORTERS or name.startswith(f"{IMPORTERS}.")]
    return {name: sys.modules.pop(name) for name in names}
