"""Annotate a program without changing its code: options, import hooks, and activation.

A library is annotated when the program imports it; no library is imported for this. A module, its
spec and its loader are unchanged when the first line of the module runs. Errors of this module
never propagate through the program's `import`: they are reported in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from bridge.annotate import emit, mode
from bridge.annotate.patch import wrap

# -- Options of `python -m bridge.autorun`, which children inherit through the environment


Wrap = tuple[str, tuple[str, ...] | None]

USAGE = "python -m bridge.autorun [options] [-m module | script.py] [arguments]"
HELP = f"""usage: {USAGE}

Run a program unchanged, with annotations: models, optimizers and data loaders of PyTorch; JAX; CuPy.

  --ops               a range for every op of PyTorch, by a mode where there is no GPU
  --no-ops            none for ops on a GPU, where PyTorch itself emits them
  --shapes            the same as --ops, and records the sizes of inputs
  --api               a range for every call of PyTorch's Python API
  --no-modules        none for the modules of PyTorch
  --wrap MODULE[:F,G] make functions of a module ops when it is imported: those named (a method is
                      Class.method), else all public ones; may be repeated
  --record FILE       where no profiler is attached, record host times (.jsonl, .json or .json.gz)
  --path              print the folder that PYTHONPATH needs for BRIDGE_AUTOSTART=1 to take effect
"""


class Options(NamedTuple):
    """The parts of a program to annotate; ``wraps`` are modules with names in them, None for all public functions.

    ``record`` is the file for host times; children do not inherit it.
    """

    modules: bool = True
    ops: bool | None = None  # None: where PyTorch itself emits them
    shapes: bool = False
    api: bool = False
    wraps: tuple[Wrap, ...] = ()
    record: str | None = None


FLAGS = {
    "--ops": ("ops", True),
    "--no-ops": ("ops", False),
    "--shapes": ("shapes", True),
    "--api": ("api", True),
    "--no-modules": ("modules", False),
}

NEEDS = {"--wrap": "MODULE or MODULE:NAME,NAME", "--record": "FILE"}


def parse_options(words: list[str]) -> tuple[Options, list[str]]:
    """Parse options up to the first word that is not one; return them and the remaining words.

    Raises ValueError with a message for the user for an unknown or incomplete option.
    """
    result: dict[str, Any] = {}
    wraps: list[Wrap] = []
    remaining = list(words)
    while remaining and remaining[0].startswith("--"):
        option, equals, value = remaining.pop(0).partition("=")
        if option in NEEDS and not (equals or remaining):
            raise ValueError(f"{option} needs {NEEDS[option]}")
        if option == "--wrap":
            wraps.append(_parse_wrap(value if equals else remaining.pop(0)))
        elif option == "--record":
            result["record"] = value if equals else remaining.pop(0)
        elif option in FLAGS and not equals:
            name, on = FLAGS[option]
            result[name] = on
        else:
            raise ValueError(f"no option {option}")
    return Options(**result, wraps=tuple(wraps)), remaining


def format_options(options: Options) -> str:
    """Return options as text for `parse_options`."""
    return " ".join(_words(options))


def _words(options: Options) -> Iterator[str]:
    yield from (flag for flag, (name, on) in FLAGS.items() if getattr(options, name) is on)
    for module, names in options.wraps:
        yield f"--wrap={module}" if names is None else f"--wrap={module}:{','.join(names)}"


def _parse_wrap(text: str) -> Wrap:
    module, colon, listed = text.partition(":")
    names = tuple(listed.split(",")) if colon else None
    for name in (module, *(names or ())):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"--wrap {text}: {name!r} is no name; give MODULE or MODULE:NAME,NAME")
    if module == "__main__":
        raise ValueError(f"--wrap {text}: put the functions into a module that the script imports")
    return module, names


# -- Actions by library


# Imported lazily, and from the defining modules, because `bridge.torch` itself may be importing
# torch.


def _torch(options: Options) -> None:
    from bridge.frameworks.torch.blocks import dataloader_waits, optimizer_steps
    from bridge.frameworks.torch.custom_ops import custom_ops
    from bridge.frameworks.torch.functions import api_calls
    from bridge.frameworks.torch.modules import every_module
    from bridge.frameworks.torch.ops import native_ops, ops

    optimizer_steps().enable()
    dataloader_waits().enable()
    if options.api:
        api_calls().enable()
    custom_ops().enable()
    if options.ops or options.shapes:
        ops(shapes=options.shapes).enable()
    elif options.ops is None:
        native_ops().enable()
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
    """Return the action that makes functions of a module ops: named ones or all public ones."""

    def action(_: Options) -> None:
        wrap(sys.modules[name], functions)

    return action


# -- Import hooks


Action = Callable[[Options], None]

_expected: dict[str, dict[Action, Options]] = {}
_imported: set[str] = set()


def expect(name: str, action: Action, options: Options | None = None) -> None:
    """Run ``action`` when a module has been imported, or now if it already is."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    given = options or Options()
    _expected.setdefault(name, {})[action] = given
    if name in sys.modules:
        _run_actions(name, {action: given})


