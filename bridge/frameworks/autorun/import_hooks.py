"""Do something as soon as a module has been imported, whoever imports it.

The invariant: the module, its spec and its loader are what they are without us before its first line runs,
and no error of ours goes through the program's `import`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from bridge.annotate.patch import wrap

# -- The options of `python -m bridge.autorun`, which children get through the environment


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


# -- Do something as soon as a module has been imported, whoever imports it


# -- What is done with each library when it has been imported


# Imported when the library is there, and from their own modules: `bridge.torch` may be what imports torch.


def _torch(options: Options) -> None:
    from bridge.frameworks.torch.every_model import every_module
    from bridge.frameworks.torch.ops import ops
    from bridge.frameworks.torch.profiler_records import dataloader_waits, optimizer_steps

    optimizer_steps().enable()
    dataloader_waits().enable()
    if options.ops or options.shapes:
        ops(shapes=options.shapes).enable()
    if options.modules:
        every_module().enable()


def _jax(_: Options) -> None:
    from bridge.frameworks.jax import annotate

    annotate()


def _cupy(_: Options) -> None:
    from bridge.frameworks.cupy import annotate

    annotate()


ALL: dict[str, Action] = {"torch": _torch, "jax": _jax, "cupy": _cupy}


@cache
def wrapping(name: str, functions: tuple[str, ...] | None) -> Action:
    """Return what makes functions of a module ops: those named, or all public ones."""

    def action(_: Options) -> None:
        wrap(sys.modules[name], functions)

    return action


# -- Do something as soon as a module has been imported, whoever imports it


Action = Callable[[Options], None]

_expected: dict[str, dict[Action, Options]] = {}
_came: set[str] = set()


def expect(name: str, action: Action, options: Options) -> None:
    """Act when a module of this name has been imported, at once if it has been."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    _expected.setdefault(name, {})[action] = options
    if name in sys.modules:
        _act(name, {action: options})


def missing() -> list[str]:
    """List what has not been imported."""
    return [name for name in _expected if name not in _came]


def say(message: str) -> None:
    """Tell the user what could not be done, where it mixes with no output."""
    sys.stderr.write(f"bridge.autorun: {message}\n")


class Finder:
    """Finds what the others find, with a loader that tells when it has loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that is expected; the others find all else without us."""
        if name not in _expected:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader)  # type: ignore[assignment]  # all that importlib asks for
        return spec


class Loader:
    """Another loader; after it has run a module, what was to be done with that is done."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Run the module with its own loader in place, then act."""
        name = module.__spec__.name
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _act(name, _expected.get(name, {}))


def _act(name: str, actions: dict[Action, Options]) -> None:
    _came.add(name)
    for action, options in list(actions.items()):
        try:
            action(options)
        except Exception as problem:  # noqa: BLE001 (the program did nothing wrong)
            say(f"{name} is not annotated: {type(problem).__name__}: {problem}")
