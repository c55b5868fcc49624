"""The distribution: its version, and its package `importers`, which a user's may shadow.

The folder of a script comes first on the path, so `from bridge import importers` may mean the user's package.
Ours is then imported separately and is reachable only through our own modules; the user's name does
not change.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # as of `typing`, which takes most of the time of `import bridge`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

VERSION = "1.0.0"
IMPORTERS = "importers"


class UserError(Exception):
    """An error whose message is for the user: what is wrong, with which file, and what to do.

    The command line prints the message and exits with ``status``. `bridge.importers.errors.ReportError` is
    its twin in the package of importers, which does not know this one.
    """

    status = 1


@contextmanager
def importers_are_ours() -> Iterator[None]:
    """Make `from bridge import importers` mean our package within the block."""
    from importlib.util import find_spec  # keeps `import bridge` light
    from pathlib import Path

    home = Path(__file__).resolve().parent.parent
    spec = find_spec(IMPORTERS)
    if spec and spec.origin and Path(spec.origin).resolve().parent == home / IMPORTERS:
        yield
        return
    other = _remove_importers()
    sys.path.insert(0, str(home))
    try:
        yield
        _load_all_formats()
    finally:
        sys.path.remove(str(home))
        _remove_importers()
        sys.modules.update(other)


def _load_all_formats() -> None:
    """Load all lazy modules of our package before its name means the user's package again."""
    formats: Any = sys.modules.get(f"{IMPORTERS}.formats")
    if formats is not None:
        formats.load_all_readers()


def _remove_importers() -> dict[str, ModuleType]:
    """Remove all modules of a package called importers from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == IMPORTERS or name.startswith(f"{IMPORTERS}.")]
    return {name: sys.modules.pop(name) for name in names}
