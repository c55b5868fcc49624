"""Options and results of benchmarks: the time of every run, and figures from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.table import Table
from bridge.annotate.details import Tensor
from bridge.bench.devices.base import UNKNOWN, BenchError
from bridge.knowledge.suggestions import unknown_name
from bridge.render import units

if TYPE_CHECKING:
    import pandas as pd

    from bridge.render.table import Look


# -- Options


MAX_CALLS = 10_000_000  # calls in a run


class OptionFields(TypedDict, total=False):
    """The fields of `Options` as keywords."""

    warmup: int
    runs: int
    repeat: int
    number: int | None
    cold: bool
    graph: bool
    backward: bool


@dataclass(frozen=True)
class Options:
    """Options of a benchmark.

    ``warmup`` calls are not timed. Then ``repeat`` series of ``runs`` are timed, each run by
    itself, of ``number`` calls; by default as many as the clock needs. ``cold`` overwrites the
    caches before each run; ``graph`` captures the calls as a CUDA graph that a run replays;
    ``backward`` times only the backward pass.
    """

    warmup: int = 10
    runs: int = 10
    repeat: int = 1
    number: int | None = None
    cold: bool = False
    graph: bool = False
    backward: bool = False

    def __post_init__(self) -> None:
        for name, minimum in (("warmup", 0), ("runs", 1), ("repeat", 1), ("number", 1)):
            value = getattr(self, name)
            if name == "number" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise BenchError(f"{name} is an integer of at least {minimum}, not {value!r}")
        if self.cold and self.number not in {None, 1}:
            raise BenchError("cold runs have one call each: give no number with cold")
        if self.graph and self.backward:  # PyTorch runs it on the streams of the forward pass
            raise BenchError("a backward pass cannot be captured: give no graph with backward")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """Return options by name; raises TypeError with the known names for others."""
        known = [option.name for option in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise TypeError(
                unknown_name("option of a benchmark", unknown[0], known, "help(bridge.bench)")
                + "; pass keyword arguments of the function in kwargs={…}"
            )
        return cls(**options)

    @property
    def times(self) -> int:
        return self.runs * self.repeat


# -- Results


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MIN_LOOP_SHARE = 0.001  # of a call's time; a smaller share of the loop is not printed


@dataclass(frozen=True, eq=False)
class Result:
    """The runs of an op.

    ``elapsed`` is the time of each run in int64 ns, in order; a run has ``number`` calls.
    ``workspace``, ``flops`` and ``bytes`` are of a call, -1 if unknown. ``loop_ns`` is the time
    per call of the loop, which is not subtracted. ``cached`` is whether the result is that of an
    earlier measurement.
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
    point: tuple[tuple[str, int], ...] = ()  # of a sweep: names and values

    @cached_property
    def latencies(self) -> Ints:
        """The time of a call in each run, in whole ns."""
        return np.rint(self.elapsed / self.number).astype(np.int64)

    @cached_property
    def exact(self) -> Floats:
        """The latencies in ns, with fractions."""
        result: Floats = self.elapsed / self.number
        return result

    @property
    def series(self) -> Floats:
        """The mean latency of each series in ns."""
        result: Floats = self.exact.reshape(self.options.repeat, -1).mean(axis=1)
        return result

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
        """The 10th percentile of the latencies in ns."""
        return float(np.quantile(self.exact, 0.1))

    @property
    def p90(self) -> float:
        """The 90th percentile of the latencies in ns."""
        return float(np.quantile(self.exact, 0.9))

    @property
    def iqr(self) -> float:
        """The interquartile range of the latencies in ns."""
        low, high = np.quantile(self.exact, (0.25, 0.75))
        return float(high - low)

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median, 0 if that is 0."""
        return self.iqr / self.median if self.median else 0.0

    @property
    def flop_per_s(self) -> float:
        """FLOPs per second at the median, -1 if unknown."""
        return self._per_second(self.flops)

    @property
    def bytes_per_s(self) -> float:
        """The minimum of bytes that a call moves, per second at the median, -1 if unknown."""
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
        """A text that describes the measurement; the key of the cache is more precise."""
        options = " ".join(
            f"{option.name}={getattr(self.options, option.name)}" for option in fields(self.options)
        )
        streams = f" streams={list(self.streams)}" if self.streams else ""
        return f"{self.title} ({self.inputs}) on {self.device}{streams}: {options}"

    def table(self) -> str:
        """Return a table of one row, as `bridge bench` prints it."""
        return table([self])

    def __repr__(self) -> str:
        """Return the figures in a few lines."""
        return "\n  ".join(self._lines())

    def _per_second(self, amount: int) -> float:
        return amount / self.median * 1e9 if amount >= 0 and self.median else float(UNKNOWN)

    def _lines(self) -> Iterator[str]:
        time = units.time
        yield " ".join(filter(None, [self.title, self.inputs, "(measured before)" * self.cached]))
        yield f"median {time(self.median)}, quartiles {units.percent(self.spread)} apart, mean {time(self.mean)}"
        yield f"min {time(self.min)}, p10 {time(self.p10)}, p90 {time(self.p90)}, max {time(self.max)}"
        yield f"{len(self.elapsed)} runs{self._conditions()} on {self.device}, by {self.clock}"
        if work := list(self._rates()):
            yield ", ".join(work)

    def _conditions(self) -> str:
        calls = f" of {units.count(self.number)} calls" if self.number > 1 else ""
        state = ", caches cold" if self.options.cold else ""
        replayed = ", replayed as a CUDA graph" if self.options.graph else ""
        concurrent = (
            f", at once on {len(set(self.streams))} streams" if len(self.streams) > 1 else ""
        )
        is_notable = self.loop_ns >= MIN_LOOP_SHARE * self.median
        loop = f" (the loop takes {self.loop_ns:.1f} ns of each)" if is_notable else ""
        return f"{calls}{loop}{state}{replayed}{concurrent},"

    def _rates(self) -> Iterator[str]:
        if self.flops >= 0:
            yield f"{units.flop(self.flops)}: {units.flop(self.flop_per_s)}/s"
        if self.bytes >= 0:
            yield f"at least {units.size(self.bytes)}: {units.rate(self.bytes_per_s / 1e9)}"
        if self.workspace >= 0:
            yield f"workspace {units.size(self.workspace)}"


@dataclass(frozen=True, eq=False)
class Group:
    """Several ops that ran concurrently.

    ``whole`` lasts from the first begin to the last end; ``ops`` are the single ops. ``starts``
    and ``ends`` are int64 ns relative to the start of each run: a row per run, a column per op.
    """

    whole: Result
    ops: tuple[Result, ...]
    starts: Ints = field(repr=False)
    ends: Ints = field(repr=False)

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.whole.device

    @property
    def results(self) -> list[Result]:
        """The whole, then the ops."""
        return [self.whole, *self.ops]

    def table(self) -> str:
        """Return a table of the whole and the ops."""
        return table(self.results)

    def __repr__(self) -> str:
        """Return the figures in a few lines."""
        return "\n".join(map(repr, self.results))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ops)


# -- Tables


FORMAT = "bridge.bench/1"
VIEW = "bench"
WIDTH = 160  # of a table outside of a terminal
# Columns that are mostly equal in all rows: then they become a line below the table.
CAPTIONS = {
    "runs": "{} runs",
    "number": "of {} calls each",
    "cold": "with cold caches",
    "graph": "replayed as a CUDA graph",
    "device": "on {}",
    "clock": "by {}",
}
EMPTY_VALUES = ("", "-1", "-1.0", "False")
UNKNOWN_RATE = -1.0


def rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per result; times in ns, -1 for unknown values."""
    import pandas as pd  # slow, and not needed to measure

    return pd.DataFrame([_row(result) for result in results])


