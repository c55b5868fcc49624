"""Start annotations in a process by the path of this file.

Names would not do: a program may have a module `bridge` of its own. Such a program runs without
annotations, because one process cannot have two modules of one name. Until bridge is imported, only
the standard library is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, *[os.pardir] * 4))
OFF = ("", "0")


def main(words: list[str]) -> None:
    """Do what `python -m bridge.autorun` does with flags, and a program with its arguments."""
    if path := other_bridge(words):
        _say(f"{path} has the name of nsight-bridge: the program runs without annotations")
        program = next(n for n, word in enumerate(words) if not word.startswith("--"))
        os.execv(sys.executable, [sys.executable, *words[program:]])  # noqa: S606 (what bridge run was given)
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # as for -m
    with _ours_first():
        from bridge.autorun import recorded
        from bridge.frameworks.autorun.command import main as run
    run(words, recorded)


def annotate_child() -> None:
    """Annotate and record this process as its parent if BRIDGE_AUTOSTART or BRIDGE_CUPTI asks for it."""
    if all(os.environ.get(name, "") in OFF for name in ("BRIDGE_AUTOSTART", "BRIDGE_CUPTI")):
        return
    if path := other_bridge(sys.orig_argv[1:]):
        _say(f"{path} has the name of nsight-bridge: process {os.getpid()} has no annotations")
        return
    try:
        with _ours_first():
            import bridge  # noqa: F401 (annotates and records from its import on)
    except Exception as problem:  # noqa: BLE001 (must not make the program fail)
        kind = type(problem).__name__
        _say(f"process {os.getpid()} has no annotations: {kind}: {problem}")


def other_bridge(words: Sequence[str]) -> str | None:
    """Return the path of a module `bridge` that is not ours, if the program of a command has one."""
    spec = PathFinder.find_spec("bridge", [_folder(words), *sys.path])
    if spec is None or spec.origin is None:
        return None
    # Another installation of this package, such as that of another interpreter, will do.
    is_ours = os.path.isdir(os.path.join(os.path.dirname(spec.origin), "frameworks", "autorun"))
    return None if is_ours else spec.origin


def _folder(words: Sequence[str]) -> str:
    """Return the folder that comes first on the path of the program in these words of a command."""
    for word in words:
        if word in ("-m", "-c"):
            break
        if os.path.exists(word):
            return word if os.path.isdir(word) else os.path.dirname(os.path.realpath(word))
    return os.getcwd()


def _say(message: str) -> None:
    sys.stderr.write(f"bridge.autorun: {message}\n")


@contextmanager
def _ours_first() -> Iterator[None]:
    """Make `import bridge` mean the package around this file within the block."""
    sys.path.insert(0, ROOT)
    try:
        yield
    finally:
        sys.path.remove(ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