def forget(name: str, action: Action) -> None:
    """Do not run an action any more; without any, imports are as before."""
    actions = _expected.get(name, {})
    actions.pop(action, None)
    if not actions:
        _expected.pop(name, None)
    if not _expected:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


def missing() -> list[str]:
    """Return the expected modules that have not been imported."""
    return [name for name in _expected if name not in _imported]


def say(message: str) -> None:
    """Write a message for the user to stderr."""
    sys.stderr.write(f"bridge.autorun: {message}\n")


class Finder:
    """Finds expected modules through the other finders, and wraps their loaders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an expected module with a wrapped loader, or None."""
        if name not in _expected:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        result = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in result if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader)  # type: ignore[assignment]  # has all that importlib needs
        return spec


class Loader:
    """Wraps a loader, and runs the actions of a module after the module has run."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Run the module with its original loader restored, then its actions."""
        name = module.__spec__.name
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _run_actions(name, _expected.get(name, {}))


def _run_actions(name: str, actions: dict[Action, Options]) -> None:
    _imported.add(name)
    for action, options in list(actions.items()):
        try:
            action(options)
        except Exception as problem:  # noqa: BLE001 (must not make the program fail)
            say(f"{name} is not annotated: {type(problem).__name__}: {problem}")


# -- Activation


# On the PYTHONPATH of child processes. Python then runs the `sitecustomize` in it at its start.
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
LAUNCHER = os.path.join(START, "nsight_bridge_launch.py")  # main, started by path
AUTOSTART, OPTIONS_VARIABLE = "BRIDGE_AUTOSTART", "BRIDGE_AUTORUN_OPTIONS"
PATH_VARIABLE = "PYTHONPATH"
OFF = ("", "0")
SESSION_LEVEL = 0  # a session of this level adds no annotations of its own

__all__ = ["Options", "arm", "autostart", "recorded"]


def arm(options: Options | None = None) -> None:
    """Annotate PyTorch, JAX, CuPy and modules to wrap at their import, or now if imported.

    Child processes inherit this through the environment: BRIDGE_AUTOSTART, the options, and a folder
    on the PYTHONPATH. In repeated calls the last options count.
    """
    options = options or Options()
    os.environ.update(child_environment(options))
    for name, annotate in ALL.items():
        expect(name, annotate, options)
    for name, functions in options.wraps:
        expect(name, wrapping(name, functions), options)


def child_environment(options: Options) -> dict[str, str]:
    """Return the variables with which Python processes annotate themselves."""
    return {AUTOSTART: "1", OPTIONS_VARIABLE: format_options(options), PATH_VARIABLE: child_path()}


def child_path() -> str:
    """Return the PYTHONPATH on which Python finds our `sitecustomize` first."""
    folders = [START, *filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(folders))


def autostart() -> None:
    """Call `arm` with the parent's options if BRIDGE_AUTOSTART is set."""
    if os.environ.get(AUTOSTART, "") in OFF:
        return
    options = Options()
    try:
        words = os.environ.get(OPTIONS_VARIABLE)
        options = _options_of_mode() if words is None else parse_options(words.split())[0]
    except ValueError as problem:
        say(str(problem) if words is None else f"{OPTIONS_VARIABLE}: {problem}")
    arm(options)


def _options_of_mode() -> Options:
    """Return the options that BRIDGE_MODE selects, the default ones without it."""
    kinds = mode.kinds_of_environment()
    if kinds is None:
        return Options()
    return Options(
        modules=mode.MODULES in kinds,
        ops=mode.OPS in kinds or None,
        shapes=mode.SHAPES in kinds,
        api=mode.API in kinds,
    )


@contextmanager
def recorded(
    path: str | None, session: Callable[..., AbstractContextManager[Any]]
) -> Iterator[None]:
    """Record host times of a block to a file by a ``session`` of `bridge.profile`.

    Does nothing if ``path`` is None or a tool is attached.
    """
    emit.current()
    if path is None or not emit.state.idle:
        yield
        return
    with session(path=path, level=SESSION_LEVEL):
        yield
