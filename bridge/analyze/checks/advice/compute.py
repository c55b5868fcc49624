"""Rules about kernels: Tensor Cores, precision, casts, small grids, and Nsight Compute's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import (
    NSIGHT_BRIDGE,
    NSIGHT_COMPUTE,
    TENSORBOARD,
    TORCH_TIDY,
    UNKNOWN,
    Finding,
    activity_table,
)
from bridge.analyze.checks.check import Check
from bridge.analyze.core import kinds
from bridge.analyze.cost.metrics.values import MATCH_LEVELS
from bridge.analyze.run import interventions
from bridge.analyze.tables.metrics import KERNEL_SCOPE, rule_results
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints
from bridge.knowledge import kernels

TENSOR_CORE_CAPABILITY = 7.0  # compute capability
TF32_CAPABILITY = 8.0
MIN_SMALL = 0.1  # of the time of kernels
MIN_CASTS = 0.05
CAST = re.compile(r"aten::(?:_to_copy|to|type|type_as|half|float|double|bfloat16|_autocast_to\w+)")
SINGLE = re.compile(
    r"sgemm|gemm\w*_f32f32_f32f32|simt_\w*sgemm|gemmSN|implicit_convolve_sgemm", re.IGNORECASE
)
TF32 = re.compile(r"tf32|s1688|tensorop", re.IGNORECASE)
MATRIX_KINDS = ("gemm", "convolution")
SPEED_UP = 2  # minimum of half precision on Tensor Cores where arithmetic is the limit


def small_grids(evidence: Evidence) -> Finding | None:
    """Find kernels with fewer blocks than their GPU has multiprocessors."""
    per_sm = evidence.occupancy.blocks_per_sm
    rows = np.flatnonzero(evidence.computing & (per_sm < 1))
    kernels_ns = int(evidence.time[evidence.computing].sum())
    spent = int(evidence.time[rows].sum())
    if spent <= MIN_SMALL * kernels_ns:
        return None
    empty_time = (evidence.time[rows] * (1 - per_sm[rows])).astype(np.int64)
    figures = {
        "kernels": len(rows),
        "time_share": spent / kernels_ns,
        "empty_share": int(empty_time.sum()) / spent,
    }
    table = rule.activity_table(evidence, rows)
    if not evidence.has_graph:
        return Finding(figures, table, evidence.max_work_over_gpus(rows, empty_time))
    places, left = _placed(evidence, rows, evidence.time[rows] - empty_time)
    limit = interventions.shorter_work(evidence.run, places, left)
    return Finding(figures, table, limit=limit)


def _placed(evidence: Evidence, rows: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the places of activities with valid times in `Work`, and the time of each."""
    place = evidence.run.work.place[rows]
    return place[place != NONE], time[place != NONE]


def _eligible(evidence: Evidence) -> Flags:
    """Return whether each kernel belongs to an op that could use Tensor Cores of its GPU."""
    has_tensor_cores = evidence.capability >= TENSOR_CORE_CAPABILITY
    flags: Flags = (
        evidence.computing & has_tensor_cores & kinds.eligible_activities(evidence.attributed)
    )
    return flags


def no_tensor_cores(evidence: Evidence) -> Finding | None:
    """Find a run that uses no Tensor Cores although its ops could."""
    usage = kinds.tensor_cores(evidence.attributed)
    eligible = _eligible(evidence)
    rows, unknown = (
        np.flatnonzero(eligible & (usage == word)) for word in (kernels.NO, kernels.UNKNOWN)
    )
    is_used = (evidence.computing & (usage == kernels.YES)).any()
    if is_used or not len(rows) or evidence.time[unknown].sum() > evidence.time[rows].sum():
        return None
    kernel_time = int(evidence.time[evidence.kernels].sum())
    figures = {
        "eligible_share": int(evidence.time[rows].sum()) / max(1, kernel_time),
        "dtype": "bfloat16" if evidence.capability[rows].min() >= TF32_CAPABILITY else "float16",
    }
    return _faster(evidence, rows, figures)


def tensor_cores_left(evidence: Evidence) -> Finding | None:
    """Find kernels without Tensor Cores of ops that could use them, where others do."""
    usage = kinds.tensor_cores(evidence.attributed)
    is_left = (
        _eligible(evidence)
        & (usage == kernels.NO)
        & kinds.is_kind(evidence.attributed, *MATRIX_KINDS)
    )
    rows = np.flatnonzero(is_left)
    if not len(rows) or not (evidence.computing & (usage == kernels.YES)).any():
        return None
    spent = evidence.max_work_over_gpus(rows)
    return _faster(evidence, rows, {"kernels": len(rows), "kernels_ns": spent})


