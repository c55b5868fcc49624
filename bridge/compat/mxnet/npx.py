"""MXNet's `npx`, as far as the guide to its profiler uses it."""

from __future__ import annotations

import sys

__all__ = ["waitall"]


def waitall() -> None:
    """Wait for all work that PyTorch has launched on GPUs; do nothing where it uses none."""
    torch = sys.modules.get("torch")  # a program that has not loaded it has launched nothing
    if torch is None or not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
