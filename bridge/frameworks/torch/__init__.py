"""Annotate PyTorch programs without touching their code: modules, ops, optimizers, data loaders."""

from importlib import import_module

try:
    import_module("torch.nn")  # not `torch` alone, which any folder of that name would be
except ImportError as problem:
    raise ImportError(f"bridge.torch needs PyTorch (pip install torch): {problem}") from None

from bridge.frameworks.torch.every_model import EveryModule, auto, every_module
from bridge.frameworks.torch.modules import Annotation, annotate
from bridge.frameworks.torch.ops import Ops, ops
from bridge.frameworks.torch.profiler_records import Recorded, dataloader_waits, optimizer_steps
from bridge.frameworks.torch.stats import Stats, model_stats

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
