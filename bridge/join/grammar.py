"""Parser of the texts of ranges: the op, its kind, and the arguments of the single call.

PyTorch appends a per-call part to the name of a range, whoever wrote the name. One of the dialects
reads the name. Texts are never evaluated, and no information is lost: ``written(parse(text)) ==
text``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from bridge.importers.records import record

# -- Dialects: how libraries write the names of their ranges


Arguments = tuple[tuple[str, object], ...]

PER_CALL = (
    "seq",
    "op_id",
    "sizes",
    "input_op_ids",
)  # PyTorch's keys after a name; names cannot use them
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,19}")  # without leading zeros, up to 64 bits
MAX_DICTIONARY = 65_536  # characters; parsing takes about 1 µs per character

DELIMITER = re.compile(r"""[][(){}"',]""")
OPENED_BY = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'"}

BACKWARD_MODULE = "backward"  # the dialect of a module's backward work

FSDP = re.compile(r"((?:FSDP::|FullyShardedDataParallel\.)[\w.:]+)(?: \((.+)\))?")
FSDP_TRAFFIC = frozenset(f"FSDP::{name}" for name in ("all_gather", "reduce_scatter", "all_reduce"))


class Reading(NamedTuple):
    """A parsed name: the op, its kind, and the other arguments of the call, in order."""

    op: str
    kind: str
    arguments: Arguments = ()


@record
class Dialect:
    """One format of names; ``read`` returns None for a name in another format."""

    name: str
    read: Callable[[str], Reading | None]
    write: Callable[[Reading], str]


def read(name: str) -> tuple[Dialect, Reading]:
    """Return the first dialect that can read a name, and the result."""
    for dialect in DIALECTS[:-1] if NOT_PLAIN.search(name) else ():
        reading = dialect.read(name)
        if reading and _is_allowed(reading.arguments) and dialect.write(reading) == name:
            return dialect, reading
    return DIALECTS[-1], Reading(name, "range")


def write(dialect: str, reading: Reading) -> str:
    """Return the name that the dialect called ``dialect`` writes.

    Raises KeyError if there is no such dialect.
    """
    return BY_NAME[dialect].write(reading)


def parse_integer(text: str) -> int | str:
    """Return the text as an integer, or unchanged if the integer would be written differently."""
    return int(text) if INTEGER.fullmatch(text) else text


def _is_allowed(arguments: Arguments) -> bool:
    return not any(key in PER_CALL for key, _ in arguments)


def _write_op(reading: Reading) -> str:
    return reading.op


def _pattern_dialect(name: str, kind: str, pattern: str) -> Dialect:
    """Return a dialect: the op is the whole name, the arguments are the groups of ``pattern``."""
    compiled = re.compile(pattern, re.DOTALL)

    def reading(text: str) -> Reading | None:
        match = compiled.fullmatch(text)
        return Reading(text, kind, tuple(match.groupdict().items())) if match else None

    return Dialect(name, reading, _write_op)


# Steps of PyTorch's profiler.


def _step(name: str) -> Reading | None:
    op, _, step = name.partition("#")
    return (
        Reading(op, "step", (("step", parse_integer(step)),))
        if op == "ProfilerStep" and step
        else None
    )


def _write_step(reading: Reading) -> str:
    return f"{reading.op}#{reading.arguments[0][1]}"


# FSDP, and the module in brackets.


def _fsdp(name: str) -> Reading | None:
    match = FSDP.fullmatch(name)
    if not match:
        return None
    kind = "communication" if match[1] in FSDP_TRAFFIC else "range"
    return Reading(name, kind, (("module", match[2]),) if match[2] else ())


# Dictionaries of PyProf.


def _pyprof(name: str) -> Reading | None:
    match _literal(name):
        case {"traceMarker": [*_, str(op)]} as dictionary:
            return Reading(op, "source", tuple(dictionary.items()))
        case {"mod": str(module), "op": str(function), **rest}:
            return Reading(f"{module}.{function}", "operator", tuple(rest.items()))
    return None


def _write_pyprof(reading: Reading) -> str:
    if reading.kind == "source":
        return repr(dict(reading.arguments))
    module, _, function = reading.op.rpartition(".")
    return repr({"mod": module, "op": function, **dict(reading.arguments)})


ESCAPE = re.compile(r"\\(.)", re.DOTALL)
STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
GLUED = re.compile(r"\d(?:and|else|for|if|in|is|not|or)")
WRITTEN_ESCAPES = "\\'nrtxuU"  # those that `repr` writes