def single_precision(evidence: Evidence) -> Finding | None:
    """Find matrix products in full single precision on GPUs with TF32."""
    activities = evidence.capture.activities
    is_match = activities.name.matching(_is_single_precision)
    is_match |= activities.full_name.matching(_is_single_precision)
    rows = np.flatnonzero(evidence.computing & is_match & (evidence.capability >= TF32_CAPABILITY))
    if not len(rows):
        return None
    spent = evidence.max_work_over_gpus(rows)
    figures = {
        "kernels": len(rows),
        "kernels_ns": spent,
        "time_share": float(
            evidence.time[rows].sum() / max(1, evidence.time[evidence.kernels].sum())
        ),
    }
    return _faster(evidence, rows, figures)


def _faster(evidence: Evidence, rows: Ints, figures: Mapping[str, object]) -> Finding:
    """Return the finding of kernels that take half the time on Tensor Cores."""
    table = rule.activity_table(evidence, rows)
    if not evidence.has_graph:
        spent = evidence.max_work_over_gpus(rows)
        return Finding(figures, table, spent, spent - spent // SPEED_UP)
    places, _ = _placed(evidence, rows, evidence.time[rows])
    change, limit = (
        interventions.faster_work(evidence.run, places, factor) for factor in (1 / SPEED_UP, 0.0)
    )
    return Finding(figures, table, change=change, limit=limit)


def _is_single_precision(kernel: str) -> bool:
    return bool(SINGLE.search(kernel)) and not TF32.search(kernel)


def casts(evidence: Evidence) -> Finding | None:
    """Find kernels that only change the type of numbers."""
    in_cast = evidence.owned_by(evidence.is_inside(evidence.nodes_with_op(CAST.fullmatch)))
    in_cast &= kinds.is_kind(evidence.attributed, "elementwise")  # their names may not show a cast
    rows = np.flatnonzero(
        evidence.computing & (kinds.is_kind(evidence.attributed, "cast") | in_cast)
    )
    spent, kernel_time = (
        int(evidence.time[rows].sum()),
        int(evidence.time[evidence.computing].sum()),
    )
    if spent <= MIN_CASTS * kernel_time:
        return None
    figures = {
        "kernels": len(rows),
        "time_share": spent / kernel_time,
        "again": _ranges_with_casts(evidence, rows),
    }
    return _faster(evidence, rows, figures)


def _ranges_with_casts(evidence: Evidence, rows: np.ndarray) -> int:
    """Return the number of ranges with two or more casts directly in them."""
    nesting, casting = (
        evidence.attributed.attribution.nesting,
        evidence.nodes_with_op(CAST.fullmatch),
    )
    outermost = evidence.outermost(casting)
    has_work = evidence.sums_under(np.isin(np.arange(len(evidence.time)), rows)) > 0
    parents = nesting.parent[outermost & has_work]
    _, casts_per_range = np.unique(parents[parents >= 0], return_counts=True)
    return int((casts_per_range > 1).sum())


RULES = (
    Check(
        name="small-grids",
        title="Kernels too small to fill the GPU",
        when=f"kernels with less than a block per multiprocessor are more than {MIN_SMALL:.0%} of the time of kernels",
        text="kernels with fewer blocks than multiprocessors: {kernels}, {time_share} of kernel time; meanwhile {empty_share} of the multiprocessors have no block",
        remedy="give them more work (larger batches, fused ops), or run several at once on separate streams",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "geometry"),
        find=small_grids,
        remedy_elsewhere="launch them with more blocks, or run several at once on separate streams",
        timeline=False,
    ),
    Check(
        name="no-tensor-cores",
        title="Tensor Cores are not used",
        when="no kernel uses Tensor Cores, and most of those of eligible ops are known not to, on compute capability 7.0 or newer",
        text="no kernel name shows Tensor Cores; kernels of ops that could use them take {eligible_share} of kernel time",
        remedy="use mixed precision: torch.autocast('cuda', dtype=torch.{dtype})",
        estimate="half the time of these kernels, at most all",
        source=TENSORBOARD,
        needs=("kernels", "ops", "capability"),
        find=no_tensor_cores,
        timeline=False,
    ),
    Check(
        name="tensor-cores-left",
        title="Some ops that could use Tensor Cores do not use them",
        when="kernels of eligible ops multiply or convolve without Tensor Cores, and others use them",
        text="kernels of such ops without Tensor Cores, by their names: {kernels}, {kernels_ns}",
        remedy="run these ops under autocast; make their dimensions multiples of 8 (16 for FP8)",
        estimate="half the time of these kernels, at most all",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "ops", "capability"),
        find=tensor_cores_left,
        timeline=False,
    ),
    Check(
        name="single-precision",
        title="Matrix products run in full FP32",
        when="kernels multiply in FP32 without TF32, on compute capability 8.0 or newer",
        text="kernels: {kernels}, {kernels_ns}, {time_share} of kernel time",
        remedy="allow TF32: torch.set_float32_matmul_precision('high')",
        estimate="half the time of these kernels, at most all",
        source=TORCH_TIDY,
        needs=("kernels", "capability"),
        find=single_precision,
        remedy_elsewhere="allow TF32: cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH)",
        timeline=False,
    ),
    Check(
        name="casts",
        title="Many dtype casts",
        when=f"kernels that only cast are more than {MIN_CASTS:.0%} of the time of kernels",
        text="kernels that only cast: {kernels}, {time_share} of kernel time; ranges that cast more than once: {again}",
        remedy="keep tensors in one dtype; put whole blocks under autocast; cast weights once, not in every step",
        estimate="half the time of these kernels",
        source=NSIGHT_BRIDGE,
        needs=("kernels", "ops"),
        find=casts,
        timeline=False,
    ),
)


