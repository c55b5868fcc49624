"""Rules about the use of PyTorch: patterns of successive or nested ops."""

from __future__ import annotations

import json
import re

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import TORCH_TIDY, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.core.call_details import input_shapes
from bridge.analyze.run import interventions
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import Run
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Flags, Ints, order_by

TO_DEVICE = 1  # copy kind of nsys
CREATION = re.compile(
    r"aten::(?:zeros|ones|full|rand|randn|randint|arange|eye|fill_|zero_|normal_|uniform_)(?:_like)?"
)
TRANSFER = re.compile(r"aten::(?:to|_to_copy|copy_|cuda)")
ZERO_GRAD = re.compile(r"(?:.*[.#:])?zero_grad.*", re.IGNORECASE)
ZERO = re.compile(r"aten::(?:zero_|_foreach_zero_)")
STEP = re.compile(r"Optimizer\.step#.*|.*[Oo]ptimizer[.:]step.*")
MULTI_TENSOR_KERNEL = re.compile(
    r"multi_tensor_apply|fused_adam|foreach|FusedAdam|FusedOptimizer", re.IGNORECASE
)
MULTI_TENSOR_OP = re.compile(r"aten::_(?:foreach|fused)_")
MIN_KERNELS_PER_STEP = 30  # kernels in a step of an optimizer
CONVOLUTION, NORM = re.compile(r"aten::conv[123]d"), re.compile(r"aten::batch_norm")
PRODUCT = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm)")
HALF = re.compile(r"fp16|bf16|f16|h884|s884|hgemm|16816|half|bfloat|nvjet_[ht]s[ht]", re.IGNORECASE)
MULTIPLE = 8  # required by Tensor Cores for the last two dimensions
INDEXING = re.compile(r"aten::(?:select|index|slice|__getitem__)")
MIN_REPEATS = 10
LONGEST_NS = (
    1_000_000  # of code or a call in an op that is left out; longer ones initialize something
)


def created_on_host(evidence: Evidence) -> Finding | None:
    """Find tensors that are created on the host and then copied to the GPU."""
    creates = evidence.nodes_with_op(CREATION.fullmatch) & (
        evidence.sums_under(evidence.counted) == 0
    )
    to_device = evidence.is_kind(frames.MEMCPY) & (
        evidence.capture.activities.copy_kind == TO_DEVICE
    )
    transfers = evidence.nodes_with_op(TRANSFER.fullmatch) & (evidence.sums_under(to_device) > 0)
    first, second = _successive_nodes(evidence)
    rows = second[creates[first] & transfers[second]]
    return _removable_ranges(evidence, rows)


def zeroed_gradients(evidence: Evidence) -> Finding | None:
    """Find gradients that are set to zero instead of None."""
    rows = np.flatnonzero(
        evidence.outermost(evidence.nodes_with_op(ZERO.fullmatch))
        & evidence.is_inside(evidence.nodes_with_op(ZERO_GRAD.fullmatch))
    )
    return _removable_ranges(evidence, rows)


def single_tensor_optimizer(evidence: Evidence) -> Finding | None:
    """Find optimizers that update one tensor after another."""
    nodes = evidence.outermost(evidence.nodes_with_op(STEP.fullmatch))
    kernels = evidence.sums_under(evidence.kernels)
    rows = np.flatnonzero(nodes & (kernels >= MIN_KERNELS_PER_STEP) & ~_has_multi_tensor(evidence))
    if not len(rows):
        return None
    work = evidence.work_in(rows)
    nesting = evidence.attributed.attribution.nesting
    figures = {
        "steps": len(rows),
        "kernels": int(kernels[rows].mean()),
        "work_ns": int(evidence.time[work].sum()),
    }
    table = rule.node_table(evidence, rows, (nesting.end - nesting.start)[rows])
    run, selected = evidence.run, np.zeros(len(evidence.time), bool)
    selected[work] = True
    places = interventions.work_places(run, selected)
    places = places[run.work.launch[places] != NONE]
    change = interventions.as_graph(run, places)
    limit = interventions.together((change, interventions.without_work(run, places)))
    return Finding(figures, table, change=change, limit=limit)