def _literal(text: str) -> dict[str, object]:
    """Return the dictionary with string keys of which ``text`` is the ``repr``, or an empty one.

    Only literals are parsed; nothing is evaluated. Hostile texts (a thousand nested brackets,
    integers of 5000 digits) raise the errors that are caught here.
    """
    if not (text.startswith("{'") and text.endswith("}") and len(text) <= MAX_DICTIONARY):
        return {}
    # Python would warn of other escapes, and of `1if`.
    if not set(ESCAPE.findall(text)) <= set(WRITTEN_ESCAPES) or GLUED.search(STRING.sub("", text)):
        return {}
    try:
        value = ast.literal_eval(text)
        as_written = isinstance(value, dict) and repr(value) == text
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return {}
    return value if as_written and all(isinstance(key, str) for key in value) else {}


# Annotations of XLA and TensorFlow.


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
        arguments.append((key, parse_integer(value)))
    hlo = _hlo(tuple(arguments))
    return Reading(title + hlo, _kind(title, arguments), tuple(arguments))


def _write_trace_me(reading: Reading, end: str) -> str:
    title = reading.op.removesuffix(_hlo(reading.arguments))
    return f"{title}{end}#{','.join(f'{key}={value}' for key, value in reading.arguments)}#"


def _kind(title: str, arguments: list[tuple[str, int | str]]) -> str:
    keys = {key for key, _ in arguments}
    if "step_num" in keys:  # jax.profiler.StepTraceAnnotation
        return "step"
    if title == "batch" and "requests" in keys:  # bridge.batch
        return "batch"
    return "operator" if "hlo_op" in keys or title.startswith("TfOp") else "range"


def _hlo(arguments: Arguments) -> str:
    """Return the suffix of the op: a colon and XLA's first name in the arguments, or ""."""
    for key in ("hlo_op", "hlo_module"):
        for argument, value in arguments:
            if argument == key and value != "":
                return f":{value}"
    return ""


def _pairs(body: str) -> Iterator[str]:
    """Split at commas outside brackets and quotes, as XLA does."""
    start, open_marks = 0, [""]
    for match in DELIMITER.finditer(body):
        mark = match[0]
        if OPENED_BY.get(mark) == open_marks[-1]:
            open_marks.pop()
        elif mark in OPENED_BY.values():
            open_marks.append(mark)
        elif mark == "," and len(open_marks) == 1:
            yield body[start : match.start()]
            start = match.end()
    yield body[start:]


# Layers and batches of servers of language models. Layers are dictionaries (vLLM, SGLang), or names with shapes.

MODULE_PREFIX = "module:"
OUTPUT = (
    " (output)"  # a range behind the layer, which holds no work: vLLM tells shapes of outputs by it
)


def _layerwise(name: str) -> Reading | None:
    match _literal(name):
        case {"Module": str(module), **rest} if name.startswith("{'Module': "):
            is_output = "Outputs" in rest and "Inputs" not in rest
            op = MODULE_PREFIX + module + (OUTPUT if is_output else "")
            return Reading(
                op, "range" if is_output else "module", (("module", module), *rest.items())
            )
    return None


def _write_layerwise(reading: Reading) -> str:
    (_, module), *rest = reading.arguments
    return repr({"Module": module, **dict(rest)})


# Texts by op and kind, with a number in each pair of braces.
STEP_OF_EXECUTOR = "[Executor] _forward_step {step}: {prefill_requests} ctx reqs, "
COUNTED = {
    ("execute", "batch"): (  # vLLM
        "execute_context_{prefill_requests}({prefill_tokens})_generation_{decode_requests}({decode_tokens})",
        "execute_new_{prefill_requests}_cached_{decode_requests}",
    ),
    ("[Executor] _forward_step", "batch"): (  # TensorRT-LLM
        STEP_OF_EXECUTOR + "{prefill_tokens} ctx tokens, {decode_requests} gen reqs",
        STEP_OF_EXECUTOR + "{decode_requests} gen reqs",
        "[Executor] _forward_step: {prefill_requests} ctx reqs, {decode_requests} gen reqs",
    ),
    ("denoising_step", "step"): ("denoising_step_{step}_t{timestep}",),  # SGLang
}
FIELD = re.compile(r"\\\{(\w+)\\\}")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(FIELD.sub(r"(?P<\1>\\d{1,18})", re.escape(text)))


COUNTED_STARTS = ("execute_", "[Executor] ", "denoising_step_")
COUNTED_FORMS = tuple(
    (op, kind, text, _pattern(text)) for (op, kind), texts in COUNTED.items() for text in texts
)


