# requires: torch
"""torch.func: gradients per sample by vmap, Jacobians, Hessians, ensembles of models, forward mode."""

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import watched


def main():
    watched.begin()
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 3))
    smooth = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    several = [nn.Sequential(nn.Linear(6, 4), nn.SiLU(), nn.Linear(4, 2)) for _ in range(3)]
    parameters = dict(model.named_parameters())

    def loss(parameters, sample, target):
        output = functional_call(model, parameters, (sample[None],))
        return nn.functional.cross_entropy(output, target[None])

    per_sample = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    losses, kept = [], []
    with watched.watched(model, smooth):
        for _ in range(12):
            samples, targets = torch.randn(16, 6), torch.randint(3, (16,))
            gradients, values = per_sample(parameters, samples, targets)
            parameters = {
                name: (parameter - 0.1 * gradients[name].mean(0)).detach()
                for name, parameter in parameters.items()
            }
            losses.append(values.mean().item())
            watched.step()
        row = torch.randn(6)
        kept += [jacrev(smooth)(row), hessian(lambda one: smooth(one).sum())(row)]
        kept += jvp(smooth, (row,), (torch.ones(6),))
        output, pull = vjp(smooth, row)
        kept += [output, *pull(torch.ones(1))]
        kept.append(vmap(grad(lambda one: smooth(one).sum()))(torch.randn(5, 6)))
        states, buffers = stack_module_state(several)
        together = vmap(
            lambda state, buffer, one: functional_call(several[0], (state, buffer), one),
            in_dims=(0, 0, None),
        )
        kept.append(together(states, buffers, torch.randn(7, 6)))
    watched.show("losses", *losses)
    watched.show("parameters", parameters)
    watched.show("transforms", *kept)


if __name__ == "__main__":
    main()