def _has_multi_tensor(evidence: Evidence) -> Flags:
    """Return whether each node contains an op or kernel that updates many tensors at once."""
    activities = evidence.capture.activities
    is_multi_tensor = activities.name.matching(MULTI_TENSOR_KERNEL.search)
    is_multi_tensor |= activities.full_name.matching(MULTI_TENSOR_KERNEL.search)
    result: Flags = evidence.sums_under(evidence.kernels & is_multi_tensor) > 0
    result[evidence.with_ancestors(evidence.nodes_with_op(MULTI_TENSOR_OP.match))] = True
    return result


def bias_before_norm(evidence: Evidence) -> Finding | None:
    """Find convolutions with a bias that the following batch norm removes."""
    code, names = input_shapes(evidence.attributed)
    has_bias = np.array([*(_has_third_input(name) for name in names), False], bool)
    first, second = _successive_nodes(evidence)
    range_ = evidence.attributed.attribution.nesting.range
    result = (
        evidence.nodes_with_op(CONVOLUTION.fullmatch)[first]
        & evidence.nodes_with_op(NORM.fullmatch)[second]
        & has_bias[code[range_[first]]]
    )
    return _removable_ranges(evidence, first[result], estimated=False)


def _has_third_input(shapes: str) -> bool:
    """Return whether a third input, such as the bias of a convolution, has a shape."""
    inputs = _parse_shapes(shapes)
    return len(inputs) > 2 and isinstance(inputs[2], list) and len(inputs[2]) == 1  # noqa: PLR2004 (the third of an op's arguments)


def misaligned_products(evidence: Evidence) -> Finding | None:
    """Find half-precision matrix products with dimensions that are no multiples of 8."""
    code, names = input_shapes(evidence.attributed)
    is_odd = np.array([*(_is_misaligned(name) for name in names), False], bool)
    range_ = evidence.attributed.attribution.nesting.range
    nodes = evidence.nodes_with_op(PRODUCT.fullmatch) & is_odd[code[range_]]
    is_half = evidence.kernels & evidence.capture.activities.name.matching(HALF.search)
    rows = np.flatnonzero(nodes & (evidence.sums_under(is_half) > 0))
    return _removable_ranges(evidence, rows, estimated=False)


def _is_misaligned(shapes: str) -> bool:
    matrices = [
        shape[-2:] for shape in _parse_shapes(shapes) if isinstance(shape, list) and len(shape) > 1
    ]
    sizes = [size for matrix in matrices for size in matrix if isinstance(size, int)]
    return any(size % MULTIPLE for size in sizes)


def _parse_shapes(shapes: str) -> list[object]:
    try:
        result = json.loads(shapes) if shapes else []
    except (ValueError, RecursionError):
        return []
    return result if isinstance(result, list) else []


def repeated_indexing(evidence: Evidence) -> Finding | None:
    """Find ten or more successive indexing ops in one range: a loop over a tensor."""
    first, second = _successive_nodes(evidence)
    op = evidence.attributed.node_op
    is_linked = evidence.nodes_with_op(INDEXING.fullmatch)[first] & (op[first] == op[second])
    length = _run_lengths(first, second, is_linked)
    rows = np.flatnonzero(length >= MIN_REPEATS)
    return _removable_ranges(evidence, rows)


def _run_lengths(first: Ints, second: Ints, linked: Flags) -> Ints:
    """Return the length of the chain of linked neighbours of each node; 0 for none."""
    starts = (
        np.concatenate(([True], ~(linked[:-1] & (second[:-1] == first[1:]))))
        if len(first)
        else np.zeros(0, bool)
    )
    chain = np.cumsum(starts | ~linked) - 1
    size = np.bincount(chain[linked], minlength=int(chain.max(initial=-1)) + 1) + 1
    length = np.zeros(int(max(first.max(initial=-1), second.max(initial=-1))) + 1, np.int64)
    length[first[linked]] = size[chain[linked]]
    length[second[linked]] = size[chain[linked]]
    return length


def _successive_nodes(evidence: Evidence) -> tuple[Ints, Ints]:
    """Return pairs of successive nodes with the same parent, or on the same thread without one."""
    nesting = evidence.attributed.attribution.nesting
    order = order_by(nesting.stack, nesting.parent, nesting.start)
    first, second = order[:-1], order[1:]
    is_pair = (nesting.stack[first] == nesting.stack[second]) & (
        nesting.parent[first] == nesting.parent[second]
    )
    return first[is_pair], second[is_pair]


