"""Small models, and PyTorch itself, without which the tests that import this are skipped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

# Not "torch" alone: this folder has that name.
nn = pytest.importorskip("torch.nn", reason="PyTorch is not installed")

import torch  # noqa: E402

torch.set_num_threads(1)  # of several, more would be spent in waiting for them

WIDTH, WORDS = 16, 11
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def from_torch(*version: int, to: tuple[int, int] = (99, 0)):
    """Skip a test with PyTorch older than the version, or newer than `to`: it compares with what they do not have."""
    reason = f"PyTorch {torch.__version__} has not what this compares with"
    return pytest.mark.skipif(not version <= VERSION <= to, reason=reason)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.0)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


LAYER = ["", *".norm .attention .attention.qkv .attention.out .mlp .mlp.0 .mlp.1 .mlp.2".split()]
WITHOUT_NODES = [f"Transformer.layers.{n}.mlp.3" for n in range(2)]  # Dropout(0) returns its input
WITH_NODES = [
    *("Transformer", "Transformer.embedding", "Transformer.head"),
    *(f"Transformer.layers.{n}{path}" for n in range(2) for path in LAYER),
]


@dataclass
class Pair:
    left: object
    right: object


def transformer():
    torch.manual_seed(0)
    return Transformer()


def mlp(width: int = 4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def words(step: int):
    return torch.randint(WORDS, (2, 6), generator=torch.Generator().manual_seed(step))


def loss_of(model, step: int = 0):
    batch = words(step)
    logits = model(batch)
    return logits, nn.functional.cross_entropy(logits.flatten(0, 1), batch.flatten())


def train(model, steps: int = 3) -> list:
    """Train, and give all that came of it: losses, outputs, gradients, parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found: list = []
    for step in range(steps):
        optimizer.zero_grad()
        logits, loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        found += [loss.detach(), logits.detach()]
        found += [parameter.grad.clone() for parameter in model.parameters()]
        found += [parameter.detach().clone() for parameter in model.parameters()]
    return found


def identical(some: list, others: list) -> bool:
    """Tell whether tensors are the same to the bit."""
    return len(some) == len(others) and all(
        torch.equal(one.view(torch.int32), other.view(torch.int32))
        for one, other in zip(some, others, strict=True)
    )
