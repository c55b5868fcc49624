"""The texts of ranges, read: an op, its kind, and what is said of the single call.

PyTorch writes what changes from call to call after the name, whoever wrote that name; the name itself
is read by one of the dialects. No text is ever evaluated, and none is lost: ``written(parse(text)) == text``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

# -- What libraries write into the names of their ranges: one dialect per way of writing, in one table


Arguments = tuple[tuple[str, object], ...]

PER_CALL = ("seq", "op_id", "sizes", "input_op_ids")  # PyTorch's keys after a name: no name's own
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,19}")  # as programs write it, up to 64 bits
LONGEST = 65_536  # characters of a dictionary: nobody writes more, and reading takes a µs for each

MARK = re.compile(r"""[][(){}"',]""")
OPENED_BY = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'"}

FSDP = re.compile(r"((?:FSDP::|FullyShardedDataParallel\.)[\w.:]+)(?: \((.+)\))?")
FSDP_TRAFFIC = frozenset(f"FSDP::{name}" for name in ("all_gather", "reduce_scatter", "all_reduce"))


@dataclass(frozen=True)
class Reading:
    """What a name says: the op, its kind, and what else it says of the call, in order."""

    op: str
    kind: str
    arguments: Arguments = ()


@dataclass(frozen=True)
class Dialect:
    """One way of writing names: ``read`` returns None for a name that is none of its own."""

    name: str
    read: Callable[[str], Reading | None]
    write: Callable[[Reading], str]


def read(name: str) -> tuple[Dialect, Reading]:
    """Return the first dialect that reads a name, and what it reads."""
    for dialect in DIALECTS[:-1]:
        found = dialect.read(name)
        if found and _free(found.arguments) and dialect.write(found) == name:
            return dialect, found
    return DIALECTS[-1], Reading(name, "range")


def write(dialect: str, reading: Reading) -> str:
    """Return the name that a dialect, given by its own name, writes; raise KeyError if there is none such."""
    return BY_NAME[dialect].write(reading)


def number(text: str) -> int | str:
    """Return the integer that a text is, or the text if that would be written in another way."""
    return int(text) if INTEGER.fullmatch(text) else text


def _free(arguments: Arguments) -> bool:
    return not any(key in PER_CALL for key, _ in arguments)


def _op(reading: Reading) -> str:
    return reading.op


def _whole(name: str, kind: str, pattern: str) -> Dialect:
    """Return a dialect whose op is the whole name; the pattern's named groups are its arguments."""
    compiled = re.compile(pattern, re.DOTALL)

    def reading(text: str) -> Reading | None:
        found = compiled.fullmatch(text)
        return Reading(text, kind, tuple(found.groupdict().items())) if found else None

    return Dialect(name, reading, _op)


# -- steps of the profiler


def _step(name: str) -> Reading | None:
    op, _, step = name.partition("#")
    return Reading(op, "step", (("step", number(step)),)) if op == "ProfilerStep" and step else None


def _write_step(reading: Reading) -> str:
    return f"{reading.op}#{reading.arguments[0][1]}"


# -- FSDP and the module it is about


def _fsdp(name: str) -> Reading | None:
    found = FSDP.fullmatch(name)
    if not found:
        return None
    kind = "communication" if found[1] in FSDP_TRAFFIC else "range"
    return Reading(name, kind, (("module", found[2]),) if found[2] else ())


# -- dictionaries of PyProf


def _pyprof(name: str) -> Reading | None:
    match _literal(name):
        case {"traceMarker": [*_, str(op)]} as said:
            return Reading(op, "source", tuple(said.items()))
        case {"mod": str(module), "op": str(function), **rest}:
            return Reading(f"{module}.{function}", "operator", tuple(rest.items()))
    return None


def _write_pyprof(reading: Reading) -> str:
    if reading.kind == "source":
        return repr(dict(reading.arguments))
    module, _, function = reading.op.rpartition(".")
    return repr({"mod": module, "op": function, **dict(reading.arguments)})


def _literal(text: str) -> dict[str, object]:
    """Return the dictionary, its keys texts, that a text is the ``repr`` of; else an empty one.

    Only literals are read, nothing is evaluated. What no program meant to be read (brackets a thousand
    deep, integers of 5000 digits) fails in as many ways as are caught here.
    """
    if not (text.startswith("{'") and text.endswith("}") and len(text) <= LONGEST):
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an unknown escape in a text
            value = ast.literal_eval(text)
        as_written = isinstance(value, dict) and repr(value) == text
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return {}
    return value if as_written and all(isinstance(key, str) for key in value) else {}


