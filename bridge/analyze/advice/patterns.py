"""Rules on how a program uses PyTorch: patterns of its ops, one after another or inside one another."""

from __future__ import annotations

import json
import re

import numpy as np

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import NOT_ESTIMATED, TIDY, UNKNOWN, Finding, Rule
from bridge.analyze.tables import input_shapes
from bridge.join.arrays import Flags, Ints, by
from importers import frames

TO_DEVICE = 1  # a copy's direction, as nsys numbers them
MADE = re.compile(
    r"aten::(?:zeros|ones|full|rand|randn|randint|arange|eye|fill_|zero_|normal_|uniform_)(?:_like)?"
)
MOVED = re.compile(r"aten::(?:to|_to_copy|copy_|cuda)")
ZERO_GRAD = re.compile(r"(?:.*[.#:])?zero_grad.*", re.IGNORECASE)
ZERO = re.compile(r"aten::(?:zero_|_foreach_zero_)")
STEP = re.compile(r"Optimizer\.step#.*|.*[Oo]ptimizer[.:]step.*")
MANY_AT_ONCE = re.compile(
    r"multi_tensor_apply|fused_adam|foreach|FusedAdam|FusedOptimizer", re.IGNORECASE
)
TOGETHER = re.compile(r"aten::_(?:foreach|fused)_")
PER_STEP = 30  # kernels of an optimizer's step
CONVOLUTION, NORM = re.compile(r"aten::conv[123]d"), re.compile(r"aten::batch_norm")
PRODUCT = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm)")
HALF = re.compile(r"fp16|bf16|f16|h884|s884|hgemm|16816|half|bfloat|nvjet_[ht]s[ht]", re.IGNORECASE)
MULTIPLE = 8  # of which Tensor Cores want both last dimensions
TAKEN = re.compile(r"aten::(?:select|index|slice|__getitem__)")
TIMES = 10


def made_on_the_host(seen: Seen) -> Finding | None:
    """Tensors made on the host and then copied to the GPU."""
    bare = seen.ops_like(MADE.fullmatch) & (seen.under(seen.counted) == 0)
    to_device = seen.of_kind(frames.MEMCPY) & (
        frames.ints(seen.report.activities, "copy_kind") == TO_DEVICE
    )
    moved = seen.ops_like(MOVED.fullmatch) & (seen.under(to_device) > 0)
    first, second = _neighbours(seen)
    rows = second[bare[first] & moved[second]]
    return _of_nodes(seen, rows)


def sets_to_zero(seen: Seen) -> Finding | None:
    """Gradients that are set to zero in place of None."""
    rows = np.flatnonzero(
        seen.outermost(seen.ops_like(ZERO.fullmatch))
        & seen.inside(seen.ops_like(ZERO_GRAD.fullmatch))
    )
    return _of_nodes(seen, rows)


def steps_tensor_by_tensor(seen: Seen) -> Finding | None:
    """Optimizers that update one tensor after another."""
    nodes, kernels = seen.outermost(seen.ops_like(STEP.fullmatch)), seen.under(seen.kernels)
    rows = np.flatnonzero(nodes & (kernels >= PER_STEP) & ~_updates_many(seen))
    if not len(rows):
        return None
    own = seen.work_in(rows)
    idle = seen.most(own, seen.idle_before[0][own])
    figures = {"steps": len(rows), "kernels": int(kernels[rows].mean()), "idle_ns": idle}
    nesting = seen.joined.attribution.nesting
    ceiling = seen.most_work(own) + idle
    table = rule.of_nodes(seen, rows, (nesting.end - nesting.start)[rows])
    return Finding(figures, table, ceiling, idle)


def _updates_many(seen: Seen) -> Flags:
    """Tell around which nodes an op or a kernel takes many tensors at once."""
    at_once = np.zeros(len(seen.time), bool)
    for column in (seen.report.activities[name] for name in ("name", "full_name")):
        told = [MANY_AT_ONCE.search(name) is not None for name in column.cat.categories]
        at_once |= np.array([*told, False], bool)[frames.codes(column)]
    found: Flags = seen.under(seen.kernels & at_once) > 0
    found[seen.around(seen.ops_like(TOGETHER.match))] = True
    return found


def bias_before_norm(seen: Seen) -> Finding | None:
    """Convolutions with a bias that the batch norm right after takes away again."""
    code, names = input_shapes.shapes(seen.joined)
    has_bias = np.array([*(_third(name) for name in names), False], bool)
    first, second = _neighbours(seen)
    range_ = seen.joined.attribution.nesting.range
    found = (
        seen.ops_like(CONVOLUTION.fullmatch)[first]
        & seen.ops_like(NORM.fullmatch)[second]
        & has_bias[code[range_[first]]]
    )
    return _of_nodes(seen, first[found], estimated=False)


def _third(shapes: str) -> bool:
    """Tell whether a third input has a shape: a convolution's bias."""
    listed = _listed(shapes)
    return len(listed) > 2 and isinstance(listed[2], list) and len(listed[2]) == 1  # noqa: PLR2004 (the third of an op's arguments)


def misaligned(seen: Seen) -> Finding | None:
    """Products of matrices in half precision with dimensions that are no multiples of 8."""
    code, names = input_shapes.shapes(seen.joined)
    odd = np.array([*(_odd(name) for name in names), False], bool)
    range_ = seen.joined.attribution.nesting.range
    nodes = seen.ops_like(PRODUCT.fullmatch) & odd[code[range_]]
    kernels = seen.report.activities["name"]
    told = np.array([*(HALF.search(n) is not None for n in kernels.cat.categories), False], bool)
    rows = np.flatnonzero(nodes & (seen.under(seen.kernels & told[frames.codes(kernels)]) > 0))
    return _of_nodes(seen, rows, estimated=False)


