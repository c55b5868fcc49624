"""Annotate the child processes of an annotated program: docs/zero-code.md.

Python of any version runs this file at its start if this folder is on the PYTHONPATH. The program's
own `sitecustomize`, which Python would have run otherwise, runs first.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST = (3, 11)  # that bridge runs on


def _hand_on() -> None:
    """Run the `sitecustomize` that comes next on the path, under its own name."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _annotate() -> None:
    if sys.version_info < OLDEST:
        _say_too_old()
        return
    sys.path.insert(0, HERE)
    try:
        from nsight_bridge_launch import annotate_child  # type: ignore[import-not-found]  # beside this file
    finally:
        sys.path.remove(HERE)
    annotate_child()


def _say_too_old() -> None:
    if os.environ.get("BRIDGE_AUTOSTART", "") not in ("", "0"):
        text = "bridge.autorun: process {} has no annotations: Python {}.{}, and they need {}.{} or newer\n"
        sys.stderr.write(text.format(os.getpid(), *(sys.version_info[:2] + OLDEST)))


try:
    _hand_on()
finally:
    _annotate()
