"""Options for counting FLOPs: the convention, dtypes and peaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options
from bridge.cli.help import option

if TYPE_CHECKING:
    from bridge.analyze.cost.flops import Costs

F = TypeVar("F", bound=Callable[..., Any])
CONVENTIONS = ("bridge", "torch", "flopcounter", "megengine", "module_stats", "pyprof")
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
POSITIVE = click.FloatRange(min=0, min_open=True)
flop_option = partial(option, section="FLOPs", rare=True)
OPTIONS = (
    flop_option(
        "--flops",
        "convention",
        type=click.Choice(CONVENTIONS),
        default=CONVENTIONS[0],
        show_default=True,
        help="FLOPs: as whom to count.",
    ),
    flop_option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="FLOPs: what calls compute in that do not say; tf32: float32 too.",
    ),
    flop_option("--peak-tflops", type=POSITIVE, help="What a GPU can do. [default: its own]"),
    flop_option("--peak-gbs", type=POSITIVE, help="Its memory's GB/s. [default: its own]"),
    flop_option(
        "--gpus",
        type=click.Path(path_type=Path),
        help="A file of GPUs, before those that are known: see docs/flops.md. [default: $BRIDGE_GPUS]",
    ),
)


def costs(command: F) -> F:
    """Give a command the options of counting FLOPs as one parameter ``costs``."""
    return options.collected("costs", _read, *OPTIONS)(command)


def _read(
    *,
    convention: str,
    dtype: str | None,
    peak_tflops: float | None,
    peak_gbs: float | None,
    gpus: Path | None,
) -> Costs | None:
    """Return how FLOPs are counted, None for the default; an invalid file of GPUs is a usage error."""
    given = (dtype, peak_tflops, peak_gbs, gpus)
    if convention == CONVENTIONS[0] and all(value is None for value in given):
        return None
    from bridge.analyze.cost.flops import Costs
    from bridge.knowledge.hardware import read

    try:
        known = read(gpus) if gpus else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--gpus") from error
    return Costs(
        convention=convention,
        dtype=dtype or "",
        peak_tflops=peak_tflops,
        peak_gbs=peak_gbs,
        gpus=known,
    )
