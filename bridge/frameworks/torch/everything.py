"""All annotations of a program at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from bridge.frameworks.torch.modules import annotate
from bridge.frameworks.torch.ops import ops as every_op
from bridge.frameworks.torch.recorded import dataloader_waits, optimizer_steps


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