def _counted(name: str) -> Reading | None:
    """Read a text in which numbers differ from call to call alone."""
    if not name.startswith(COUNTED_STARTS):
        return None
    for op, kind, _, pattern in COUNTED_FORMS:
        if match := pattern.fullmatch(name):
            return Reading(
                op, kind, tuple((k, parse_integer(v)) for k, v in match.groupdict().items())
            )
    return None


def _write_counted(reading: Reading) -> str:
    said = dict(reading.arguments)
    for op, _, text, pattern in COUNTED_FORMS:
        if op == reading.op and pattern.groupindex.keys() == said.keys():
            return text.format(**said)
    return reading.op


def _shaped(name: str) -> Reading | None:
    """Read ``transformer.blocks.0 in=[(1, 4096, 64)]``, as SGLang's diffusion names modules."""
    module, has, shapes = name.partition(" in=")
    if not (has and shapes.startswith("[") and SHAPED_MODULE.fullmatch(module)):
        return None
    return Reading(MODULE_PREFIX + module, "module", (("module", module), ("in", shapes)))


SHAPED_MODULE = re.compile(r"[A-Za-z_][\w.]*")


def _write_shaped(reading: Reading) -> str:
    return f"{reading.arguments[0][1]} in={reading.arguments[1][1]}"


# The first dialect that reads a name wins. Operators of PyTorch are in snake case in a lower-case
# namespace. C++ classes are not: ``ExecutionContext::enqueue`` and ``cub::DeviceReduce::Sum`` are
# plain.
DIALECTS = (
    Dialect("pyprof", _pyprof, _write_pyprof),
    Dialect("layerwise", _layerwise, _write_layerwise),
    Dialect("shaped", _shaped, _write_shaped),
    Dialect("counted", _counted, _write_counted),
    Dialect("xla", partial(_trace_me, end=":"), partial(_write_trace_me, end=":")),
    Dialect("trace-me", partial(_trace_me, end=""), partial(_write_trace_me, end="")),
    Dialect("step", _step, _write_step),
    _pattern_dialect("optimizer", "optimizer", r"Optimizer\.(\w+)#(?P<optimizer>.+?)(?:\.\1)?"),
    _pattern_dialect("dataloader", "dataloader", r"enumerate\(DataLoader\)#.+"),
    _pattern_dialect("module", "module", r"nn\.Module: (?P<module>.+)"),
    _pattern_dialect("layer", "module", r"(?:module|layer):(?P<module>[^\s:]\S*)"),
    _pattern_dialect(
        BACKWARD_MODULE, "module", r"backward:(?P<module>[^\s:]\S*)"
    ),  # as bridge.torch writes it
    _pattern_dialect(
        "autograd", "operator", r"autograd::engine::evaluate_function: (?P<function>.+)"
    ),
    Dialect("fsdp", _fsdp, _write_op),
    _pattern_dialect(
        "communication",
        "communication",
        r"record_param_comms|_?c10d(?:_functional)?::.+|nccl[A-Z:_].*|MPI_\w.*|nvshmem.*",
    ),
    _pattern_dialect(
        "operator",
        "operator",
        r"(?:(?:aten|prims?)::\w+|[a-z_]\w*::[a-z_][a-z0-9_]*)(?:\.\w+)?"
        r"|torch::autograd::\w+|\w+Backward\d*|_backward_\w+",
    ),
    Dialect("plain", partial(Reading, kind="range"), _write_op),
)
# Every name that a dialect but the last reads has one of these: most names have none.
NOT_PLAIN = re.compile(
    r"[{#:]|FullyShardedDataParallel|record_param_comms|nccl|MPI_|nvshmem|Backward|_backward_| in=\[|execute_|_step_"
)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


# -- Labels: whole texts, with PyTorch's per-call part


KINDS = (
    *("range", "operator", "module", "step"),
    *("optimizer", "dataloader", "communication", "source", "batch"),
)

# The per-call part starts at the first key that is followed by a value, and ends with a value, as
# in bridge.importers.range_texts, which splits whole columns of texts.
KEY = re.compile(rf", ({'|'.join(PER_CALL)}) = (?=[0-9\-\[])")
ENDS_A_VALUE = tuple("0123456789]")
BRACKET_OR_INTEGER = re.compile(r"[][()]|-?[0-9]{1,20}")
MAX_DEPTH = 16  # of nested brackets; PyTorch writes two
OBSERVED_KEYS = ("seq", "op_id")  # only calls that PyTorch observes have these keys

