"""The options of `python -m bridge.autorun`, which children get through the environment.

The invariant: no option holds a space, so that the words joined by spaces are the options again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Wrap = tuple[str, tuple[str, ...] | None]

USAGE = "python -m bridge.autorun [options] [-m module | script.py] [arguments]"
HELP = f"""usage: {USAGE}

Run a program unchanged, with annotations: models, optimizers and data loaders of PyTorch; JAX; CuPy.

  --ops               a range for every op of PyTorch
  --shapes            the same, with the sizes of its inputs
  --no-modules        none for the modules of PyTorch
  --wrap MODULE[:F,G] make functions of a module ops when it is imported: those named (a method is
                      Class.method), else all public ones; may be repeated
  --record FILE       where no profiler is attached, record host times (.jsonl, .json or .json.gz)
"""


class Options(NamedTuple):
    """What is annotated; `wraps` are modules with names in them, None for all public functions.

    ``record`` is the file for host times, which is no matter of children.
    """

    modules: bool = True
    ops: bool = False
    shapes: bool = False
    wraps: tuple[Wrap, ...] = ()
    record: str | None = None


FLAGS = {"--ops": ("ops", True), "--shapes": ("shapes", True), "--no-modules": ("modules", False)}

NEEDS = {"--wrap": "MODULE or MODULE:NAME,NAME", "--record": "FILE"}


def parsed(words: list[str]) -> tuple[Options, list[str]]:
    """Read options up to the first word that is none, and return what is left; raise ValueError."""
    found: dict[str, Any] = {}
    wraps: list[Wrap] = []
    left = list(words)
    while left and left[0].startswith("--"):
        option, equals, value = left.pop(0).partition("=")
        if option in NEEDS and not (equals or left):
            raise ValueError(f"{option} needs {NEEDS[option]}")
        if option == "--wrap":
            wraps.append(_wrap(value if equals else left.pop(0)))
        elif option == "--record":
            found["record"] = value if equals else left.pop(0)
        elif option in FLAGS and not equals:
            name, on = FLAGS[option]
            found[name] = on
        else:
            raise ValueError(f"no option {option}")
    return Options(**found, wraps=tuple(wraps)), left


def written(options: Options) -> str:
    """Write options so that `parsed` reads them again."""
    return " ".join(_words(options))


def _words(options: Options) -> Iterator[str]:
    yield from (flag for flag, (name, on) in FLAGS.items() if getattr(options, name) is on)
    for module, names in options.wraps:
        yield f"--wrap={module}" if names is None else f"--wrap={module}:{','.join(names)}"


def _wrap(text: str) -> Wrap:
    module, colon, listed = text.partition(":")
    names = tuple(listed.split(",")) if colon else None
    for name in (module, *(names or ())):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"--wrap {text}: {name!r} is no name; give MODULE or MODULE:NAME,NAME")
    if module == "__main__":
        raise ValueError(f"--wrap {text}: put the functions into a module that the script imports")
    return module, names
