"""Options of commands that count FLOPs: how, and against which peaks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bridge.analyze.flops import Costs

F = TypeVar("F", bound=Callable[..., Any])
CONVENTIONS = ("bridge", "torch", "flopcounter", "megengine", "module_stats", "pyprof")
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
GIVEN = ("convention", "dtype", "peak_tflops", "peak_gbs", "gpus")
POSITIVE = click.FloatRange(min=0, min_open=True)
OPTIONS = (
    click.option(
        "--flops",
        "convention",
        type=click.Choice(CONVENTIONS),
        default=CONVENTIONS[0],
        show_default=True,
        help="FLOPs: as whom to count.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="FLOPs: what calls compute in that do not say; tf32: float32 too.",
    ),
    click.option("--peak-tflops", type=POSITIVE, help="What a GPU can do. [default: its own]"),
    click.option("--peak-gbs", type=POSITIVE, help="Its memory's GB/s. [default: its own]"),
    click.option(
        "--gpus",
        type=click.Path(path_type=Path),
        help="A file of GPUs, before those that are known: see docs/flops.md. [default: $BRIDGE_GPUS]",
    ),
)


def costs(command: F) -> F:
    """How FLOPs are counted: options that the command gets as one parameter ``costs``."""

    @functools.wraps(command)
    def with_costs(*args: Any, **given: Any) -> Any:
        return command(*args, costs=_read(**{name: given.pop(name) for name in GIVEN}), **given)

    taking: Any = with_costs
    for option in reversed(OPTIONS):
        taking = option(taking)
    found: F = taking
    return found


def _read(*, gpus: Path | None, dtype: str | None, **given: Any) -> Costs:
    """Return what is asked for; a bad file of GPUs is a usage error."""
    from bridge.analyze.flops import Costs
    from bridge.knowledge.hardware import read

    try:
        return Costs(dtype=dtype or "", gpus=read(gpus) if gpus else None, **given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--gpus") from error
