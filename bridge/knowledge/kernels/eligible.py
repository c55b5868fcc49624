"""Which ops could use Tensor Cores: products of matrices, convolutions, attention, recurrent layers.

The invariant: products of vectors are none, no library computes them on Tensor Cores.
"""

from __future__ import annotations

import re

from bridge.knowledge.formulas.names import keys
from bridge.knowledge.formulas.registry import formula

KINDS = frozenset(["matmul", "convolution", "attention", "recurrent"])  # of formulas
ALSO = frozenset(  # products that have no formula
    "chain_matmul linalg_multi_dot linalg_matmul bilinear _trilinear multi_head_attention_forward"
    " _native_multi_head_attention _transformer_encoder_layer_fwd conv_tbc"
    " _cudnn_rnn_backward _thnn_fused_lstm_cell _thnn_fused_gru_cell".split()
)
NOT = frozenset("mv addmv dot inner vdot outer ger addr".split())  # of vectors


NODE = re.compile(r"\b([A-Z][A-Za-z0-9]*?)Backward\d*\Z")  # of PyTorch's autograd
CAPITAL = re.compile(r"(?<!\A)(?=[A-Z])")


def eligible(op: str) -> bool:
    """Tell whether the op of this name could use Tensor Cores, given the right types and shapes.

    A node of PyTorch's autograd is taken for the op that it is the backward of: ``AddmmBackward0`` for ``addmm``.
    """
    node = NODE.search(op)
    return any(map(_eligible, _forward(node[1]) if node else (op,)))


def _forward(node: str) -> tuple[str, str]:
    name = CAPITAL.sub("_", node).lower()
    return name, f"_{name}"


def _eligible(op: str) -> bool:
    names = set(keys(op))
    if names & NOT:
        return False
    found = formula(op)
    return bool(names & ALSO) or (found is not None and found.kind in KINDS)
