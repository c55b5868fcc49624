"""What a benchmark found: the length of every run, and what follows from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridge.annotate.plain_values import Tensor
from bridge.bench.errors import BenchError
from bridge.render import units

if TYPE_CHECKING:
    import pandas as pd

    from bridge.render.table import Look


# -- How a benchmark is run: its options, checked before anything runs


MANY = 10_000_000  # calls in a run


@dataclass(frozen=True)
class Options:
    """``warmup`` calls that are not timed, then ``repeat`` series of ``runs``, each timed by itself, of ``number`` calls.

    Without a ``number`` it is as large as the clock needs. ``cold``: the caches are written over before each run;
    ``graph``: the calls are captured as a CUDA graph, and a run replays it; ``backward``: the backward pass alone is timed.
    """

    warmup: int = 10
    runs: int = 10
    repeat: int = 1
    number: int | None = None
    cold: bool = False
    graph: bool = False
    backward: bool = False

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("runs", 1), ("repeat", 1), ("number", 1)):
            value = getattr(self, name)
            if name == "number" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BenchError(f"{name} is an integer of at least {least}, not {value!r}")
        if self.cold and self.number not in {None, 1}:
            raise BenchError("cold runs are of one call each: no number beside cold")
        if self.graph and self.backward:  # PyTorch runs it on the streams of the forward pass
            raise BenchError(
                "a backward pass cannot be captured as a graph: no graph beside backward"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Check options by name; TypeError, with what there is, for others."""
        known = [one.name for one in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise TypeError(
                f"{unknown[0]}: no option of a benchmark, which has {', '.join(known)};"
                " what the function gets by name goes into kwargs={…}"
            )
        return cls(**given)

    @property
    def times(self) -> int:
        """How many runs are timed."""
        return self.runs * self.repeat


# -- What a benchmark found: the length of every run, and what follows from these


UNKNOWN = -1
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NOTABLE = 0.001  # of a call's time, that the loop around it takes


@dataclass(frozen=True, eq=False)
class Result:
    """The runs of one op. ``elapsed`` is how long each took, int64 ns, in order: ``number`` calls, so that a latency is a part of it.

    ``workspace``, ``flops`` and ``bytes`` are of a call, -1 where not known; ``loop_ns`` is what the loop around the calls
    took of each latency, which is not subtracted; ``cached`` says that it was measured before.
    """

    name: str
    device: str
    clock: str
    elapsed: Ints = field(repr=False)
    number: int
    options: Options
    shapes: tuple[Tensor, ...] = ()
    workspace: int = UNKNOWN
    flops: int = UNKNOWN
    bytes: int = UNKNOWN
    loop_ns: float = 0.0
    streams: tuple[int, ...] = ()
    cached: bool = False
    point: tuple[tuple[str, int], ...] = ()  # of a sweep: names and numbers

    @cached_property
    def latencies(self) -> Ints:
        """How long a call took in each run, in whole ns."""
        return np.rint(self.elapsed / self.number).astype(np.int64)

    @cached_property
    def exact(self) -> Floats:
        """The latencies in ns, with the fractions that a run of many calls tells."""
        found: Floats = self.elapsed / self.number
        return found

    @property
    def series(self) -> Floats:
        """The mean latency in ns of each repeated series."""
        found: Floats = self.exact.reshape(self.options.repeat, -1).mean(axis=1)
        return found

    @property
    def median(self) -> float:
        """The median latency in ns."""
        return float(np.median(self.exact))

    @property
    def mean(self) -> float:
        """The mean latency in ns."""
        return float(self.exact.mean())

    @property
    def min(self) -> float:
        """The shortest latency in ns."""
        return float(self.exact.min())

    @property
    def max(self) -> float:
        """The longest latency in ns."""
        return float(self.exact.max())

    @property
    def p10(self) -> float:
        """The latency in ns that a tenth of the runs are below."""
        return float(np.quantile(self.exact, 0.1))

    @property
    def p90(self) -> float:
        """The latency in ns that a tenth of the runs are above."""
        return float(np.quantile(self.exact, 0.9))

    @property
    def iqr(self) -> float:
        """How far apart the quartiles of the latencies are, in ns."""
        low, high = np.quantile(self.exact, (0.25, 0.75))
        return float(high - low)

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median, 0 where that is 0."""
        return self.iqr / self.median if self.median else 0.0

    @property
    def flop_per_s(self) -> float:
        """FLOPs per second at the median, -1 where they are not known."""
        return self._per_second(self.flops)

    @property
    def bytes_per_s(self) -> float:
        """The fewest bytes that a call moves, per second at the median, -1 where not known."""
        return self._per_second(self.bytes)

    @property
    def inputs(self) -> str:
        """Shapes and dtypes: ``float32[64, 128] float32[128, 256]``."""
        return " ".join(
            f"{dtype}{list(shape)}" for shape, dtype in self.shapes if shape is not None
        )

    @property
    def title(self) -> str:
        """The name, with the point of a sweep: ``matmul M=8``."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.point)])

    @property
    def key(self) -> str:
        """What the measurement is known by, in words; the cache tells more apart."""
        given = " ".join(f"{f.name}={getattr(self.options, f.name)}" for f in fields(self.options))
        where = f" streams={list(self.streams)}" if self.streams else ""
        return f"{self.title} ({self.inputs}) on {self.device}{where}: {given}"

    def table(self) -> str:
        """Return a table of one row, as `bridge bench` prints it."""
        return table([self])

    def __repr__(self) -> str:
        """Say the figures in a few lines."""
        return "\n  ".join(self._lines())

    def _per_second(self, amount: int) -> float:
        return amount / self.median * 1e9 if amount >= 0 and self.median else float(UNKNOWN)

    def _lines(self) -> Iterator[str]:
        told = units.time
        yield " ".join(filter(None, [self.title, self.inputs, "(measured before)" * self.cached]))
        yield f"median {told(self.median)}, quartiles {units.percent(self.spread)} apart, mean {told(self.mean)}"
        yield f"min {told(self.min)}, p10 {told(self.p10)}, p90 {told(self.p90)}, max {told(self.max)}"
        yield f"{len(self.elapsed)} runs{self._of_calls()} on {self.device}, by {self.clock}"
        if work := list(self._work()):
            yield ", ".join(work)

    def _of_calls(self) -> str:
        calls = f" of {units.count(self.number)} calls" if self.number > 1 else ""
        state = ", caches cold" if self.options.cold else ""
        replayed = ", replayed as a CUDA graph" if self.options.graph else ""
        at_once = f", at once on {len(set(self.streams))} streams" if len(self.streams) > 1 else ""
        looped = self.loop_ns >= NOTABLE * self.median
        loop = f" (the loop takes {self.loop_ns:.1f} ns of each)" if looped else ""
        return f"{calls}{loop}{state}{replayed}{at_once},"

    def _work(self) -> Iterator[str]:
        if self.flops >= 0:
            yield f"{units.flop(self.flops)}: {units.flop(self.flop_per_s)}/s"
        if self.bytes >= 0:
            yield f"at least {units.size(self.bytes)}: {units.rate(self.bytes_per_s / 1e9)}"
        if self.workspace >= 0:
            yield f"workspace {units.size(self.workspace)}"


@dataclass(frozen=True, eq=False)
class Group:
    """Several ops at once: ``whole`` from the first start to the last end, ``ops`` each by itself.

    ``starts`` and ``ends`` are int64 ns from a moment of each run: a row per run, a column per op.
    """

    whole: Result
    ops: tuple[Result, ...]
    starts: Ints = field(repr=False)
    ends: Ints = field(repr=False)

    @property
    def device(self) -> str:
        """Where it ran."""
        return self.whole.device

    @property
    def results(self) -> list[Result]:
        """The whole, then the ops."""
        return [self.whole, *self.ops]

    def table(self) -> str:
        """Return a table: the whole first."""
        return table(self.results)

    def __repr__(self) -> str:
        """Say the figures in a few lines."""
        return "\n".join(map(repr, self.results))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ops)


