"""Annotate models: every call of every module becomes a range, forward and backward.

The call of modules itself is hooked (`bridge.annotate.hooks`): no module has a hook of PyTorch, which would
switch off fused paths and change tracebacks. Nothing is put into models, so that they are copied, pickled,
scripted and compiled as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any, Self
from weakref import ref

from torch import nn
from torch.autograd import graph
from torch.compiler import is_compiling
from torch.jit import ScriptModule

from bridge.annotate.cost import cost
from bridge.annotate.emit import state
from bridge.annotate.hooks import FunctionHook, Hooks
from bridge.annotate.label import checked_name
from bridge.frameworks.torch.blocks import (
    SharedSwitch,
    dataloader_waits,
    optimizer_steps,
    torch_hook,
)
from bridge.frameworks.torch.calls import (
    MODULES,
    ModuleCall,
    Site,
    begin_call,
    begin_pass,
    end_call,
    end_pass,
    forget_calls,
)
from bridge.frameworks.torch.functions import functions
from bridge.frameworks.torch.ops import native_ops
from bridge.frameworks.torch.ops import ops as every_op

WRAPPED = "_orig_mod"  # name of the module that torch.compile wraps
UNREADABLE = re.compile(r"\s|^:")  # characters that cannot be in the name of a module


# -- The sites of modules, by their identity, because a class of the program may compare modules in its own way


class Sites:
    """The sites of the process; an entry goes with its module."""

    def __init__(self) -> None:
        self.by_module: dict[int, Site] = {}
        self.annotated: list[
            dict[int, Site]
        ] = []  # those of each annotation of the program, the first counts
        self.names_all = False  # whether other modules get a site at their first call
        self._alive: dict[int, ref[Any]] = {}

    def add(
        self, modules: Iterable[tuple[str, Any]], make: Callable[[str], Site]
    ) -> dict[int, Site]:
        """Return new sites for modules; they count where a module has none of the program's own yet.

        A module that torch.compile wraps shares the site of its wrapper.
        """
        sites: dict[str, Site] = {}
        result: dict[int, Site] = {}
        for path, module in modules:
            key = id(module)
            site = result[key] = sites.setdefault(path, make(path))
            if isinstance(self.by_module.get(key, EVERY), EverySite):
                self.by_module[key] = site
            if key not in self._alive:
                self._alive[key] = ref(module, partial(self._forget, key))
        return result

    def remove(self, sites: dict[int, Site]) -> None:
        """Stop recording at some sites; those of the next annotation count in their place."""
        for key, site in sites.items():
            site.on = False
            if self.by_module.get(key) is site:
                others = (other[key] for other in self.annotated if key in other)
                other = next(others, None)
                if other is None:
                    self._forget(key)
                else:
                    self.by_module[key] = other

    def remove_every(self) -> None:
        """Stop recording at the sites of modules that the program did not annotate itself."""
        listed = list(self.by_module.items())
        self.remove({key: site for key, site in listed if isinstance(site, EverySite)})

    def _forget(self, key: int, _: object = None) -> None:
        for sites in (self.by_module, self._alive, *self.annotated):
            sites.pop(key, None)  # type: ignore[attr-defined]  # all are dictionaries

    def name_if_asked(self, root: Any) -> Site | None:
        """Give the modules of a model sites named by their paths, if all shall have one; others keep theirs."""
        if not self.names_all:
            return None
        modules = _modules(root, _class_name(root))
        self.add(((p, m) for p, m in modules if id(m) not in self.by_module), EverySite)
        return self.by_module[id(root)]


class EverySite(Site):
    """The site of a module that the program did not annotate itself."""


EVERY = EverySite("")
_sites = Sites()


def _modules(root: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every module once, with its first path, without a call of its methods."""
    seen, pending = set(), [(name, root)]
    while pending:
        path, module = pending.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield UNREADABLE.sub("_", path), module
        children = [(path if key == WRAPPED else f"{path}.{key}", m) for key, m in _inner(module)]
        pending += reversed(children)


def _inner(module: Any) -> list[tuple[str, Any]]:
    """Return the modules in one by their names."""
    inner = object.__getattribute__(module, "__dict__").get("_modules")
    if inner is None:
        return []
    # That of a scripted module is no dictionary.
    return list(dict.items(inner) if issubclass(type(inner), dict) else inner.items())


def _class_name(root: Any) -> str:
    """Return the class of a model, of the wrapped one if it is compiled."""
    if issubclass(type(root), ScriptModule):
        return str(root.original_name)
    wrapped = dict(_inner(root)).get(WRAPPED)
    return type(root if wrapped is None else wrapped).__name__


# -- The hook of every call


