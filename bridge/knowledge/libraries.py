"""Which frames of call stacks are of libraries, and which of the user's program: libraries.toml lists the former."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from typing import Any

from bridge.knowledge.package import data_file


@cache
def _listed() -> dict[str, Any]:
    return tomllib.loads(data_file("bridge.knowledge", "libraries.toml"))


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Return a pattern each for Python files, native modules and native functions of libraries."""
    listed = _listed()
    return {
        "files": _any(listed["python"]["files"]),
        "modules": _any(
            f"[[]{m[1:]}" if m.startswith("[") else m for m in listed["native"]["modules"]
        ),
        "functions": _any(listed["native"]["functions"]),
    }


def _any(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


def is_library_file(path: str) -> bool:
    """Return whether a file of Python code is of a library; a frame without a file is."""
    path = path.replace("\\", "/")
    if not path or _patterns()["files"].match(path):
        return True
    # PyTorch's profiler cuts the folders of sys.path: threading.py, logging/__init__.py.
    return path.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names


def is_library_function(function: str, module: str) -> bool:
    """Return whether a native function is of a library; a frame without a module is."""
    name = module.replace("\\", "/").rpartition("/")[2]
    if not name or _patterns()["modules"].match(name):
        return True
    return _patterns()["functions"].match(function) is not None


def framework_of(names: Iterable[str]) -> str:
    """Return the framework of a program, of which some names of kernels, files and modules are known; '' for none."""
    texts = [name.replace("\\", "/") for name in names]
    patterns = ((name, _any(listed)) for name, listed in _listed()["frameworks"].items())
    return next((name for name, pattern in patterns if any(map(pattern.match, texts))), "")
