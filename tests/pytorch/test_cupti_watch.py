"""A capture by CUPTI knows when PyTorch's profiler begins a trace with CUDA."""

from __future__ import annotations

import pytest
from small import torch

from bridge.capture.cupti.pytorch import Watch

pytestmark = pytest.mark.slow


def test_a_trace_with_cuda_is_told_before_it_begins(monkeypatch):
    profiler, left = torch.autograd.profiler, []
    monkeypatch.setattr(profiler, "_prepare_profiler", lambda *_, **__: None)
    watch = Watch(left.append)
    try:
        for activities in ("CPU",), ("CPU", "CUDA"):
            trace = profiler.profile(use_kineto=True)
            trace.kineto_activities = {
                getattr(torch.profiler.ProfilerActivity, a) for a in activities
            }
            trace._prepare_trace()
    finally:
        watch.end()
    assert len(left) == 1
    assert not hasattr(profiler.profile._prepare_trace, "__wrapped__")
