"""`FILE.py::function`, `MODULE::function`: a function of somebody's file, imported as Python would run it, or of a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from bridge.bench.errors import BenchError

BETWEEN = "::"
MODULE = re.compile(r"(?!.*\.py$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def target(text: str) -> Callable[..., Any]:
    """Return the function that ``FILE.py::name`` or ``MODULE::name`` names (``name`` may have dots); raises BenchError in a line."""
    path, between, name = text.rpartition(BETWEEN)
    if not between or not path or not name:
        raise BenchError(f"{text}: write FILE.py::function")
    found: Any = _named(path) if MODULE.fullmatch(path) else file_module(Path(path))
    for part in name.split("."):
        if not hasattr(found, part):
            raise BenchError(f"{path}: there is no {name}{_others(found)}")
        found = getattr(found, part)
    if not callable(found):
        raise BenchError(f"{path}: {name} is no function, but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _named(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise BenchError(f"{name}: importing it raised {said(error)}") from error


def file_module(path: Path) -> ModuleType:
    """Import a file; its folder comes first on the path, as when Python runs it."""
    file = path.absolute()
    known = sys.modules.get(file.stem)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if not file.is_file():
        raise BenchError(f"{path}: no such file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BenchError(f"{path}: no Python file; name one that ends with .py")
    made = module_from_spec(spec)
    was = sys.modules.get(file.stem)
    sys.modules[file.stem] = made  # what pickles, and dataclasses, look for
    try:
        spec.loader.exec_module(made)
    except (Exception, SystemExit) as error:
        if was is None:
            del sys.modules[file.stem]
        else:
            sys.modules[file.stem] = was
        raise BenchError(f"{path}: importing it raised {said(error)}") from error
    return made


def said(error: BaseException) -> str:
    """Return an exception in a line: its class, and the first line of what it says."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _others(found: Any) -> str:
    """Return what there is instead, a few names of functions."""
    own = getattr(found, "__name__", None)
    names = [
        n for n, v in vars(found).items() if callable(v) and getattr(v, "__module__", None) == own
    ]
    few = [name for name in names if not name.startswith("_")][:6]
    return f"; it has {', '.join(few)}" if few else ""