# -- annotations of XLA and TensorFlow


def _trace_me(name: str, end: str) -> Reading | None:
    head, _, body = name.removesuffix("#").partition("#")
    title = head.removesuffix(":")
    if not (name.endswith("#") and title) or head != title + end:
        return None
    arguments = []
    for pair in _pairs(body):
        key, equals, value = pair.partition("=")
        if not (key.isidentifier() and equals):
            return None
        arguments.append((key, number(value)))
    hlo = _hlo(tuple(arguments))
    return Reading(title + hlo, _kind(title, arguments), tuple(arguments))


def _write_trace_me(reading: Reading, end: str) -> str:
    title = reading.op.removesuffix(_hlo(reading.arguments))
    return f"{title}{end}#{','.join(f'{key}={value}' for key, value in reading.arguments)}#"


def _kind(title: str, arguments: list[tuple[str, int | str]]) -> str:
    keys = {key for key, _ in arguments}
    if "step_num" in keys:  # jax.profiler.StepTraceAnnotation
        return "step"
    return "operator" if "hlo_op" in keys or title.startswith("TfOp") else "range"


def _hlo(arguments: Arguments) -> str:
    """Return what the op ends with: a colon and the first of XLA's own names that is given."""
    for key in ("hlo_op", "hlo_module"):
        for given, value in arguments:
            if given == key and value != "":
                return f":{value}"
    return ""


def _pairs(body: str) -> Iterator[str]:
    """Split at the commas that stand in no brackets and no quotes, as XLA itself does."""
    start, opened = 0, [""]
    for found in MARK.finditer(body):
        mark = found[0]
        if OPENED_BY.get(mark) == opened[-1]:
            opened.pop()
        elif mark in OPENED_BY.values():
            opened.append(mark)
        elif mark == "," and len(opened) == 1:
            yield body[start : found.start()]
            start = found.end()
    yield body[start:]


# The first that reads a name wins. Operators of PyTorch are in snake case in a namespace in lower case;
# C++ classes are not: ``ExecutionContext::enqueue`` and ``cub::DeviceReduce::Sum`` are plain.
DIALECTS = (
    Dialect("pyprof", _pyprof, _write_pyprof),
    Dialect("xla", partial(_trace_me, end=":"), partial(_write_trace_me, end=":")),
    Dialect("trace-me", partial(_trace_me, end=""), partial(_write_trace_me, end="")),
    Dialect("step", _step, _write_step),
    _whole("optimizer", "optimizer", r"Optimizer\.(\w+)#(?P<optimizer>.+?)(?:\.\1)?"),
    _whole("dataloader", "dataloader", r"enumerate\(DataLoader\)#.+"),
    _whole("module", "module", r"nn\.Module: (?P<module>.+)"),
    _whole("layer", "module", r"(?:module|layer):(?P<module>[^\s:]\S*)"),
    _whole("backward", "module", r"backward:(?P<module>[^\s:]\S*)"),  # as bridge.torch writes it
    _whole("autograd", "operator", r"autograd::engine::evaluate_function: (?P<function>.+)"),
    Dialect("fsdp", _fsdp, _op),
    _whole(
        "communication",
        "communication",
        r"record_param_comms|_?c10d(?:_functional)?::.+|nccl[A-Z:_].*|MPI_\w.*|nvshmem.*",
    ),
    _whole(
        "operator",
        "operator",
        r"(?:(?:aten|prims?)::\w+|[a-z_]\w*::[a-z_][a-z0-9_]*)(?:\.\w+)?"
        r"|torch::autograd::\w+|\w+Backward\d*|_backward_\w+",
    ),
    Dialect("plain", partial(Reading, kind="range"), _op),
)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


# -- The texts of ranges, read: an op, its kind, and what is said of the single call


KINDS = (
    *("range", "operator", "module", "step"),
    *("optimizer", "dataloader", "communication", "source"),
)

