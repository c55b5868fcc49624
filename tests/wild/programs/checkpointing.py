# requires: torch
"""Activation checkpointing, with and without reentry, of dropout and of selected ops; hooks of saved tensors."""

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import watched


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.25)
        self.calls = 0

    def forward(self, values):
        self.calls += 1
        return values + self.dropout(self.linear(self.norm(values)).relu())


def policy(context, op, *args, **kwargs):
    saved = (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    return CheckpointPolicy.MUST_SAVE if op in saved else CheckpointPolicy.PREFER_RECOMPUTE


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(5))
        self.tail = nn.Sequential(Block(16), nn.Tanh(), Block(16), nn.Linear(16, 4))

    def forward(self, values):
        values = checkpoint(self.blocks[0], values, use_reentrant=False)
        values = checkpoint(self.blocks[1], values, use_reentrant=True)
        values = checkpoint(self.blocks[2], values, use_reentrant=False, context_fn=self.selected)
        values = checkpoint(
            lambda both: self.blocks[4](self.blocks[3](both)), values, use_reentrant=False
        )
        return checkpoint_sequential(self.tail, 2, values, use_reentrant=False)

    @staticmethod
    def selected():
        return create_selective_checkpoint_contexts(policy)


def main():
    watched.begin()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, kept = [], []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    with watched.watched(model):
        for _ in range(12):
            values = torch.randn(8, 16, requires_grad=True)
            loss = model(values).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            watched.step()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model.tail(values).sum().backward()
    watched.show("losses", *losses)
    watched.show("parameters", model, values.grad)
    blocks = [one for one in model.modules() if isinstance(one, Block)]
    watched.show("calls", *(block.calls for block in blocks))
    watched.show("kept", *kept)
    watched.show("random", torch.rand(3))


if __name__ == "__main__":
    main()
