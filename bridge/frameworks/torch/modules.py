"""Annotate a model: every call of every module in it becomes a range, forward and backward.

The invariant: `remove` leaves the model as it was, attribute by attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Self

from torch import nn

from bridge.annotate.label import checked_name
from bridge.frameworks.torch.calls import Site

WRAPPED = "_orig_mod"  # where torch.compile keeps the module that it wraps
COMPILED = "_compiled_call_impl"  # what Module.compile() has made of a module's call
UNREADABLE = re.compile(r"\s|^:")  # in what `bridge` reads as the name of a module


class Annotation:
    """The annotation of one model, until `remove` or the end of the block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def add(self, module: Any, site: Site) -> None:
        """Annotate one module, unless it is scripted, and takes no hooks."""
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

    def remove(self) -> None:
        """Take all hooks away, and close what is open; a second time, do nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.remove()


def annotate(model: Any, *, name: str | None = None, backward: bool = True) -> Annotation:
    """Make ranges of all calls of a model's modules, until the annotation is removed.

    The forward calls are `module:<path>`, their backward work `backward:<path>`; a path begins with
    ``name`` or the model's class. Modules that are annotated already stay as they are. Raises
    TypeError for what is no module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"annotate takes a torch.nn.Module, not {model!r}")
    root = type(_wrapped(model) or model).__name__ if name is None else checked_name(name)
    annotation = Annotation()
    for path, module in list(_modules(model, root, set())):
        if not _annotated(module):
            annotation.add(module, Site(UNREADABLE.sub("_", path), on=True, backward=backward))
    return annotation


def _modules(module: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Give every module once, by its first path, but none in a compiled one.

    Hooks there would be compiled away, after a compilation for the sake of them.
    """
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    if _compiled(module):
        seen.update(map(id, module.modules()))
        return
    for name, child in module.named_children():
        yield from _modules(child, f"{path}.{name}", seen)


def _annotated(module: Any) -> bool:
    """Tell whether a module, or the one that it wraps, has hooks of ours."""
    hooks = [*module._forward_pre_hooks.values(), getattr(module, COMPILED, None)]  # noqa: SLF001 (PyTorch has no public list of hooks)
    sites = (getattr(hook, "__self__", None) for hook in hooks)
    found = any(isinstance(site, Site) and site.on for site in sites)
    wrapped = _wrapped(module)
    return found or (wrapped is not None and _annotated(wrapped))


def _compiled(module: Any) -> bool:
    return getattr(module, COMPILED) is not None or _wrapped(module) is not None


def _wrapped(module: Any) -> Any:
    return dict(module.named_children()).get(WRAPPED)


def _surround(module: Any, site: Site) -> Callable[[], None]:
    """Put a range around the compiled call of a module, whose hooks run in the compiled code."""
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

    call.__self__ = site  # type: ignore[attr-defined]  # as the hooks of other modules have it
    setattr(module, COMPILED, call)
    return undo
