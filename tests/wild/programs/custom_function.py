# requires: torch
"""Functions of autograd as people write them: saved tensors, a context set up apart, once and twice differentiable."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

import watched


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        result = values.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * result


class ScaledCube(torch.autograd.Function):
    """A context that is set up apart, an input that is no tensor, and a rule for vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values, factor):
        return values**3 * factor, values**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        values, ctx.factor = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(values)

    @staticmethod
    def backward(ctx, gradient, _):
        (values,) = ctx.saved_tensors
        return gradient * 3 * values**2 * ctx.factor, None


class Rounded(torch.autograd.Function):
    """A straight-through estimator that changes its input in place."""

    @staticmethod
    def forward(ctx, values):
        ctx.mark_dirty(values)
        return values.round_()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.leave = nn.Linear(16, 4)

    def forward(self, values):
        hidden = Exp.apply(self.enter(values))
        cubed, squared = ScaledCube.apply(hidden.tanh(), 0.5)
        return self.leave(cubed + squared), Rounded.apply(hidden * 2)


def main():
    watched.begin()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    with watched.watched(model):
        for _ in range(12):
            optimizer.zero_grad()
            outputs, rounded = model(torch.randn(32, 8))
            loss = outputs.square().mean() + rounded.mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            watched.step()
        twice = torch.randn(5, 8, requires_grad=True)
        (first,) = torch.autograd.grad(model(twice)[0].sum(), twice, create_graph=True)
        first.square().sum().backward()
        each = torch.func.vmap(lambda row: ScaledCube.apply(row, 2.0)[0])(torch.randn(6, 3))
        names = type(model(twice)[0].grad_fn).__name__, type(Exp.apply(twice).grad_fn).__name__
    watched.show("losses", *losses)
    watched.show("parameters", model)
    watched.show("second", first, twice.grad, each)
    watched.show("nodes", *names)


if __name__ == "__main__":
    main()
