"""Annotate every model of PyTorch at its first call, which makes its class the name of all that is in it.

The invariant: nothing is put into a model: two hooks for all modules find what belongs to each, so that
models are copied, pickled, scripted and compiled as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from bridge.annotate.emit import state
from bridge.frameworks.torch.calls import Site
from bridge.frameworks.torch.modules import UNREADABLE, WRAPPED, annotate
from bridge.frameworks.torch.ops import ops as every_op
from bridge.frameworks.torch.profiler_records import Switch, dataloader_waits, optimizer_steps

# -- All annotations of a program at once


@contextmanager
def auto(
    model: Any = None,
    *,
    modules: bool = True,
    ops: bool = False,
    shapes: bool | str = False,
    optimizer: bool = True,
    dataloader: bool = True,
) -> Iterator[None]:
    """Annotate a model or several, the optimizers and the data loaders in a block; if told so every op.

    Several models are an iterable of them, or a mapping whose keys are their names.
    """
    with ExitStack() as undo:
        for name, one in _named(model) if modules else ():
            undo.enter_context(annotate(one, name=name))
        if optimizer:
            undo.enter_context(optimizer_steps())
        if dataloader:
            undo.enter_context(dataloader_waits())
        if ops or shapes:
            undo.enter_context(every_op(shapes=shapes))
        yield


def _named(model: Any) -> Iterable[tuple[str | None, Any]]:
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return ((None, model),)  # though nn.Sequential and its like can be iterated over
    if isinstance(model, Mapping):
        return model.items()
    return ((None, one) for one in model)


# -- Annotate every model of PyTorch at its first call, which makes its class the name of all that is in it


_sites: WeakKeyDictionary[Any, Site] = WeakKeyDictionary()


class EveryModule(Switch):
    """Ranges around the calls of all modules of the process, and of their backward passes."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    def enable(self) -> None:
        """Begin to annotate; if somebody does already, do nothing."""
        with _changing:
            if not (self._hooks or _Enabled.by):
                _Enabled.by = self
                for site in list(_sites.values()):
                    site.on = True
                self._hooks = [
                    register_module_forward_pre_hook(_before),
                    register_module_forward_hook(_after, always_call=True),
                ]

    def disable(self) -> None:
        """Leave all as it was before; if that has been done, do nothing."""
        with _changing:
            if not self._hooks:
                return
            while self._hooks:
                self._hooks.pop().remove()
            _Enabled.by = None
            for site in list(_sites.values()):
                site.remove()  # closes what is open: within a model's forward, say


class _Enabled:
    """Who annotates all modules now."""

    by: EveryModule | None = None


_changing = Lock()


def every_module() -> EveryModule:
    """Make a range of every call of every module, named from the first module that is called."""
    return EveryModule()


def _before(module: Any, args: Any) -> None:
    if is_compiling() or state.idle or _has_its_own(module):
        return
    site = _sites.get(module)
    if site is None:
        _name_all(module)
        site = _sites[module]
    site.before(module, args)


def _after(module: Any, args: Any, output: Any) -> None:
    if is_compiling():
        return
    site = _sites.get(module)
    if site is not None:
        site.after(module, args, output)


def _has_its_own(module: Any) -> bool:
    """Tell whether the program itself has annotated a module: its hook is the first then."""
    hooks = module._forward_pre_hooks  # noqa: SLF001 (no public name)
    return bool(hooks) and isinstance(getattr(next(iter(hooks.values())), "__self__", None), Site)


def _name_all(root: Any) -> None:
    """Name a model's modules by their paths in it; what was called on its own before keeps its name."""
    named = getattr(root, WRAPPED, root)
    name = getattr(named, "original_name", type(named).__name__)  # of what was scripted
    for path, module in root.named_modules(prefix=name):
        if module not in _sites:
            readable = UNREADABLE.sub("_", path.replace(f".{WRAPPED}", ""))
            _sites[module] = Site(readable, on=True)