# -- Results as a table: a row each, in the units that every table of ours has


FORMAT = "bridge.bench/1"
VIEW = "bench"
WIDTH = 160  # of a table that no terminal limits
# What rows seldom differ in: then it is said once, under the table.
ALIKE = {
    "runs": "{} runs",
    "number": "of {} calls each",
    "cold": "with cold caches",
    "graph": "replayed as a CUDA graph",
    "device": "on {}",
    "clock": "by {}",
}
NOTHING = ("", "-1", "-1.0", "False")  # of a column
NOT_KNOWN = -1.0


def rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per result; times in ns, -1 for what is not known."""
    import pandas as pd  # a benchmark in a program needs none of it

    return pd.DataFrame([_row(one) for one in results])


def _row(one: Result) -> dict[str, Any]:
    return {
        "name": one.name,
        **dict(one.point),
        "shapes": one.inputs,
        "streams": " ".join(map(str, one.streams)),
        "median_ns": one.median,
        "spread_share": one.spread,
        "min_ns": one.min,
        "tflop_per_s": one.flop_per_s / 1e12 if one.flops >= 0 else NOT_KNOWN,
        "gb_per_s": one.bytes_per_s / 1e9 if one.bytes >= 0 else NOT_KNOWN,
        "workspace_bytes": one.workspace,
        "mean_ns": one.mean,
        "p10_ns": one.p10,
        "p90_ns": one.p90,
        "max_ns": one.max,
        "iqr_ns": one.iqr,
        "flop": one.flops,
        "moved_bytes": one.bytes,
        "loop_ns": one.loop_ns,
        "runs": len(one.elapsed),
        "number": one.number,
        "cold": one.options.cold,
        "graph": one.options.graph,
        "device": one.device,
        "clock": one.clock,
    }


def with_runs(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows with every latency, a list of whole ns each."""
    return rows(results).assign(latencies_ns=[one.latencies.tolist() for one in results])


def telling(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows without columns in which nobody knows anything, or nothing is out of the ordinary."""
    found = rows(results)
    return found.drop(columns=[c for c in found if found[c].astype(str).isin(NOTHING).all()])


def table(results: Sequence[Result], look: Look | None = None) -> str:
    """Return results as a table of text, a row each; what all have in common is said once, under it."""
    from bridge.render.table import Look, for_terminal  # pandas and rich

    found = telling(results)
    alike = [column for column in ALIKE if column in found and len(found[column].unique()) == 1]
    shown = for_terminal(VIEW, found.drop(columns=alike), look or Look(WIDTH))
    said = " ".join(ALIKE[column].format(found[column].iloc[0]) for column in alike)
    return f"{shown}\n{said}\n" if said else shown
