"""Annotate PyTorch programs without changing their code: modules, ops, optimizers, data loaders."""

from bridge.frameworks.torch import (
    Annotation,
    BlockRanges,
    EveryModule,
    Functions,
    Ops,
    Stats,
    annotate,
    auto,
    dataloader_waits,
    every_module,
    functions,
    model_stats,
    ops,
    optimizer_steps,
)

__all__ = [
    "Annotation",
    "BlockRanges",
    "EveryModule",
    "Functions",
    "Ops",
    "Stats",
    "annotate",
    "auto",
    "dataloader_waits",
    "every_module",
    "functions",
    "model_stats",
    "ops",
    "optimizer_steps",
]