def _begin(module: Any, _args: Any, _kwargs: Any) -> ModuleCall | None:
    if state.idle or MODULES.broken or is_compiling():
        return None
    began = perf_counter_ns()
    try:
        site = _sites.by_module.get(id(module)) or _sites.name_if_asked(module)
        call = begin_call(site, id(module)) if site is not None else None
    except RecursionError:  # the program may need less of the stack than we do
        return None
    except Exception as error:
        if not MODULES.takes(error):
            raise
        return None
    if call is not None:
        try:
            cost.ns += perf_counter_ns() - began
        except BaseException:  # of a signal handler of the program
            end_call(call)
            raise
    return call


def _end(call: ModuleCall | None, output: Any) -> Any:
    if call is not None:
        began = perf_counter_ns()
        try:
            end_call(call)
            cost.add(perf_counter_ns() - began, 1)
        except Exception as error:
            if not MODULES.takes(error):
                raise
    return output


def _begin_pass(outputs: Any, arguments: Any, _: Any) -> list[Any]:
    if state.idle or MODULES.broken:
        return []
    began, handles = perf_counter_ns(), []
    try:
        handles = begin_pass(outputs, arguments)
    except Exception as error:
        if not MODULES.takes(error):
            raise
    if handles:
        cost.ns += perf_counter_ns() - began
    return handles


def _end_pass(handles: list[Any], result: Any) -> Any:
    if not handles:
        return result
    began = perf_counter_ns()
    try:
        end_pass(handles)
    except Exception as error:
        if not MODULES.takes(error):
            raise
    cost.ns += perf_counter_ns() - began
    return result


def _call_hooks() -> list[FunctionHook]:
    return [
        torch_hook(nn.Module._wrapped_call_impl, _begin, _end),  # noqa: SLF001 (what `__call__` is)
        torch_hook(graph._engine_run_backward, _begin_pass, _end_pass),  # noqa: SLF001 (what every pass calls)
    ]


_hooks = Hooks("modules of PyTorch", _call_hooks)


class Annotation:
    """The annotation of one model, until `remove` or the end of the block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def add_model(self, model: Any, name: str, *, backward: bool) -> None:
        """Annotate the modules of a model that are not annotated yet."""
        sites = _sites.add(_modules(model, name), partial(Site, backward=backward))
        _sites.annotated.append(sites)
        _hooks.request(+1)
        self._undo.append(partial(self._remove_model, sites))

    @staticmethod
    def _remove_model(sites: dict[int, Site]) -> None:
        _sites.annotated = [other for other in _sites.annotated if other is not sites]
        _sites.remove(sites)
        _hooks.request(-1)
        forget_calls()

    def add_functions(self, **kinds: bool) -> None:
        """Record functions and tensor methods of this thread."""
        switch = functions(**kinds)
        switch.enable()
        self._undo.append(switch.disable)

    def remove(self) -> None:
        """Stop recording; a second call does nothing."""
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
    root = None if name is None else checked_name(name)
    MODULES.broken = False
    annotation = Annotation()
    if calls:
        annotation.add_functions(functional=functional, tensor_methods=tensor_methods)
    if model is not None:
        annotation.add_model(model, root or _class_name(model), backward=backward)
    return annotation


class EveryModule(SharedSwitch):
    """Ranges around the calls of all modules of the process, and of their backward passes."""

    def request(self, by: int) -> None:
        """Count who requests them; the sites go with the last one."""
        if by > 0:
            MODULES.broken = False
        _hooks.request(by)
        EveryModule.requests += by
        _sites.names_all = EveryModule.requests > 0
        if not _sites.names_all:
            _sites.remove_every()
            forget_calls()

    requests = 0


def every_module() -> EveryModule:
    """Record every call of every module as a range.

    Paths start with the class of the first module called.
    """
    return EveryModule()


# -- All annotations at once


@contextmanager
def auto(
    model: Any = None,
    *,
    modules: bool = True,
    ops: bool | None = None,
    shapes: bool | str = False,
    optimizer: bool = True,
    dataloader: bool = True,
) -> Iterator[None]:
    """Annotate models, optimizers and data loaders in a block.

    Ops have ranges where PyTorch itself emits them: under a tool on a GPU. With ``ops`` or ``shapes``
    they have them everywhere, by modes (see `ops`), and without if ``ops`` is False. Several models are
    given as an iterable, or as a mapping from names.
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
        elif ops is None:
            undo.enter_context(native_ops())
        yield


def _named_models(model: Any) -> Iterable[tuple[str | None, Any]]:
    if model is None:
        return ()
    if isinstance(model, nn.Module):
        return ((None, model),)  # though nn.Sequential and others are iterable
    if isinstance(model, Mapping):
        return model.items()
    return ((None, root) for root in model)
