"""An op of one's own in PyTorch, with the number of its FLOPs, and a library annotated from outside.

nsys profile -t cuda,nvtx -o report python examples/custom_op.py
bridge report report.nsys-rep --by range --arguments
"""

import torch

import bridge
from bridge.knowledge.formulas import Call, register


def counted(call: Call) -> int:
    """Three operations for each element of the first input."""
    rows, columns = call.shapes[0]
    return 3 * rows * columns


register("mylib::scaled_gelu", counted)


@bridge.nvtx_op("mylib::scaled_gelu", domain="mylib", shapes=True, flops="auto", args=("scale",))
def scaled_gelu(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    with bridge.nvtx_op("mylib::scaled_gelu::gelu", domain="mylib"):
        activated = torch.nn.functional.gelu(x)
    return activated * scale


with bridge.wrap(torch.linalg, ["norm"]):  # to the end of the block, torch.linalg.norm is an op
    for scale in (0.5, 1.0, 2.0):
        print(f"{torch.linalg.norm(scaled_gelu(torch.ones(8, 4), scale)).item():.3f}")
