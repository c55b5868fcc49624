"""A second witness of which kernels use Tensor Cores: the list of PyTorch's plugin for TensorBoard, of 2021."""

from __future__ import annotations

import json
import re

import pytest
from kernels.test_kernels_rules import CORPUS

from bridge.knowledge import kernels

pytestmark = pytest.mark.slow

FP32_PIPES = "_ffma_"  # a GEMM of cuBLAS that says so; the plugin goes by `xmma_gemm` alone
LATER = re.compile(
    "flash_fwd_kernel|_tf32f32_tf32f32_|_d884gemm_|_s161616gemm_bf16_|^nvjet_"
)  # what the plugin's list lacks


def test_kernels_of_the_corpus(tool_says, tmp_path):
    names = tmp_path / "names.json"
    names.write_text(json.dumps([*CORPUS]), encoding="utf-8")
    theirs = dict(zip(CORPUS, tool_says("in_tensorboard_cores.py", names), strict=True))
    assert sum(theirs.values()) > 50
    for name, kernel in zip(CORPUS, kernels.kinds_of(CORPUS), strict=True):
        expected = bool(LATER.search(name)) or (theirs[name] and FP32_PIPES not in name)
        assert (kernel.tensor_cores == kernels.YES) == expected, name
