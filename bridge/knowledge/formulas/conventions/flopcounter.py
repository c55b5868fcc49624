"""What PyTorch's FlopCounterMode counts: products, convolutions and attention, by the ops below autograd.

A convolution's gradient of the weight counts once for each group, and where heads stand after the sequence
the one is taken for the other: both as it does.
"""

from __future__ import annotations

from bridge.knowledge.formulas import attention, convolution
from bridge.knowledge.formulas.call import Call, Count, keys
from bridge.knowledge.formulas.contraction import INNER, product

BATCH = ((0,), (0,))
SDPA = "_scaled_dot_product_{}_attention"
KINDS = ("efficient", "flash", "cudnn")

COUNTED: dict[str, Count] = {
    "mm": product((2, 2), INNER)[0],
    "_scaled_mm": product((2, 2), INNER)[0],
    "addmm": product((2, 2), INNER, first=1)[0],
    "bmm": product((3, 3), INNER, BATCH)[0],
    "baddbmm": product((3, 3), INNER, BATCH, first=1)[0],
    **dict.fromkeys(
        ("convolution", "_convolution", "convolution_overrideable"),
        convolution.convolution(convolution.GENERAL)[0],
    ),
    "cudnn_convolution": convolution.convolution(convolution.CUDNN)[0],
    "_slow_conv2d_forward": convolution.convolution(convolution.SLOW)[0],
    "convolution_backward": convolution.backward(convolution.BACKWARD, by_groups=True)[0],
    **{SDPA.format(kind): attention.attention()[0] for kind in KINDS},
    **{f"{SDPA.format(kind)}_backward": attention.backward()[0] for kind in KINDS},
    "_flash_attention_forward": attention.attention(packed=3)[0],
    "_efficient_attention_forward": attention.attention(packed=4)[0],
    "_flash_attention_backward": attention.backward(packed=6)[0],
    "_efficient_attention_backward": attention.backward(packed=6)[0],
}


def count(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it does not count."""
    counted = next((COUNTED[key] for key in keys(call.name) if key in COUNTED), None)
    return None if counted is None else counted(call)
