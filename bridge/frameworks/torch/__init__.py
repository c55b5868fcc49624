"""Annotate PyTorch programs without changing their code: modules, ops, optimizers, data loaders."""

from importlib import import_module

try:
    import_module(
        "torch.nn"
    )  # not `torch` alone, because any folder of that name could be imported
except ImportError as problem:
    raise ImportError(f"bridge.torch needs PyTorch (pip install torch): {problem}") from problem

from bridge.frameworks.torch.blocks import BlockRanges, dataloader_waits, optimizer_steps
from bridge.frameworks.torch.custom_ops import CustomOps, custom_ops
from bridge.frameworks.torch.functions import ApiCalls, Functions, api_calls, functions
from bridge.frameworks.torch.modules import Annotation, EveryModule, annotate, auto, every_module
from bridge.frameworks.torch.ops import Ops, native_ops, ops
from bridge.frameworks.torch.stats import Stats, model_stats

__all__ = [
    "Annotation",
    "ApiCalls",
    "BlockRanges",
    "CustomOps",
    "EveryModule",
    "Functions",
    "Ops",
    "Stats",
    "annotate",
    "api_calls",
    "auto",
    "custom_ops",
    "dataloader_waits",
    "every_module",
    "functions",
    "model_stats",
    "native_ops",
    "ops",
    "optimizer_steps",
]