# The per-call part starts at the first key that a value follows, and ends with a value; as in
# importers.percall, which cuts whole columns of texts.
KEY = re.compile(rf", ({'|'.join(PER_CALL)}) = (?=[0-9\-\[])")
ENDS_A_VALUE = tuple("0123456789]")
BRACKET_OR_INTEGER = re.compile(r"[][()]|-?[0-9]{1,20}")
DEEPEST = 16  # brackets in brackets: PyTorch writes two
IN_CALLS = ("seq", "op_id")  # only calls that PyTorch itself observes have these

# A word is bounded by what is no letter: ``_softmax_backward_data`` has it, ``backwards-compatible`` and
# ``RegisterPostBackwardFunction``, which runs in the forward pass, have not. What is called
# ``forward_backward`` is around both.
WORD = re.compile(r"(?<![a-z])backward(?![a-z])", re.IGNORECASE | re.ASCII)
BOTH = re.compile(r"(?<![a-z])(?:forward|fwd)(?![a-z])", re.IGNORECASE | re.ASCII)
NODES = re.compile(  # of the graph that autograd runs backward
    r"autograd::engine::evaluate_function: .+"
    r"|torch::autograd::(?:AccumulateGrad|CopyBackwards|CopySlices)"
    r"|\w+Backward\d*",
    re.DOTALL,
)
NAMES_OF_CODE = ("module", "source")  # a module may be called backward_lstm


@dataclass(frozen=True)
class Label:
    """A range's text, read: the op without what is of the single call, and that as ``arguments``, in order.

    ``backward`` says that by its name it runs in the backward pass; ``dialect`` which dialect read it.
    """

    op: str
    kind: str
    backward: bool
    arguments: Arguments
    dialect: str


def parse(text: str) -> Label:
    """Read the text of a range; any text can be read."""
    name, call = _cut(text)
    dialect, found = read(name)
    observed = dialect.name == "plain" and any(key in IN_CALLS for key, _ in call)
    kind = "operator" if observed else found.kind
    backward = dialect.name == "backward" or (
        kind not in NAMES_OF_CODE and _runs_backward(found.op)
    )
    return Label(found.op, kind, backward, found.arguments + call, dialect.name)


def written(label: Label) -> str:
    """Return the text that a label was read from; raise KeyError if no dialect has its dialect's name."""
    own = tuple(pair for pair in label.arguments if pair[0] not in PER_CALL)
    call = (pair for pair in label.arguments if pair[0] in PER_CALL)
    name = write(label.dialect, Reading(label.op, label.kind, own))
    return name + "".join(f", {key} = {_nested(value, key)}" for key, value in call)


def _cut(text: str) -> tuple[str, Arguments]:
    """Return a text's name, and PyTorch's per-call part as arguments."""
    keys = list(KEY.finditer(text)) if text.endswith(ENDS_A_VALUE) else []
    if not keys:
        return text, ()
    ends = [key.start() for key in keys[1:]] + [len(text)]
    values = (text[key.end() : end] for key, end in zip(keys, ends, strict=True))
    call = tuple((key[1], _value(value, key[1])) for key, value in zip(keys, values, strict=True))
    return text[: keys[0].start()], call


def _value(text: str, key: str) -> object:
    """Return the integer or the nested tuples that a value is, or its text if that is written otherwise."""
    found = _structure(text)
    return text if found is None or _nested(found, key) != text else found


def _structure(text: str) -> object:
    """Return the integer or the nested tuples in a text, None for unbalanced brackets; skip all else."""
    stack: list[list[object]] = [[]]
    for part in BRACKET_OR_INTEGER.findall(text):
        if part in "[(":
            stack.append([])
        elif part not in "])":
            stack[-1].append(int(part))
        elif len(stack) > 1:
            done = tuple(stack.pop())
            stack[-1].append(done)
        if len(stack) > DEEPEST:
            return None
    return stack[0][0] if len(stack) == 1 and stack[0] else None


def _nested(value: object, key: str, *, depth: int = 0) -> str:
    """Write a value as PyTorch does: ``[[2, 3], []]``, but ``[(38,0), (0,-1)]`` for the ids of inputs."""
    if not isinstance(value, tuple):
        return str(value)
    pair = depth > 0 and key == "input_op_ids"
    opening, between, closing = ("(", ",", ")") if pair else ("[", ", ", "]")
    return opening + between.join(_nested(v, key, depth=depth + 1) for v in value) + closing


def _runs_backward(op: str) -> bool:
    return bool(NODES.fullmatch(op) or (WORD.search(op) and not BOTH.search(op)))
