"""What the programs of RAF's guides take from `raf.testing`: inputs, training steps, executors.

A model is a `torch.nn.Module`. What RAF returns twice, for itself and for PyTorch, is one tensor here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bridge.compat.raf.ir import Call
from bridge.knowledge.suggestions import unknown_name

LEARNING_RATE, MOMENTUM = 0.1, 0.01
OPTIMIZERS = ("sgd",)


def _torch() -> Any:
    return import_module("torch")


def randn_torch(shape: Sequence[int], *, device: str = "cpu", dtype: str = "float32") -> Any:
    """Return a tensor of random numbers, twice."""
    torch = _torch()
    tensor = torch.randn(tuple(shape), device=device, dtype=getattr(torch, dtype))
    return tensor, tensor


def randint(
    shape: Sequence[int], *, low: int = 0, high: int = 10, dtype: str = "int64", device: str = "cpu"
) -> Any:
    """Return a tensor of random integers from ``low`` to below ``high``, twice."""
    torch = _torch()
    tensor = torch.randint(low, high, tuple(shape), dtype=getattr(torch, dtype), device=device)
    return tensor, tensor


def one_hot_torch(batch: int, num_classes: int, *, device: str = "cpu") -> Any:
    """Return a class per row of a batch, twice."""
    return randint((batch,), high=num_classes, device=device)


@dataclass(frozen=True)
class Record:
    """What RAF traces of a model: ``mod`` is what an executor runs."""

    mod: Any


class TrainingStep:
    """A model with its loss and its optimizer: a call is a training step.

    An output of more than two dimensions, as ``out_shape`` says, is a row of classes per label.
    """

    def __init__(self, model: Any, out_shape: Sequence[int] = ()) -> None:
        torch = _torch()
        self.model = model
        self._has_more_dimensions = bool(out_shape[2:])  # than rows and classes
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def to(self, device: str) -> TrainingStep:
        """Move the model to a device."""
        self.model.to(device)
        return self

    def __call__(self, gradient: Any, data: Any, label: Any) -> Any:
        """Run forward, backward and update; return the loss."""
        out = self.model(data)
        if self._has_more_dimensions:
            out, label = out.reshape(-1, out.shape[-1]), label.reshape(-1)
        loss = self._loss(out, label)
        self._optimizer.zero_grad()
        loss.backward(gradient)
        self._optimizer.step()
        return loss

    def _internal(self, *_: Any) -> Record:
        return Record(self)


def append_loss_n_optimizer(
    model: Any,
    args: Sequence[Any] = (),
    out_shape: Sequence[int] = (),
    y_true: Any = None,
    optimizer: str = "sgd",
) -> TrainingStep:
    """Return a training step of a model; its arguments are the gradient of the loss, data, labels.

    ``out_shape`` is the shape of the model's output; ``args`` and ``y_true``, of which RAF traces the
    model, are not needed. Raises ValueError for an optimizer that PyTorch does not have.
    """
    del args, y_true
    if optimizer not in OPTIMIZERS:
        raise ValueError(unknown_name("optimizer", optimizer, OPTIMIZERS))
    return TrainingStep(model, out_shape)


def get_vm_executor(mod: Any, device: str) -> Any:
    """Return the model on a device."""
    return mod.to(str(device).partition("(")[0])


def run_vm_executor(executor: Any, _: Any, args: Sequence[Any], device: str) -> Any:
    """Run a model with its arguments on a device, and wait for it."""
    torch, name = _torch(), str(device).partition("(")[0]
    result = executor(*(a.to(name) if isinstance(a, torch.Tensor) else a for a in args))
    if name == "cuda":
        torch.cuda.synchronize()
    return result


def run_vm_model(model: Any, device: str, args: Sequence[Any]) -> Any:
    """Run a model once on a device."""
    return run_vm_executor(get_vm_executor(model, device), None, args, device)


def run_infer_type(expr: Call) -> Call:
    """Return an expression; PyTorch knows its types when it runs it."""
    return expr
