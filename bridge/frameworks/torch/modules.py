"""Annotate models: every call of every module becomes a range, forward and backward.

`annotate` puts hooks into one model; `remove` restores every attribute. `every_module` uses two
global hooks and puts nothing into models, so that they are copied, pickled, scripted and compiled
as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Self
from weakref import WeakKeyDictionary

from torch import nn
from torch.compiler import is_compiling
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from bridge.annotate.emit import state
from bridge.annotate.label import checked_name
from bridge.frameworks.torch.blocks import Switch, dataloader_waits, optimizer_steps
from bridge.frameworks.torch.calls import MODULES, Site
from bridge.frameworks.torch.functions import functions
from bridge.frameworks.torch.ops import ops as every_op

WRAPPED = "_orig_mod"  # attribute in which torch.compile keeps the wrapped module
COMPILED = "_compiled_call_impl"  # attribute in which Module.compile() keeps the compiled call
UNREADABLE = re.compile(r"\s|^:")  # characters that cannot be in the name of a module


class Annotation:
    """The annotation of one model, until `remove` or the end of the block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def add(self, module: Any, site: Site) -> None:
        """Annotate one module; a scripted module that accepts no hooks is skipped."""
        self._undo.append(site.remove)
        if getattr(module, COMPILED) is not None:
            self._undo.append(_surround(module, site))
            return
        try:
            before = module.register_forward_pre_hook(site.before, prepend=True)
        except RuntimeError:
            return
        after = module.register_forward_hook(site.after, always_call=True)
        self._undo += [before.remove, after.remove]

    def add_functions(self, **kinds: bool) -> None:
        """Record functions and tensor methods of this thread."""
        switch = functions(**kinds)
        switch.enable()
        self._undo.append(switch.disable)

    def remove(self) -> None:
        """Remove all hooks and close open ranges; a second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.remove()


def annotate(
    model: Any = None,
    *,
    name: str | None = None,
    backward: bool = True,
    functional: bool = False,
    tensor_methods: bool = False,
) -> Annotation:
    """Record all calls of a model's modules as ranges, until the annotation is removed.

    Forward calls are named `module:<path>`, their backward work `backward:<path>`. A path starts
    with ``name`` or the model's class. Modules that are already annotated do not change.
    ``functional`` and ``tensor_methods`` also record functions of PyTorch and methods of tensors
    that this thread calls, as `functions` does; then there may be no model. Raises TypeError for an
    object that is not a module.
    """
    calls = functional or tensor_methods
    if not isinstance(model, nn.Module) and not (model is None and calls):
        raise TypeError(f"annotate takes a torch.nn.Module, not {model!r}")
    MODULES.broken = False
    annotation = Annotation()
    if calls:
        annotation.add_functions(functional=functional, tensor_methods=tensor_methods)
    if model is None:
        return annotation
    root = type(_wrapped(model) or model).__name__ if name is None else checked_name(name)
    for path, module in list(_modules(model, root, set())):
        if not _is_annotated(module):
            annotation.add(module, Site(UNREADABLE.sub("_", path), on=True, backward=backward))
    return annotation


def _modules(module: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield every module once, with its first path, except modules inside a compiled one.

    Hooks there would cause a recompilation and then be compiled away.
    """
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    if _is_compiled(module):
        seen.update(map(id, module.modules()))
        return
    for name, child in module.named_children():
        yield from _modules(child, f"{path}.{name}", seen)


def _is_annotated(module: Any) -> bool:
    """Return whether a module, or the module that it wraps, has our hooks."""
    hooks = [*module._forward_pre_hooks.values(), getattr(module, COMPILED, None)]  # noqa: SLF001 (PyTorch has no public list of hooks)
    sites = (getattr(hook, "__self__", None) for hook in hooks)
    result = any(isinstance(site, Site) and site.on for site in sites)
    wrapped = _wrapped(module)
    return result or (wrapped is not None and _is_annotated(wrapped))


