"""Annotate PyTorch programs without changing their code: modules, ops, optimizers, data loaders."""

from bridge.frameworks.torch import (
    Annotation,
    BlockRanges,
    EveryModule,
    Ops,
    Stats,
    annotate,
    auto,
    dataloader_waits,
    every_module,
    model_stats,
    ops,
    optimizer_steps,
)

__all__ = [
    "Annotation",
    "BlockRanges",
    "EveryModule",
    "Ops",
    "Stats",
    "annotate",
    "auto",
    "dataloader_waits",
    "every_module",
    "model_stats",
    "ops",
    "optimizer_steps",
]