# "backward" must not be next to other letters: ``_softmax_backward_data`` matches, but not
# ``backwards-compatible`` or ``RegisterPostBackwardFunction``, which runs in the forward pass. A
# range called ``forward_backward`` contains both passes.
BACKWARD_WORD = re.compile(r"(?<![a-z])backward(?![a-z])", re.IGNORECASE | re.ASCII)
FORWARD_WORD = re.compile(r"(?<![a-z])(?:forward|fwd)(?![a-z])", re.IGNORECASE | re.ASCII)
AUTOGRAD_NODE = re.compile(  # nodes of the autograd graph
    r"autograd::engine::evaluate_function: .+"
    r"|torch::autograd::(?:AccumulateGrad|CopyBackwards|CopySlices)"
    r"|\w+Backward\d*",
    re.DOTALL,
)
CODE_KINDS = ("module", "source")  # a module may be called backward_lstm


class Label(NamedTuple):
    """The parsed text of a range: its op, and the per-call part as ``arguments``, in order.

    ``backward`` says that the range runs in the backward pass, by its name. ``dialect`` is the name
    of the dialect that read it.
    """

    op: str
    kind: str
    backward: bool
    arguments: Arguments
    dialect: str


@lru_cache(maxsize=1 << 17)  # many analyses parse the names of one report
def parse(text: str) -> Label:
    """Return the label of a text; every text can be parsed."""
    name, call = _split_call(text)
    dialect, reading = read(name)
    observed = dialect.name == "plain" and any(key in OBSERVED_KEYS for key, _ in call)
    kind = "operator" if observed else reading.kind
    backward = dialect.name == BACKWARD_MODULE or (
        kind not in CODE_KINDS and _runs_backward(reading.op)
    )
    return Label(
        op=reading.op,
        kind=kind,
        backward=backward,
        arguments=reading.arguments + call,
        dialect=dialect.name,
    )


def written(label: Label) -> str:
    """Return the text of a label; raises KeyError if no dialect has the name of its dialect."""
    name_arguments = tuple(pair for pair in label.arguments if pair[0] not in PER_CALL)
    call = (pair for pair in label.arguments if pair[0] in PER_CALL)
    name = write(label.dialect, Reading(label.op, label.kind, name_arguments))
    return name + "".join(f", {key} = {_format_value(value, key)}" for key, value in call)


def _split_call(text: str) -> tuple[str, Arguments]:
    """Split a text into its name and the arguments of PyTorch's per-call part."""
    keys = list(KEY.finditer(text)) if text.endswith(ENDS_A_VALUE) else []
    if not keys:
        return text, ()
    ends = [key.start() for key in keys[1:]] + [len(text)]
    values = (text[key.end() : end] for key, end in zip(keys, ends, strict=True))
    call = tuple(
        (key[1], _parse_value(value, key[1])) for key, value in zip(keys, values, strict=True)
    )
    return text[: keys[0].start()], call


def _parse_value(text: str, key: str) -> object:
    """Return a value as integer or nested tuples, or as text if those would not restore it."""
    result = _structure(text)
    return text if result is None or _format_value(result, key) != text else result


def _structure(text: str) -> object:
    """Return the integer or nested tuples in a text, ignoring other characters.

    Returns None if the brackets are unbalanced or nested too deeply.
    """
    stack: list[list[object]] = [[]]
    for part in BRACKET_OR_INTEGER.findall(text):
        if part in "[(":
            stack.append([])
        elif part not in "])":
            stack[-1].append(int(part))
        elif len(stack) > 1:
            closed = tuple(stack.pop())
            stack[-1].append(closed)
        if len(stack) > MAX_DEPTH:
            return None
    return stack[0][0] if len(stack) == 1 and stack[0] else None


def _format_value(value: object, key: str, *, depth: int = 0) -> str:
    """Format a value as PyTorch: ``[[2, 3], []]``, or ``[(38,0), (0,-1)]`` for ids of inputs."""
    if not isinstance(value, tuple):
        return str(value)
    pair = depth > 0 and key == "input_op_ids"
    opening, between, closing = ("(", ",", ")") if pair else ("[", ", ", "]")
    return opening + between.join(_format_value(v, key, depth=depth + 1) for v in value) + closing


def _runs_backward(op: str) -> bool:
    return bool(
        AUTOGRAD_NODE.fullmatch(op) or (BACKWARD_WORD.search(op) and not FORWARD_WORD.search(op))
    )
