# requires: torch
"""What a program sees of its own models: hooks, signatures, attributes, pickles, copies, and when they die."""

import copy
import gc
import inspect
import io
import weakref

import torch
from torch import nn

import watched


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.log = []

    def forward(self, values, *, scale: float = 1.0):
        self.log.append(f"scale {scale}")
        return self.head(self.body(values)) * scale


def hooks(module):
    """Return how many hooks of each kind a module has."""
    kinds = sorted(name for name in vars(module) if name.endswith("_hooks"))
    return [f"{kind} {len(vars(module)[kind])}" for kind in kinds]


def main():
    watched.begin()
    model = Model()
    order = []
    model.body.register_forward_pre_hook(lambda *_: order.append("pre"))
    model.body.register_forward_hook(lambda *_: order.append("post"))
    model.head.register_full_backward_hook(lambda *_: order.append("backward"))
    with watched.watched(model):
        for _ in range(8):
            model(torch.ones(2, 4), scale=2.0).sum().backward()
            watched.step()
        lines = [
            str(inspect.signature(model.forward)),
            str(inspect.signature(model)),
            model.forward.__qualname__,
            str("forward" in vars(model)),
            *sorted(vars(model.body)),
            *map(str, dict(model.named_modules())),
            repr(model),
        ]
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        copied = copy.deepcopy(model)
        lines.append(str(type(copied)))
        watched.show("copy", copied(torch.ones(2, 4)), copied)
        plain = Model()
        pickled = io.BytesIO()
        plain(torch.ones(1, 4))
        torch.save(plain, pickled)
        pickled.seek(0)
        loaded = torch.load(pickled, weights_only=False)
        watched.show("loaded", loaded(torch.ones(1, 4)), len(pickled.getvalue()))
        output = plain(torch.ones(1, 4))
        dies = weakref.ref(plain), weakref.ref(output)
        del plain, output
        lines.append(f"dead at once {[one() is None for one in dies]}")
        gc.collect()
        lines.append(f"dead after collection {[one() is None for one in dies]}")
        garbage = gc.garbage.copy()
    watched.show("parameters", model, *(one.grad for one in model.parameters()), len(garbage))
    print("\n".join([*lines, *order, *model.log]))
    print("after", *hooks(model), *hooks(model.head))


if __name__ == "__main__":
    main()