def _odd(shapes: str) -> bool:
    matrices = [one[-2:] for one in _listed(shapes) if isinstance(one, list) and len(one) > 1]
    sizes = [size for one in matrices for size in one if isinstance(size, int)]
    return any(size % MULTIPLE for size in sizes)


def _listed(shapes: str) -> list[object]:
    try:
        found = json.loads(shapes) if shapes else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def taken_one_by_one(seen: Seen) -> Finding | None:
    """Ten or more of the same indexing op in a row under one range: a loop over a tensor."""
    first, second = _neighbours(seen)
    op = seen.joined.node_op
    same = seen.ops_like(TAKEN.fullmatch)[first] & (op[first] == op[second])
    length = _run_lengths(first, second, same)
    rows = np.flatnonzero(length >= TIMES)
    return _of_nodes(seen, rows)


def _run_lengths(first: Ints, second: Ints, linked: Flags) -> Ints:
    """Return for each node how long the chain of linked neighbours is that it lies in; 0 for none."""
    breaks = (
        np.concatenate(([True], ~(linked[:-1] & (second[:-1] == first[1:]))))
        if len(first)
        else np.zeros(0, bool)
    )
    chain = np.cumsum(breaks | ~linked) - 1
    size = np.bincount(chain[linked], minlength=int(chain.max(initial=-1)) + 1) + 1
    length = np.zeros(int(max(first.max(initial=-1), second.max(initial=-1))) + 1, np.int64)
    length[first[linked]] = size[chain[linked]]
    length[second[linked]] = size[chain[linked]]
    return length


def _neighbours(seen: Seen) -> tuple[Ints, Ints]:
    """Return pairs of nodes that follow one another under the same node, or on the same thread under none."""
    nesting = seen.joined.attribution.nesting
    order = by(nesting.stack, nesting.parent, nesting.start)
    first, second = order[:-1], order[1:]
    same = (nesting.stack[first] == nesting.stack[second]) & (
        nesting.parent[first] == nesting.parent[second]
    )
    return first[same], second[same]


def _of_nodes(seen: Seen, rows: Ints, *, estimated: bool = True) -> Finding | None:
    """Return a finding of ranges that could go: at most their work and the idle time of GPUs before it."""
    if not len(rows):
        return None
    nesting = seen.joined.attribution.nesting
    spent = (nesting.end - nesting.start)[rows]
    own = seen.work_in(rows)
    figures = {
        "calls": len(rows),
        "host_ns": int(spent.sum()),
        "work_ns": int(seen.time[own].sum()),
    }
    removed = seen.most_work(own) + seen.most(own, seen.idle_before[0][own])
    table = rule.of_nodes(seen, rows, spent)
    return Finding(figures, table, removed, removed if estimated else UNKNOWN)


RULES = (
    Rule(
        "made-on-host",
        "Tensors are made on the host and then copied",
        "an op fills a tensor without work on the GPU, and the next one copies to the GPU",
        "tensors: {calls}, {host_ns} of the host, {work_ns} of work",
        "make them where they are needed: torch.zeros(…, device='cuda')",
        "the work of the copies and the idle time before them",
        TIDY,
        ("pytorch", "work"),
        made_on_the_host,
    ),
    Rule(
        "gradients-set-to-zero",
        "Gradients are set to zero one by one",
        "zero_grad calls zero_",
        "gradients: {calls}, {host_ns} of the host, {work_ns} of work",
        "optimizer.zero_grad(set_to_none=True)",
        "their work and the idle time before it",
        TIDY,
        ("pytorch", "work"),
        sets_to_zero,
    ),
    Rule(
        "single-tensor-optimizer",
        "The optimizer updates one tensor after another",
        f"a step of an optimizer has {PER_STEP} kernels or more, and no kernel or op of several tensors",
        "steps of an optimizer: {steps}, with {kernels} kernels each; before these a GPU is idle for launching {idle_ns}",
        "Adam(…, fused=True) or foreach=True",
        "the idle time for launching before its kernels",
        TIDY,
        ("pytorch", "kernels"),
        steps_tensor_by_tensor,
    ),
    Rule(
        "bias-before-norm",
        "Convolutions add a bias that the norm takes away",
        "a convolution with a third input is followed by a batch norm",
        "convolutions with a bias before a batch norm: {calls}, {work_ns} of work",
        "Conv2d(…, bias=False) before a BatchNorm",
        NOT_ESTIMATED,
        TIDY,
        ("pytorch", "shapes"),
        bias_before_norm,
    ),
    Rule(
        "misaligned-products",
        "Products in half precision with odd dimensions",
        f"one of the last two dimensions of a product in half precision is no multiple of {MULTIPLE}",
        "products with a dimension that is no multiple of 8: {calls}, {work_ns} of work",
        "pad dimensions (vocabulary, channels, batch) to multiples of 8",
        NOT_ESTIMATED,
        TIDY,
        ("pytorch", "kernels", "shapes"),
        misaligned,
    ),
    Rule(
        "indexing-in-a-loop",
        "A tensor is taken apart in a loop",
        f"an indexing op stands {TIMES} times or more in a row in one range",
        "pieces taken one by one: {calls}, {host_ns} of the host, {work_ns} of work",
        "index once with a tensor of indices, or unbind",
        "their work and the idle time before it",
        TIDY,
        ("pytorch", "work"),
        taken_one_by_one,
    ),
)