def _row(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        **dict(result.point),
        "shapes": result.inputs,
        "streams": " ".join(map(str, result.streams)),
        "median_ns": result.median,
        "spread_share": result.spread,
        "min_ns": result.min,
        "tflop_per_s": result.flop_per_s / 1e12 if result.flops >= 0 else UNKNOWN_RATE,
        "gb_per_s": result.bytes_per_s / 1e9 if result.bytes >= 0 else UNKNOWN_RATE,
        "workspace_bytes": result.workspace,
        "mean_ns": result.mean,
        "p10_ns": result.p10,
        "p90_ns": result.p90,
        "max_ns": result.max,
        "iqr_ns": result.iqr,
        "flop": result.flops,
        "moved_bytes": result.bytes,
        "loop_ns": result.loop_ns,
        "runs": len(result.elapsed),
        "number": result.number,
        "cold": result.options.cold,
        "graph": result.options.graph,
        "device": result.device,
        "clock": result.clock,
    }


def with_runs(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows with all latencies, a list of whole ns each."""
    return rows(results).assign(latencies_ns=[result.latencies.tolist() for result in results])


def compact_rows(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows without columns of unknown or default values only."""
    table = rows(results)
    return table.drop(columns=[c for c in table if table[c].astype(str).isin(EMPTY_VALUES).all()])


def as_table(frame: pd.DataFrame) -> Table:
    """Return rows for renderers, which also take lists of latencies."""
    return Table({str(name): column.to_numpy() for name, column in frame.items()})


def table(results: Sequence[Result], look: Look | None = None) -> str:
    """Return results as a table of text; values that all rows share are in a line below it."""
    from bridge.render.table import Look, for_terminal  # pandas and rich

    rows = compact_rows(results)
    equal = [column for column in CAPTIONS if column in rows and len(rows[column].unique()) == 1]
    text_table = for_terminal(VIEW, as_table(rows.drop(columns=equal)), look or Look(WIDTH))
    text = " ".join(CAPTIONS[column].format(rows[column].iloc[0]) for column in equal)
    return f"{text_table}\n{text}\n" if text else text_table
