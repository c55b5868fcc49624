"""Ranges for NVIDIA's tools, and the part of the program that they capture."""

import torch

from bridge.compat import mxnet
from bridge.compat.mxnet import profiler

profiler.set_config(filename="nvtx.json", profile_api=False, profile_memory=False)
profiler.set_state("run")
mxnet.cuda.cuda_profiler_start()
mxnet.cuda.nvtx.range_push("forward", "blue")
y = torch.ones(8, 8) @ torch.ones(8, 8)
mxnet.cuda.nvtx.range_push("loss", 0xFF8000)
y.sum()
mxnet.cuda.nvtx.range_pop()
mxnet.cuda.nvtx.range_pop()
with mxnet.cuda.nvtx.range("update", color="green"):
    y.add_(1)
mxnet.cuda.cuda_profiler_stop()
profiler.set_state("stop")
profiler.dump()
