# requires: torch
"""A tensor subclass, a TorchFunctionMode and a TorchDispatchMode that write down every access."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import watched

LOG = []


class Logged(torch.Tensor):
    """A subclass by __torch_function__."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        LOG.append(f"subclass {resolve_name(function) or function.__name__}")
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    """A subclass by __torch_dispatch__, which holds a tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        LOG.append(f"dispatched {function}")
        args, kwargs = tree_map_only(cls, lambda one: one.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, function(*args, **kwargs))


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        LOG.append(f"mode {resolve_name(function) or function.__name__}")
        return function(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        LOG.append(f"op {function}")
        return function(*args, **(kwargs or {}))


def main():
    watched.begin()
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    results = []
    with watched.watched(model):
        for number in range(8):
            values = torch.randn(3, 4).as_subclass(Logged).requires_grad_()
            LOG.append(f"subclass of functions {number}")
            output = model(values)
            output.sum().backward()
            results += [output, values.grad, output.shape[0]]
            LOG.append(f"subclass of dispatch {number}")
            wrapped = Wrapped(torch.randn(3, 4))
            with torch.no_grad():
                results.append(model(wrapped).inner)
            LOG.append(f"modes {number}")
            with Functions():
                results.append(model(torch.ones(2, 4)))
            with Dispatches():
                model(torch.ones(2, 4)).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
            model.zero_grad()
            watched.step()
    watched.show("results", *results)
    watched.show("kinds", *(type(one).__name__ for one in results[-5:]))
    watched.show("parameters", model)
    print("\n".join(LOG))


if __name__ == "__main__":
    main()