def _removable_ranges(evidence: Evidence, rows: Ints, *, estimated: bool = True) -> Finding | None:
    """Return a finding of ranges that could be removed.

    The run without them has neither their code, their calls nor their work.
    """
    if not len(rows):
        return None
    nesting = evidence.attributed.attribution.nesting
    spent = (nesting.end - nesting.start)[rows]
    work = evidence.work_in(rows)
    figures = {
        "calls": len(rows),
        "host_ns": int(spent.sum()),
        "work_ns": int(evidence.time[work].sum()),
    }
    run, selected, nodes = (
        evidence.run,
        np.zeros(len(evidence.time), bool),
        np.zeros(len(nesting), bool),
    )
    selected[work], nodes[rows] = True, True
    points = interventions.host_points(run, interventions.under(run, nodes))
    calls = lookup(interventions.under(run, nodes)[:-1], evidence.attributed.launch_node, False)
    change = interventions.together(
        (
            _without_short(run, points),
            _without_short(run, interventions.call_points(run, calls)),
            interventions.without_work(run, interventions.work_places(run, selected)),
        )
    )
    table = rule.node_table(evidence, rows, spent)
    return Finding(figures, table, change=change if estimated else None, limit=change)


def _without_short(run: Run, points: Ints) -> Change:
    """Return the change that takes the time before some points, but for long ones: what is initialized stays."""
    short = points[run.graph.delay[points] <= LONGEST_NS]

    def change(draft: Draft) -> None:
        draft.remove(short)
        draft.cut(short)

    return change


RULES = (
    Check(
        name="made-on-host",
        title="Tensors are created on the host and then copied",
        when="an op fills a tensor without work on the GPU, and the next one copies to the GPU",
        text="tensors: {calls}; they take {host_ns} on the host and {work_ns} on the GPU",
        remedy="create them on the GPU: torch.zeros(…, device='cuda')",
        estimate="the run without them",
        source=TORCH_TIDY,
        needs=("pytorch", "work", "graph"),
        find=created_on_host,
    ),
    Check(
        name="gradients-set-to-zero",
        title="Gradients are set to zero one by one",
        when="zero_grad calls zero_",
        text="gradients: {calls}; they take {host_ns} on the host and {work_ns} on the GPU",
        remedy="set them to None: optimizer.zero_grad(set_to_none=True)",
        estimate="the run without them",
        source=TORCH_TIDY,
        needs=("pytorch", "work", "graph"),
        find=zeroed_gradients,
    ),
    Check(
        name="single-tensor-optimizer",
        title="The optimizer updates one tensor at a time",
        when=f"a step of an optimizer has {MIN_KERNELS_PER_STEP} kernels or more, and no kernel or op of several tensors",
        text="optimizer steps: {steps}, with {kernels} kernels each, which take {work_ns} in all",
        remedy="use Adam(…, fused=True), or foreach=True",
        estimate="the run with these kernels launched at once",
        source=TORCH_TIDY,
        needs=("pytorch", "kernels", "graph"),
        find=single_tensor_optimizer,
    ),
    Check(
        name="bias-before-norm",
        title="Convolutions add a bias that the batch norm removes",
        when="a convolution with a third input is followed by a batch norm",
        text="convolutions with a bias before a batch norm: {calls}; they take {work_ns} on the GPU",
        remedy="use Conv2d(…, bias=False) before a BatchNorm",
        source=TORCH_TIDY,
        needs=("pytorch", "shapes", "graph"),
        find=bias_before_norm,
    ),
    Check(
        name="misaligned-products",
        title="Half-precision products with unaligned dimensions",
        when=f"one of the last two dimensions of a product in half precision is no multiple of {MULTIPLE}",
        text="products with a dimension that is not a multiple of 8: {calls}; they take {work_ns} on the GPU",
        remedy="pad dimensions (vocabulary, channels, batch) to multiples of 8",
        source=TORCH_TIDY,
        needs=("pytorch", "kernels", "shapes", "graph"),
        find=misaligned_products,
    ),
    Check(
        name="indexing-in-a-loop",
        title="A tensor is indexed in a loop",
        when=f"an indexing op occurs {MIN_REPEATS} times or more in a row in one range",
        text="indexing ops in a row: {calls}; they take {host_ns} on the host and {work_ns} on the GPU",
        remedy="index once with a tensor of indices, or use unbind",
        estimate="the run without them",
        source=TORCH_TIDY,
        needs=("pytorch", "work", "graph"),
        find=repeated_indexing,
    ),
)
