"""Annotate PyTorch programs without touching their code: modules, ops, optimizers, data loaders."""

from bridge.frameworks.torch import (
    Annotation,
    EveryModule,
    Ops,
    Recorded,
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
    "EveryModule",
    "Ops",
    "Recorded",
    "Stats",
    "annotate",
    "auto",
    "dataloader_waits",
    "every_module",
    "model_stats",
    "ops",
    "optimizer_steps",
]
