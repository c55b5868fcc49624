"""Receptive fields: how many elements of the model's input an element of a tensor depends on.

They are known through convolutions, poolings and ops that work on single elements, from inputs of
three to five dimensions (batch, channels, and one to three more). Through any other op they are
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

BATCH_AND_CHANNELS = 2
# Ops whose outputs depend on the same place of their inputs alone, besides means over a batch.
ELEMENTWISE = frozenset(
    "relu relu_ add add_ sub sub_ mul mul_ div div_ sigmoid sigmoid_ tanh hardtanh hardtanh_ clamp clamp_"
    " clamp_min silu silu_ gelu elu elu_ leaky_relu leaky_relu_ hardswish hardswish_ hardsigmoid softplus"
    " native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm"
    " miopen_batch_norm batch_norm native_dropout cat clone detach _to_copy copy_".split()
)
POOLINGS = frozenset(
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices"
    " avg_pool1d avg_pool2d avg_pool3d".split()
)
CONVOLUTION = "convolution"
MAX_POOL = "max_"


class Field(NamedTuple):
    """Length and stride of a receptive field per dimension, in elements of the input."""

    lengths: tuple[int, ...]
    strides: tuple[int, ...]


class ReceptiveFields:
    """The fields of the tensors of one forward pass."""

    def __init__(self) -> None:
        self._fields: Any = WeakTensorKeyDictionary()

    def begin(self, inputs: Iterable[Tensor]) -> None:
        """Note the inputs of the model."""
        for tensor in inputs:
            axes = tensor.dim() - BATCH_AND_CHANNELS
            if axes > 0:
                self._fields[tensor] = Field((1,) * axes, (1,) * axes)

    def of(self, tensor: Tensor) -> Field | None:
        """Return the field of a tensor, None if it is unknown."""
        field: Field | None = self._fields.get(tensor)
        return field

    def note(self, op: str, args: Sequence[Any], outputs: Iterable[Any]) -> None:
        """Note the outputs of an op such as ``aten::relu``."""
        fields = [f for tensor in _tensors(args) if (f := self.of(tensor)) is not None]
        if not fields:
            return
        field = _after(op.partition("::")[2].partition(".")[0], args, _joined(fields))
        if field is None:
            return
        for tensor in _tensors(outputs):
            if tensor.dim() == len(field.lengths) + BATCH_AND_CHANNELS:
                self._fields[tensor] = field


def text(values: Sequence[int] | None) -> str:
    """Return lengths as ``7x7``, '' if they are unknown."""
    return "" if values is None else "x".join(map(str, values))


def _after(op: str, args: Sequence[Any], field: Field) -> Field | None:
    if op in ELEMENTWISE:
        return field
    axes = len(field.lengths)
    if op == CONVOLUTION:
        _, weight, _, stride, _, dilation, transposed, *_ = args
        if transposed or weight.dim() != axes + BATCH_AND_CHANNELS:
            return None
        kernel = tuple(weight.shape[BATCH_AND_CHANNELS:])
        return _widened(field, kernel, _per_axis(stride, axes), _per_axis(dilation, axes))
    if op in POOLINGS:
        given = dict(enumerate(args))  # the op's own tensor, kernel, stride, padding, dilation
        kernel = _per_axis(given[1], axes)
        stride = _per_axis(given.get(2) or kernel, axes)
        dilation = _per_axis(given.get(4, 1) if op.startswith(MAX_POOL) else 1, axes)
        return _widened(field, kernel, stride, dilation)
    return None


def _widened(
    field: Field, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Field:
    """Return the field after a window that moves over the tensor."""
    axes = zip(field.lengths, field.strides, kernel, dilation, strict=True)
    lengths = tuple(length + (k - 1) * d * step for length, step, k, d in axes)
    return Field(lengths, tuple(a * b for a, b in zip(field.strides, stride, strict=True)))


def _joined(fields: Sequence[Field]) -> Field:
    """Return the field of an op with several inputs: the largest along each dimension."""
    same = [field for field in fields if len(field.lengths) == len(fields[0].lengths)]
    lengths = zip(*(field.lengths for field in same), strict=True)
    strides = zip(*(field.strides for field in same), strict=True)
    return Field(tuple(map(max, lengths)), tuple(map(max, strides)))


def _per_axis(value: Any, axes: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * axes if len(values) == 1 else values


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
