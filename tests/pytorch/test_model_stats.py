"""What a model is made of and computes, against counts by hand and against PyTorch's FlopCounterMode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from bridge.frameworks.torch.stats import COLUMNS, model_stats  # noqa: E402


class Twice(nn.Module):
    """A layer that is called twice, and one whose weight is its own too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6, bias=False)
        self.tied.weight = self.layer.weight

    def forward(self, x):
        return self.tied(self.layer(self.layer(x)))


def small():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, groups=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )


def by_name(stats):
    return {one.module: one for one in stats.modules}


def test_modules_by_hand():
    found = by_name(model_stats(small(), torch.zeros(2, 3, 8, 8)))
    conv, norm, linear = found["0"], found["1"], found["4"]
    assert (conv.params, conv.output, conv.activations) == (8 * 27 + 8, "[2, 8, 8, 8]", 2 * 8 * 64)
    assert conv.activation_bytes == 4 * 2 * 8 * 64
    assert conv.flops == 2 * 2 * 64 * 27 * 8
    assert (norm.params, norm.buffers) == (16, 17)
    assert linear.flops == 2 * 2 * 512 * 10
    assert found[""].type == "Sequential"
    assert found[""].flops == sum(found[name].flops for name in "01234")


def test_totals_take_each_tensor_once():
    stats = model_stats(Twice(), torch.zeros(5, 6))
    found = by_name(stats)
    assert stats.params == 36 + 6
    assert stats.bytes == 4 * 42
    assert (found["layer"].calls, found["tied"].calls) == (2, 1)
    assert found["layer"].flops == 2 * (2 * 5 * 36)
    assert stats.flops == 3 * (2 * 5 * 36)
    assert found["layer"].activations == 2 * 5 * 6


def test_flop_counter_mode_says_the_same():
    model, x = small(), torch.zeros(2, 3, 8, 8)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(x)
    assert model_stats(model, x, convention="flopcounter").flops == counter.get_total_flops()


def test_nothing_of_the_model_is_changed():
    model = small()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    model_stats(model, torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Failing(nn.Module):
    def forward(self, x):
        raise RuntimeError("no")


def test_a_model_that_fails_leaves_no_hooks():
    model = nn.Sequential(nn.Linear(2, 2), Failing())
    with pytest.raises(RuntimeError, match="no"):
        model_stats(model, torch.zeros(1, 2))
    assert not any(module._forward_hooks for module in model.modules())


class Sorted(nn.Module):
    def forward(self, x):
        return torch.argsort(x)


def test_what_has_no_formula_is_said():
    model = nn.Sequential(nn.Linear(2, 4), Sorted())
    found = by_name(model_stats(model, torch.zeros(3, 2)))
    assert found["1"].flops == -1
    assert found["1"].no_formula
    assert found[""].flops == found["0"].flops == 2 * 3 * 2 * 4
    assert "no formula" in model_stats(model, torch.zeros(3, 2)).table()


def test_as_a_table_and_a_frame():
    stats = model_stats(small(), torch.zeros(2, 3, 8, 8))
    text = str(stats)
    assert "Conv2d" in text
    assert f"{stats.params:,} parameters" in text
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = stats.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert frame["flops"].tolist() == [one.flops for one in stats.modules]


def test_a_wrong_convention_is_refused():
    with pytest.raises(ValueError, match="no convention 'mine'"):
        model_stats(small(), torch.zeros(2, 3, 8, 8), convention="mine")