def _is_compiled(module: Any) -> bool:
    return getattr(module, COMPILED) is not None or _wrapped(module) is not None


def _wrapped(module: Any) -> Any:
    return dict(module.named_children()).get(WRAPPED)


def _surround(module: Any, site: Site) -> Callable[[], None]:
    """Put a range around the compiled call of a module, because its hooks run in compiled code."""
    compiled = getattr(module, COMPILED)

    def call(*args: Any, **kwargs: Any) -> Any:
        output = None
        site.before(module, args)
        try:
            output = compiled(*args, **kwargs)
        finally:
            site.after(module, args, output)
        return output

    def undo() -> None:
        setattr(module, COMPILED, compiled)

    call.__self__ = site  # type: ignore[attr-defined]  # as the hooks of other modules have
    setattr(module, COMPILED, call)
    return undo


# -- All annotations at once


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
    """Annotate models, optimizers and data loaders in a block; ops with ``ops`` or ``shapes``.

    Several models are given as an iterable, or as a mapping from names.
    """
    with ExitStack() as undo:
        for name, root in _named_models(model) if modules else ():
            undo.enter_context(annotate(root, name=name))
        if optimizer:
            undo.enter_context(optimizer_steps())
        if dataloader:
            undo.enter_context(dataloader_waits())
        if ops or shapes:
            undo.enter_context(every_op(shapes=shapes))
        yield


def _named_models(model: Any) -> Iterable[tuple[str | None, Any]]:
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return ((None, model),)  # though nn.Sequential and others are iterable
    if isinstance(model, Mapping):
        return model.items()
    return ((None, root) for root in model)


# -- Every model, from its first call on; its class becomes the first part of all paths


_sites: WeakKeyDictionary[Any, Site] = WeakKeyDictionary()


class EveryModule(Switch):
    """Ranges around the calls of all modules of the process, and of their backward passes."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    def enable(self) -> None:
        """Start annotating; does nothing if all modules are already annotated."""
        MODULES.broken = False
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
        """Stop annotating and remove the hooks; a second call does nothing."""
        with _changing:
            if not self._hooks:
                return
            while self._hooks:
                self._hooks.pop().remove()
            _Enabled.by = None
            for site in list(_sites.values()):
                site.remove()  # closes open ranges, for example inside a forward


class _Enabled:
    """The object that annotates all modules now."""

    by: EveryModule | None = None


_changing = Lock()


def every_module() -> EveryModule:
    """Record every call of every module as a range.

    Paths start with the class of the first module called.
    """
    return EveryModule()


def _before(module: Any, args: Any) -> None:
    if is_compiling() or state.idle:
        return
    try:
        if _is_annotated_by_program(module):
            return
        site = _sites.get(module)
        if site is None and not MODULES.broken:
            _name_all(module)
            site = _sites[module]
    except Exception as error:
        if not MODULES.takes(error):
            raise
        return
    if site is not None:
        site.before(module, args)


def _after(module: Any, args: Any, output: Any) -> None:
    if is_compiling():
        return
    try:
        site = _sites.get(module)
    except Exception as error:
        if not MODULES.takes(error):
            raise
        return
    if site is not None:
        site.after(module, args, output)


def _is_annotated_by_program(module: Any) -> bool:
    """Return whether the program itself has annotated a module; its hook is then the first."""
    hooks = module._forward_pre_hooks  # noqa: SLF001 (no public name)
    return bool(hooks) and isinstance(getattr(next(iter(hooks.values())), "__self__", None), Site)


def _name_all(root: Any) -> None:
    """Name the modules of a model by their paths.

    Modules that were called before keep their names.
    """
    module = getattr(root, WRAPPED, root)
    name = getattr(
        module, "original_name", type(module).__name__
    )  # original_name: of a scripted module
    for path, module in root.named_modules(prefix=name):
        if module not in _sites:
            readable = UNREADABLE.sub("_", path.replace(f".{WRAPPED}", ""))
            _sites[module] = Site(readable, on=True)
