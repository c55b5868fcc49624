# requires: torch
"""Many optimizers, one after the other: closures, hooks, states that are saved and loaded, schedulers, averages."""

import copy
import io

import torch
from torch import nn
from torch.optim import swa_utils

import watched

KINDS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "foreach": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.05}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.01}),
    "LBFGS": (torch.optim.LBFGS, {"lr": 0.5, "max_iter": 4}),
}


class SignDescent(torch.optim.Optimizer):
    """An optimizer of the user's own, whose step calls that of another."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.inner = torch.optim.SGD(self.param_groups[0]["params"], lr=lr)

    def step(self, closure=None):
        loss = closure() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.sign_()
        self.inner.step()
        return loss


KINDS["own"] = (SignDescent, {"lr": 0.01})


def train(name, model, log):
    kind, options = KINDS[name]
    optimizer = kind(model.parameters(), **options)
    optimizer.register_step_pre_hook(lambda *_: log.append("before"))
    optimizer.register_step_post_hook(lambda *_: log.append("after"))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 6)).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        losses.append(optimizer.step(closure).item())
        scheduler.step()
        watched.step()
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    optimizer.load_state_dict(torch.load(saved))
    losses.append(optimizer.step(closure).item())
    copied = copy.deepcopy(optimizer)
    return losses, copied.state_dict()["param_groups"][0]["lr"], type(optimizer).step.__name__


def main():
    watched.begin()
    start = nn.Sequential(nn.Linear(6, 8), nn.ELU(), nn.Linear(8, 3))
    models = {name: copy.deepcopy(start) for name in KINDS}
    average = swa_utils.AveragedModel(start)
    log = []
    with watched.watched(*models.values()):
        for name, model in models.items():
            losses, rate, step = train(name, model, log)
            average.update_parameters(model)
            watched.show(name, *losses, rate, step, model)
    watched.show("average", average)
    watched.show("hooks", len(log), *log[:4])


if __name__ == "__main__":
    main()
