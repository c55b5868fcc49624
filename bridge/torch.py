"""Annotate PyTorch programs without changing their code: modules, ops, optimizers, data loaders."""

from bridge.frameworks.torch import (
    Annotation,
    ApiCalls,
    BlockRanges,
    CustomOps,
    EveryModule,
    Ops,
    Stats,
    annotate,
    api_calls,
    auto,
    custom_ops,
    dataloader_waits,
    every_module,
    model_stats,
    ops,
    optimizer_steps,
)

__all__ = [
    "Annotation",
    "ApiCalls",
    "BlockRanges",
    "CustomOps",
    "EveryModule",
    "Ops",
    "Stats",
    "annotate",
    "api_calls",
    "auto",
    "custom_ops",
    "dataloader_waits",
    "every_module",
    "model_stats",
    "ops",
    "optimizer_steps",
]
