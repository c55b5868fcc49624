# requires: torch
"""Mixed precision: bfloat16 under autocast on the CPU, its cache of casts, functions with their own precision."""

import torch
from torch import nn

import watched


class Wide(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, left, right):
        ctx.save_for_backward(left, right)
        return left @ right

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        left, right = ctx.saved_tensors
        return gradient @ right.T, left.T @ gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8 * 16, 10)
        self.matrix = nn.Parameter(torch.randn(10, 10) * 0.1)

    def forward(self, images):
        hidden = nn.functional.max_pool2d(self.norm(self.convolution(images)).relu(), 2)
        twice = self.linear(hidden.flatten(1)) + self.linear(hidden.flatten(1))
        with torch.autocast("cpu", enabled=False):
            scaled = twice.float() * 0.5
        return Wide.apply(scaled, self.matrix)


def main():
    watched.begin()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    losses, kinds = [], []
    with watched.watched(model):
        for _ in range(12):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(torch.randn(8, 3, 8, 8))
                loss = nn.functional.cross_entropy(output, torch.randint(10, (8,)))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses += [loss.item(), norm.item()]
            kinds.append(str(output.dtype))
            watched.step()
        half = model.to(torch.bfloat16).eval()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            late = half(torch.randn(2, 3, 8, 8).bfloat16())
    watched.show("losses", *losses)
    watched.show("parameters", model, scaler.state_dict())
    watched.show("late", late, str(late.dtype), *kinds[:1])


if __name__ == "__main__":
    main()
