"""Rules on what kernels do: Tensor Cores left unused, single precision, casts, grids that leave a GPU empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from bridge.analyze import kinds
from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import (
    HERE,
    NOT_ESTIMATED,
    NSIGHT_COMPUTE,
    TENSORBOARD,
    TIDY,
    Finding,
    Rule,
    of_activities,
)
from bridge.analyze.metrics.columns import WHOLE, is_named, largest
from bridge.analyze.metrics.values import SURE
from bridge.join.arrays import Flags, Ints
from bridge.knowledge import kernels
from importers import frames

FIRST_WITH_TENSOR_CORES = 7.0  # compute capability
FIRST_WITH_TF32 = 8.0
SMALL = 0.1  # of the time of kernels
CASTS = 0.05
CAST = re.compile(r"aten::(?:_to_copy|to|type|type_as|half|float|double|bfloat16|_autocast_to\w+)")
SINGLE = re.compile(
    r"sgemm|gemm\w*_f32f32_f32f32|simt_\w*sgemm|gemmSN|implicit_convolve_sgemm", re.IGNORECASE
)
TF32 = re.compile(r"tf32|s1688|tensorop", re.IGNORECASE)
OF_MATRICES = ("gemm", "convolution")
TWICE = 2  # as fast: what half precision on Tensor Cores gives at the least where arithmetic limits


def small_grids(seen: Seen) -> Finding | None:
    """Kernels with fewer blocks than their GPU has multiprocessors."""
    per_sm = seen.occupancy.blocks_per_sm
    rows = np.flatnonzero(seen.computing & (per_sm < 1))
    kernels_ns = int(seen.time[seen.computing].sum())
    spent = int(seen.time[rows].sum())
    if spent <= SMALL * kernels_ns:
        return None
    empty = (seen.time[rows] * (1 - per_sm[rows])).astype(np.int64)
    figures = {
        "kernels": len(rows),
        "time_share": spent / kernels_ns,
        "empty_share": int(empty.sum()) / spent,
    }
    return Finding(figures, rule.of_activities(seen, rows), seen.most_work(rows, empty))


def _eligible(seen: Seen) -> Flags:
    """Which kernels belong to ops that could use the Tensor Cores that their GPU has."""
    has = seen.capability >= FIRST_WITH_TENSOR_CORES
    flags: Flags = seen.computing & has & kinds.eligible_activities(seen.joined)
    return flags


def no_tensor_cores(seen: Seen) -> Finding | None:
    """A run that uses no Tensor Core, with ops that could."""
    told, eligible = kinds.tensor_cores(seen.joined), _eligible(seen)
    rows, unknown = (
        np.flatnonzero(eligible & (told == word)) for word in (kernels.NO, kernels.UNKNOWN)
    )
    used = (seen.computing & (told == kernels.YES)).any()
    if used or not len(rows) or seen.time[unknown].sum() > seen.time[rows].sum():
        return None
    spent = seen.most_work(rows)
    whole = int(seen.time[seen.kernels].sum())
    figures = {"eligible_share": int(seen.time[rows].sum()) / max(1, whole)}
    return Finding(figures, rule.of_activities(seen, rows), spent, spent - spent // TWICE)


def tensor_cores_left(seen: Seen) -> Finding | None:
    """Kernels without Tensor Cores of ops that could use them, where others do."""
    told = kinds.tensor_cores(seen.joined)
    left = _eligible(seen) & (told == kernels.NO) & kinds.is_kind(seen.joined, *OF_MATRICES)
    rows = np.flatnonzero(left)
    if not len(rows) or not (seen.computing & (told == kernels.YES)).any():
        return None
    spent = seen.most_work(rows)
    figures = {"kernels": len(rows), "kernels_ns": spent}
    return Finding(figures, rule.of_activities(seen, rows), spent, spent - spent // TWICE)


def single_precision(seen: Seen) -> Finding | None:
    """Products of matrices in full single precision on a GPU that has TF32."""
    names = seen.report.activities["name"]
    of_full = seen.report.activities["full_name"]
    told = _named(names.cat.categories)[names.cat.codes.to_numpy()]
    told |= _named(of_full.cat.categories)[of_full.cat.codes.to_numpy()]
    rows = np.flatnonzero(seen.computing & told & (seen.capability >= FIRST_WITH_TF32))
    if not len(rows):
        return None
    spent = seen.most_work(rows)
    figures = {
        "kernels": len(rows),
        "kernels_ns": spent,
        "time_share": spent / max(1, seen.span_ns),
    }
    return Finding(figures, rule.of_activities(seen, rows), spent, spent - spent // TWICE)


def _named(names: Iterable[str]) -> Flags:
    """Tell which names are of such kernels; the last entry is for none."""
    told = [bool(SINGLE.search(n)) and not TF32.search(n) for n in names]
    return np.array([*told, False], bool)


def casts(seen: Seen) -> Finding | None:
    """Kernels that do nothing but change the type of numbers."""
    in_cast = seen.of_nodes(seen.inside(seen.ops_like(CAST.fullmatch)))
    in_cast &= kinds.is_kind(seen.joined, "elementwise")  # of which names may say too little
    rows = np.flatnonzero(seen.computing & (kinds.is_kind(seen.joined, "cast") | in_cast))
    spent, whole = int(seen.time[rows].sum()), int(seen.time[seen.computing].sum())
    if spent <= CASTS * whole:
        return None
    figures = {"kernels": len(rows), "time_share": spent / whole, "again": _several(seen, rows)}
    ceiling = seen.most_work(rows)
    return Finding(figures, rule.of_activities(seen, rows), ceiling, ceiling // 2)


def _several(seen: Seen, rows: np.ndarray) -> int:
    """Return how many ranges have two casts or more right under them."""
    nesting, casting = seen.joined.attribution.nesting, seen.ops_like(CAST.fullmatch)
    outer = seen.outermost(casting)
    worked = seen.under(np.isin(np.arange(len(seen.time)), rows)) > 0
    above = nesting.parent[outer & worked]
    _, counted = np.unique(above[above >= 0], return_counts=True)
    return int((counted > 1).sum())


RULES = (
    Rule(
        "small-grids",
        "Kernels that leave multiprocessors empty",
        f"kernels with less than a block per multiprocessor are more than {SMALL:.0%} of the time of kernels",
        "kernels with fewer blocks than multiprocessors: {kernels}, {time_share} of the time of kernels; in it {empty_share} of the multiprocessors have none",
        "give them more at a time (larger batches, fused ops), or run several on streams of their own",
        NOT_ESTIMATED,
        HERE,
        ("kernels", "geometry"),
        small_grids,
    ),
    Rule(
        "no-tensor-cores",
        "Tensor Cores are not used",
        "no kernel uses Tensor Cores, and most of those of eligible ops are known not to, on compute capability 7.0 or newer",
        "no kernel uses Tensor Cores, by its name; kernels of ops that could take {eligible_share} of the time of kernels",
        "mixed precision: torch.autocast('cuda', dtype=torch.bfloat16)",
        "half the time of these kernels, at most all",
        TENSORBOARD,
        ("kernels", "ops", "capability"),
        no_tensor_cores,
    ),
    Rule(
        "tensor-cores-left",
        "Some ops that could use Tensor Cores do not",
        "kernels of eligible ops multiply or convolve without Tensor Cores, and others use them",
        "kernels of such ops that use none, by their names: {kernels}, {kernels_ns}",
        "bring these ops under autocast; make their dimensions multiples of 8 (16 for FP8)",
        "half the time of these kernels, at most all",
        HERE,
        ("kernels", "ops", "capability"),
        tensor_cores_left,
    ),
    Rule(
        "single-precision",
        "Matrices are multiplied in full single precision",
        "kernels multiply in FP32 without TF32, on compute capability 8.0 or newer",
        "kernels: {kernels}, {kernels_ns}, {time_share} of a GPU's time",
        "torch.set_float32_matmul_precision('high') allows TF32",
        "half the time of these kernels, at most all",
        TIDY,
        ("kernels", "capability"),
        single_precision,
    ),
    Rule(
        "casts",
        "Types of numbers are changed much",
        f"kernels that only cast are more than {CASTS:.0%} of the time of kernels",
        "kernels that only change types: {kernels}, {time_share} of the time of kernels; ranges that cast more than once: {again}",
        "keep tensors in one type; under autocast leave whole blocks in it; cast weights once, not per step",
        "half the time of these kernels",
        HERE,
        ("kernels", "ops"),
        casts,
    ),
)


# -- What Nsight Compute advises of kernels: its own rules, with its own estimates, in the time that the kernels took


ESTIMATE = "none; at most what Nsight Compute estimates"
KIND = "OPT"  # of what a rule says: something may be gained
SAME_LAUNCH = SURE.index("geometry")  # how sure a match must be: another grid has other trouble
PER_CENT = 100.0
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LONGEST = 240  # characters of what is quoted


def of_kernels(seen: Seen) -> Iterator[Finding]:
    """Each rule of Nsight Compute that estimates what kernels would gain as a whole, with the kernels that it is about."""
    rules, sure = seen.report.metrics.rules, seen.report.metrics.sure
    activity, place = largest(seen.joined)
    estimate = np.where(is_named(rules["scope"], WHOLE), rules["speedup"].to_numpy(), 0.0)[place]
    wanted = seen.of_kind(frames.KERNEL, frames.GRAPH)[activity] & (estimate > 0)
    wanted &= is_named(rules["kind"], KIND)[place]
    if len(sure):
        wanted &= sure[activity] <= SAME_LAUNCH
    activity, place = activity[wanted], place[wanted]
    share = np.minimum(estimate[wanted] / PER_CENT, 1.0)
    saved = np.rint(seen.time[activity] * share).astype(np.int64)
    rule, names = frames.codes(rules["rule"])[place], rules["rule"].cat.categories
    for code in np.unique(rule).tolist():  # a turn per rule
        own = np.flatnonzero(rule == code)
        said = str(rules["text"].iloc[place[own[np.argmax(saved[own])]]])
        yield _finding(seen, str(names[code]), said, activity[own], saved[own])


def _finding(seen: Seen, name: str, said: str, activity: Ints, saved: Ints) -> Finding:
    """Return what a rule says of kernels, with what it estimates that each would save."""
    shown = of_activities(seen, activity, saved).rename(columns={"total_ns": "saves_ns"})
    figures = {"rule": name, "kernels": len(activity), "says": shortened(said)}
    return Finding(figures, shown, seen.most_work(activity, saved))


def shortened(text: str) -> str:
    """Return the first sentences of a text, as many as are read on."""
    first, *others = SENTENCE.split(" ".join(text.split()))
    for sentence in others:
        if len(first) + 1 + len(sentence) > LONGEST:
            return first
        first = f"{first} {sentence}"
    return first


NSIGHT_COMPUTE_RULES = (
    Rule(
        "nsight-compute",
        "Nsight Compute advises on kernels",
        "a rule of Nsight Compute estimates how much of its time a measured kernel would save; each such rule is a piece of advice",
        "{rule} of Nsight Compute, on kernels: {kernels}; of the one that would gain most: {says}",
        "bridge report --by rule has all that it says; Nsight Compute itself shows where in the kernel",
        ESTIMATE,
        NSIGHT_COMPUTE,
        ("kernels", "counters"),
        of_kernels,
    ),
)
