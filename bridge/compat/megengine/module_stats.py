"""MegEngine's `module_stats`: parameters, activations, FLOPs and receptive fields of a model.

The model is a module of PyTorch. One multiply-add counts as one FLOP, as in MegEngine; layers
without a formula there count as 0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bridge.frameworks.torch.stats import Module, Stats

KIB, UNITS = 1024, ("B", "KiB", "MiB", "GiB", "TiB")
KILO, COUNTS = 1000, ("", "K", "M", "G", "T")


class TotalStats(NamedTuple):
    """Sums of the model; sizes are in bytes, dims are numbers of elements."""

    param_size: int
    param_dims: int
    flops: int
    act_size: int
    act_dims: int


class StatsDetails(NamedTuple):
    """One entry per layer: its parameters, its FLOPs with receptive field, and its activations."""

    params: list[dict[str, Any]]
    flops: list[dict[str, Any]]
    activations: list[dict[str, Any]]


@dataclass(frozen=True)
class StatsOptions:
    """What `module_stats` computes and prints, by MegEngine's names."""

    cal_params: bool = True
    cal_flops: bool = True
    cal_activations: bool = True
    logging_to_stdout: bool = True
    bar_length_max: int = 20


def module_stats(
    model: Any, inputs: Any = None, input_shapes: Any = None, **options: Any
) -> tuple[TotalStats, StatsDetails]:
    """Run a forward pass; return the sums and the entries of each layer, and print them.

    ``inputs`` is a tensor, or a sequence or mapping of tensors; ``input_shapes`` is a shape or a
    list of shapes, for which tensors of zeros are made. ``options`` are the fields of
    `StatsOptions`. Raises ValueError without inputs, TypeError for an unknown option.
    """
    from bridge.frameworks.torch.stats import model_stats

    request = StatsOptions(**options)
    positional, named = _inputs(inputs, input_shapes)
    stats = model_stats(model, *positional, convention="module_stats", **named)
    details = StatsDetails(
        _params(model) if request.cal_params else [],
        _flops(stats, model) if request.cal_flops else [],
        _activations(stats) if request.cal_activations else [],
    )
    total = TotalStats(
        param_size=sum(entry["size_bytes"] for entry in details.params),
        param_dims=sum(entry["size"] for entry in details.params),
        flops=sum(entry["flops_num"] for entry in details.flops),
        act_size=sum(entry["size_bytes"] for entry in details.activations),
        act_dims=sum(entry["act_dim"] for entry in details.activations),
    )
    if request.logging_to_stdout:
        sys.stdout.write(f"{report(total, details, request.bar_length_max)}\n")
    return total, details


def _inputs(inputs: Any, shapes: Any) -> tuple[list[Any], dict[str, Any]]:
    import torch

    if inputs is None and shapes is None:
        raise ValueError("module_stats: give inputs or input_shapes")
    if inputs is None:
        several = isinstance(shapes[0], Sequence)
        return [torch.zeros(*shape) for shape in (shapes if several else [shapes])], {}
    if isinstance(inputs, dict):
        return [], inputs
    return (list(inputs) if isinstance(inputs, list | tuple) else [inputs]), {}


def _params(model: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "shape": list(tensor.shape),
            "size": tensor.numel(),
            "size_bytes": tensor.numel() * tensor.element_size(),
            "mean": float(tensor.detach().float().mean()) if tensor.numel() else 0.0,
            "std": float(tensor.detach().float().std(unbiased=False)) if tensor.numel() else 0.0,
        }
        for name, tensor in model.named_parameters()
    ]


def _layers(stats: Stats) -> Iterable[Module]:
    """Yield the modules that ran and contain no other module."""
    names = {module.module for module in stats.modules}
    inner = {name.rpartition(".")[0] for name in names if name}
    return (m for m in stats.modules if m.calls and (not inner or m.module not in inner))


def _flops(stats: Stats, model: Any) -> list[dict[str, Any]]:
    entries, total = [], 0
    for layer in _layers(stats):
        count = max(layer.flops, 0) + _bias_of_linear(layer, model)
        total += count
        entries.append(
            {
                "name": layer.module,
                "class_name": layer.type,
                "input_shapes": layer.input,
                "output_shapes": layer.output,
                "flops_num": count,
                "flops_cum": total,
                "receptive_field": layer.receptive_field,
                "stride": layer.stride,
            }
        )
    return entries


def _bias_of_linear(layer: Module, model: Any) -> int:
    """Return what MegEngine adds for the bias of a linear layer, which PyTorch's op hides."""
    module = model.get_submodule(layer.module)
    return int(module.out_features) if layer.type == "Linear" and module.bias is not None else 0


def _activations(stats: Stats) -> list[dict[str, Any]]:
    return [
        {
            "name": layer.module,
            "class_name": layer.type,
            "shape": layer.output,
            "act_dim": layer.activations,
            "size_bytes": layer.activation_bytes,
        }
        for layer in _layers(stats)
    ]


# -- Texts


def report(total: TotalStats, details: StatsDetails, bar_length: int = 20) -> str:
    """Return the entries and the sums as text."""
    parts: list[str] = []
    rows: list[tuple[str, ...]] = []
    if details.params:
        rows = [
            (e["name"], e["shape"], f"{e['size']:,}", _size(e["size_bytes"]))
            for e in details.params
        ]
        shares = [e["size"] for e in details.params]
        parts.append(
            _table(
                "params",
                ("name", "shape", "elements", "size"),
                rows=rows,
                parts=shares,
                bar=bar_length,
            )
        )
    if details.flops:
        keys = ("name", "class_name", "input_shapes", "output_shapes", "receptive_field", "stride")
        rows = [
            (*(str(e[key]) for key in keys), _count(e["flops_num"]), _count(e["flops_cum"]))
            for e in details.flops
        ]
        shares = [e["flops_num"] for e in details.flops]
        parts.append(
            _table("flops", (*keys, "flops", "cumulative"), rows=rows, parts=shares, bar=bar_length)
        )
    if details.activations:
        rows = [
            (e["name"], e["class_name"], str(e["shape"]), _size(e["size_bytes"]))
            for e in details.activations
        ]
        shares = [e["act_dim"] for e in details.activations]
        parts.append(
            _table(
                "activations",
                ("name", "class_name", "shape", "size"),
                rows=rows,
                parts=shares,
                bar=bar_length,
            )
        )
    parts.append(
        f"params {total.param_dims:,} ({_size(total.param_size)}), FLOPs {_count(total.flops)},"
        f" activations {total.act_dims:,} ({_size(total.act_size)})"
    )
    return "\n\n".join(parts)


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], parts: Sequence[int], bar: int
) -> str:
    whole = max(1, sum(parts))
    cells = [
        [*map(str, row), f"{100 * part / whole:.1f}%", "#" * round(bar * part / whole)]
        for row, part in zip(rows, parts, strict=True)
    ]
    lines = [[*head, "share", ""], *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([title, *texts])


def _size(count: float) -> str:
    return _scaled(count, KIB, UNITS)


def _count(count: float) -> str:
    return _scaled(count, KILO, COUNTS)


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    place = 0
    while value >= base and place + 1 < len(units):
        value, place = value / base, place + 1
    return f"{value:.2f}{units[place]}" if place else f"{value:g}{units[place]}"
