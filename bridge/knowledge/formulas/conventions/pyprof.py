"""What PyProf counts for an op in the forward pass; products and convolutions as we do.

Left out are the backward pass, which it tells by the order of kernels, and what it counts per kernel.
"""

from __future__ import annotations

from math import prod

from bridge.knowledge.formulas.call import Call, keys, tensor
from bridge.knowledge.formulas.registry import formula

SAME = ("matmul", "convolution")
WEIGHTS = {
    **dict.fromkeys("relu relu6 sigmoid tanh elu selu celu gelu silu softplus mish".split(), 1),
    **dict.fromkeys("leaky_relu hardtanh hardswish hardsigmoid threshold prelu".split(), 1),
    **dict.fromkeys("softmax _softmax".split(), 40),
    **dict.fromkeys("log_softmax _log_softmax".split(), 21),
    **dict.fromkeys("dropout native_dropout".split(), 5),
    **dict.fromkeys("batch_norm native_batch_norm cudnn_batch_norm".split(), 8),
    **dict.fromkeys("addcmul addcdiv".split(), 3),
    **dict.fromkeys("sum".split(), 1),
    **dict.fromkeys("embedding".split(), 0),
}
AND_ONE = {"mean": 1, "norm": 2}  # elements, and one more


def count(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it has no class for."""
    names = list(keys(call.name))
    for name in names:
        if name in AND_ONE:
            return AND_ONE[name] * prod(tensor(call, 0)) + 1
        if name in WEIGHTS:
            return WEIGHTS[name] * prod(tensor(call, 0))
    found = formula(call.name)
    if found is None or "backward" in call.name or found.kind not in (*SAME, "elementwise"):
        return None
    counted = found.flops(call)
    return counted if counted is None or "linear" not in names else counted + _bias(call)


def _bias(call: Call) -> int:
    """Return one for each output of a linear layer that has a bias."""
    given = call.shapes[2] if len(call.shapes) > 2 else None  # noqa: PLR2004 (input, weight, bias)
    return prod(tensor(call, 0)[:-1]) * prod(given) if given else 0