# -- Rules of Nsight Compute, with its estimates


ESTIMATE = "the run with the speedup that Nsight Compute estimates"
RECOMMENDATIONS = ("OPT", "WRN")  # kinds of results that recommend a change
SAME_LAUNCH = MATCH_LEVELS.index("geometry")  # required match: other grids have other problems
PERCENT = 100.0
SENTENCE = re.compile(r"(?<=[.!?])\s+")
MAX_QUOTED = 240  # characters of a quoted text


def nsight_compute_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield each rule of Nsight Compute with an estimate for whole kernels, and these kernels.

    For kernels without such an estimate it yields the rules that estimate a part, or warn.
    """
    rules, sure = evidence.capture.metrics.rules, evidence.capture.metrics.sure
    activity, place = rule_results(evidence.attributed)
    estimate = np.where(rules.scope.among(KERNEL_SCOPE), rules.speedup, 0.0)[place]
    is_selected = evidence.is_kind(frames.KERNEL, frames.GRAPH)[activity]
    is_selected &= rules.kind.among(*RECOMMENDATIONS)[place]
    if len(sure):
        is_selected &= sure[activity] <= SAME_LAUNCH
    has_estimate = np.zeros(len(evidence.time), bool)
    has_estimate[activity[is_selected & (estimate > 0)]] = True
    is_selected &= (estimate > 0) | ~has_estimate[activity]
    activity, place = activity[is_selected], place[is_selected]
    share = np.clip(estimate[is_selected] / PERCENT, 0.0, 1.0)
    savings = np.rint(evidence.time[activity] * share).astype(np.int64)
    savings[share == 0] = UNKNOWN
    rule = rules.rule.codes[place]
    for code in np.unique(rule).tolist():  # one iteration per rule
        of_rule = np.flatnonzero(rule == code)
        text = rules.text[int(place[of_rule[np.argmax(savings[of_rule])]])]
        name = rules.rule.texts[code]
        yield _finding(
            evidence, name, text=text, activity=activity[of_rule], saved=savings[of_rule]
        )


def _finding(evidence: Evidence, name: str, text: str, activity: Ints, saved: Ints) -> Finding:
    """Return the finding of a rule of Nsight Compute about kernels, with its estimates."""
    table = activity_table(evidence, activity, np.maximum(saved, 0)).rename(
        {"total_ns": "saves_ns"}
    )
    figures = {
        "rule": name,
        "kernels": len(activity),
        "kernel": table["activity"][0],
        "says": shortened(text).removesuffix("."),
    }
    if saved.max() == UNKNOWN:
        table = activity_table(evidence, activity)
        return Finding(figures, table)
    saved = np.maximum(saved, 0)
    if not evidence.has_graph:
        ceiling = evidence.max_work_over_gpus(activity, saved)
        return Finding(figures, table, ceiling, ceiling, is_named=True)
    places, left = _placed(evidence, activity, evidence.time[activity] - saved)
    change = interventions.shorter_work(evidence.run, places, left)
    return Finding(figures, table, change=change, is_named=True)


def shortened(text: str) -> str:
    """Return the first sentences of a text, up to `MAX_QUOTED` characters."""
    first, *others = SENTENCE.split(" ".join(text.split()))
    for sentence in others:
        if len(first) + 1 + len(sentence) > MAX_QUOTED:
            return first
        first = f"{first} {sentence}"
    return first


NSIGHT_COMPUTE_RULES = (
    Check(
        name="nsight-compute",
        title="Nsight Compute recommends changes of kernels",
        when="a rule of Nsight Compute estimates how much of its time a measured kernel would save, or, if none does, estimates a part of it or warns; each such rule is one piece of advice",
        text="rule {rule} applies to kernels: {kernels}; of {kernel} it says: {says}",
        remedy="bridge report REPORT --by rule lists all results; Nsight Compute shows the place in the kernel",
        estimate=ESTIMATE,
        source=NSIGHT_COMPUTE,
        needs=("kernels", "counters"),
        find=nsight_compute_findings,
        timeline=False,
    ),
)
