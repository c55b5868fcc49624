"""Every text can be read and written again; the dialects read what libraries write; the documentation is true."""

import re
import string
import time
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from real_parts import ROOT, corpus_reports

from bridge import importers
from bridge.importers.range_texts import name_lengths
from bridge.importers.texts import Texts
from bridge.join.grammar import (
    BY_NAME,
    DIALECTS,
    KINDS,
    MAX_DICTIONARY,
    NOT_PLAIN,
    PER_CALL,
    Label,
    _split_call,
    parse,
    written,
)

EMPTY = ("failed-export", "no-kernels-osrt")
REGROUPED = ("pyprof", "xla", "trace-me")  # dialects whose op is not what it once was

PAGE = (ROOT / "docs" / "labels.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(.+?)` \| `(.+?)` \| (\w+)(, backward)? \|(.*?)\| ([\w-]+) \|$", re.MULTILINE
)
ROWS = ROW.findall(PAGE)

# -- texts, and pieces of texts that dialects look for

PIECES = """\
aten::mm|, seq = |, op_id = |, sizes = |, input_op_ids = |7|-1|007|[[2, 3], []]|[(38,0), (0,-1)]|[|]|(|)|,| |
ProfilerStep#|Optimizer.step#SGD|.step|enumerate(DataLoader)#|nn.Module: |module:|layer:|FSDP::all_gather|
FullyShardedDataParallel.|(layers.0)|record_param_comms|c10d::|nccl:|ncclSend|MPI_|{'mod': 'torch', 'op': 'mm'|
{'traceMarker': ['a.py:1']|}|'|"|\\|XlaModule:#|hlo_op=|hlo_module=|jit(f, g)|#|=|:|x|step_num=|Backward0|backward|
autograd::engine::evaluate_function: |_backward_|::|é|\ufffd|\n|\x00""".replace("|\n", "|").split(
    "|"
)
texts = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join),
)


@pytest.mark.slow
@given(texts)
@example("")
@example(", seq = 1")
@example("a, seq = 1, seq = 2, sizes = 3")
@example("a, sizes = [[[2, 3], [4]], []], op_id = -0")
@example("loss, seq = none")
@example("x, seq = \uff11")
@example("Thunk:#sizes=1#, op_id = 3")
@example("{'mod': 'a.b', 'op': 'c.d'}")
@example("\ud800")
def test_what_is_read_can_be_written_again(text):
    label = parse(text)
    assert written(label) == text
    assert label.kind in KINDS
    assert label.dialect in BY_NAME


@pytest.mark.slow
@given(st.lists(texts, max_size=8))
def test_the_name_ends_where_the_importer_cuts(many):
    cuts = zip(many, name_lengths(Texts.of(many)).tolist(), strict=True)
    for text, length in cuts:
        name = text.encode()[:length].decode()
        assert _split_call(text)[0] == name
        assert parse(text).op == parse(name).op


# -- labels, per dialect: what its writer can mean to say

words = st.text(string.ascii_letters + string.digits + "_", min_size=1)
idents = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)
paths = st.lists(words, min_size=1, max_size=4).map(".".join)
ints = st.integers(-(2**63), 2**64 - 1)
shapes = st.recursive(ints, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
edges = st.lists(st.tuples(ints, ints), max_size=3).map(tuple)
per_call = st.tuples(
    st.lists(st.tuples(st.just("seq"), ints), max_size=1),
    st.lists(st.tuples(st.just("op_id"), ints), max_size=1),
    st.lists(st.tuples(st.just("sizes"), shapes), max_size=1),
    st.lists(st.tuples(st.just("input_op_ids"), edges), max_size=1),
).map(lambda parts: tuple(pair for part in parts for pair in part))
literals = st.recursive(
    st.none() | st.booleans() | ints | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)
entries = st.dictionaries(
    st.text().filter(lambda key: key not in (*PER_CALL, "mod", "op", "traceMarker")),
    literals,
    max_size=3,
).map(lambda said: tuple(said.items()))
keys = idents.filter(
    lambda key: key not in (*PER_CALL, "hlo_op", "hlo_module", "step_num") and key.isidentifier()
)
values = (
    ints
    | paths.filter(lambda text: not text.isdecimal())
    | st.sampled_from(["", "f(a, b)", "[1,2]"])
)
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=4).map(tuple)


def whole(dialect, kind, head, key, value):
    """Labels whose op is the whole name, and which say one thing."""
    return value.map(
        lambda v: Label(head.format(v), kind, False, ((key, v),) if key else (), dialect)
    )


labels = {
    "pyprof": st.builds(
        lambda mod, op, said: Label(f"{mod}.{op}", "operator", False, said, "pyprof"),
        paths,
        words,
        entries,
    )
    | st.lists(st.text(), min_size=1, max_size=3).map(
        lambda lines: Label(lines[-1], "source", False, (("traceMarker", lines),), "pyprof")
    ),
    "layerwise": st.builds(
        lambda module, said: Label(
            f"module:{module}", "module", False, (("module", module), ("Inputs", said)), "layerwise"
        ),
        words,
        st.lists(st.lists(st.integers(0, 9))),
    ),
    "shaped": st.builds(
        lambda module, said: Label(
            f"module:{module}", "module", False, (("module", module), ("in", repr(said))), "shaped"
        ),
        st.sampled_from(["transformer.blocks.0", "vae"]),
        st.lists(st.tuples(st.integers(0, 9))),
    ),
    "counted": st.builds(
        lambda one, other: Label(
            "execute",
            "batch",
            False,
            (("prefill_requests", one), ("decode_requests", other)),
            "counted",
        ),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    "xla": st.builds(
        lambda name, op, said: Label(
            f"{name}:{op}", "operator", False, (("hlo_op", op), *said), "xla"
        ),
        words.map("TSL:{}".format),
        paths.filter(lambda text: not text.isdecimal()),
        pairs,
    ),
    "trace-me": st.builds(
        lambda name, n, said: Label(name, "step", False, (*said, ("step_num", n)), "trace-me"),
        words,
        ints,
        pairs,
    ),
    "step": (ints | words.filter(lambda text: not text.isdecimal())).map(
        lambda n: Label("ProfilerStep", "step", False, (("step", n),), "step")
    ),
    "optimizer": whole("optimizer", "optimizer", "Optimizer.step#{}.step", "optimizer", words),
    "dataloader": whole("dataloader", "dataloader", "enumerate(DataLoader)#{}.__next__", "", words),
    "module": whole("module", "module", "nn.Module: {}", "module", words),
    "layer": whole("layer", "module", "module:{}", "module", paths)
    | whole("layer", "module", "layer:{}", "module", paths),
    "backward": paths.map(
        lambda at: Label(f"backward:{at}", "module", True, (("module", at),), "backward")
    ),
    "autograd": words.map(
        lambda f: Label(
            f"autograd::engine::evaluate_function: {f}",
            "operator",
            True,
            (("function", f),),
            "autograd",
        )
    ),
    "fsdp": st.builds(
        lambda name, at: Label(
            name + (f" ({at})" if at else ""), "range", False, at and (("module", at),), "fsdp"
        ),
        st.sampled_from(
            ["FSDP::pre_forward", "FSDP::root_pre_forward", "FullyShardedDataParallel.forward"]
        ),
        paths | st.just(()),
    ),
    "communication": whole("communication", "communication", "nccl:{}", "", words)
    | whole("communication", "communication", "c10d::{}_", "", idents),
    "operator": whole("operator", "operator", "aten::{}", "", idents)
    | words.map(lambda w: Label(f"{w}Backward0", "operator", True, (), "operator")),
    "plain": words.map(lambda w: Label(f"{w} of {w}", "range", False, (), "plain")),
}


def test_every_dialect_has_labels():
    assert list(labels) == [dialect.name for dialect in DIALECTS]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", labels)
def test_what_is_written_can_be_read_again(dialect):
    @given(labels[dialect], per_call)
    def holds(label, call):
        if "backward" in label.op.lower():
            label = label._replace(backward=parse(written(label)).backward)  # has a test of its own
        assert parse(written(label)) == label
        observed = dialect == "plain" and any(key in ("seq", "op_id") for key, _ in call)
        kind = "operator" if observed else label.kind
        called = label._replace(kind=kind, arguments=label.arguments + call)
        assert parse(written(called)) == called

    holds()


def test_only_known_dialects_write():
    with pytest.raises(KeyError):
        written(Label("x", "range", False, (), "no such"))


# -- the documentation


def test_the_documentation_has_a_row_per_dialect():
    assert len(ROWS) == PAGE.count("\n| `")
    assert {row[-1] for row in ROWS} == set(BY_NAME)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_documentation_is_true(row):
    text, op, kind, backward, arguments, dialect = row
    label = parse(text)
    said = re.findall(r"`(.+?)`(?= |$)", arguments)
    assert (label.op, label.kind, label.backward, label.dialect) == (
        op,
        kind,
        bool(backward),
        dialect,
    )
    assert said == [f"{key}={value!r}" for key, value in label.arguments]
    assert written(label) == text


# -- single readings that the table does not show


@pytest.mark.parametrize(
    ("text", "backward"),
    [
        ("Backward", True),
        ("Backward pass", True),
        ("loss.backward()", True),
        ("aten::_softmax_backward_data", True),
        ("FSDP::pre_backward (layers.0)", True),
        ("RegisterPostBackwardFunctionBackward", True),
        ("torch::autograd::CopySlices", True),
        ("RegisterPostBackwardFunction", False),
        ("backwards-compatible", False),
        ("feedbackward", False),
        ("module:backward_lstm", False),
        ("nn.Module: Backward_0", False),
        ("{'traceMarker': ['backward.py:3']}", False),
        ("{'mod': 'Tensor', 'op': 'backward', 'args': []}", True),
    ],
)
def test_the_direction_by_name(text, backward):
    assert parse(text).backward is backward


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torchvision::nms", "operator"),
        ("prims::add", "operator"),
        ("aten::add.Tensor", "operator"),
        ("aten::Bool", "operator"),
        ("flash_attn::_flash_attn_forward", "operator"),
        ("_c10d_functional::all_reduce", "communication"),
        ("ncclAllReduce", "communication"),
        ("nvshmem_barrier", "communication"),
        ("FSDP::all_gather_copy_out (layers.0)", "range"),
        ("cub::DeviceReduce::Sum", "range"),
        ("executor_utils::bindInputs", "range"),
        ("conv1 + relu1", "range"),
        ("nccl", "range"),
        ("module: of mine", "range"),
        ("Convolution", "range"),
        ("Convolution, sizes = [[2, 3]]", "range"),
        ("forward pass, op_id = 3", "operator"),
        ("FSDP::root_pre_forward, op_id = 3", "range"),
    ],
)
def test_the_kind(text, kind):
    assert parse(text).kind == kind


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("a, seq = 007", (("seq", "007"),)),
        ("a, sizes = [[2,3]]", (("sizes", "[[2,3]]"),)),
        ("a, sizes = [[2, 3]], seq = [", ()),
        ("a, seq = 1 of x, y = 2, op_id = 3", (("seq", "1 of x, y = 2"), ("op_id", 3))),
        ("ProfilerStep#1.5", (("step", "1.5"),)),
        ("Optimizer.step#SGD", (("optimizer", "SGD"),)),
        ("Optimizer.step#a.b.step", (("optimizer", "a.b"),)),
        (
            "f:#a=g(1, [2,3]),b='x,y',c=\"x,\",d=#",
            (("a", "g(1, [2,3])"), ("b", "'x,y'"), ("c", '"x,"'), ("d", "")),
        ),
        ("f#a=),b=1#", (("a", ")"), ("b", 1))),
        ("f#a=(,b=1#", (("a", "(,b=1"),)),
        ("Thunk:#hlo_op=,hlo_module=7#", (("hlo_op", ""), ("hlo_module", 7))),
        ("best of #1 = x#", ()),
        ("{'op': 'mm', 'mod': 'torch'}", ()),
        ("{'mod': 'torch',  'op': 'mm'}", ()),
        ("{'mod': 'torch', 'op': open('x')}", ()),
        ("{'mod': 'torch', 'op': 'mm', 1: 2}", ()),
        ("{'traceMarker': []}", ()),
    ],
)
def test_arguments(text, arguments):
    label = parse(text)
    assert label.arguments == arguments
    assert written(label) == text


def test_nothing_is_evaluated(tmp_path):
    canary = tmp_path / "canary"
    text = f"{{'mod': 'x', 'op': open({str(canary)!r}, 'w')}}"
    assert parse(text) == Label(text, "range", False, (), "plain")
    assert not canary.exists()


def test_an_unknown_escape_warns_nobody():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert parse("{'mod': 'a', 'op': '\\d'}").dialect == "plain"
    assert not caught


# -- hostile texts

SIZE = 60_000
HOSTILE = {
    "long": "x" * SIZE,
    "spaces": " " * SIZE,
    "commas": "," * SIZE,
    "keys": "a" + ", seq = 1" * (SIZE // 9),
    "keys of one": "a" + ", seq = 1" * (SIZE // 9) + "x",
    "digits": "a, seq = " + "9" * SIZE,
    "opened": "a, sizes = " + "[" * SIZE + "]",
    "nested": "a, sizes = " + "[" * SIZE + "]" * SIZE,
    "closed": "a, sizes = " + "[" + "]" * SIZE,
    "shapes": "aten::cat, sizes = [" + "[2, 3], " * (SIZE // 8) + "[]]",
    "step": "ProfilerStep#" + "9" * SIZE,
    "backwards": "Backward" * (SIZE // 8) + "!",
    "numbered": "Backward0" * (SIZE // 9) + "!",
    "words": "backwardx" * (SIZE // 9),
    "optimizer": "Optimizer.step#" + ".step" * (SIZE // 5) + "!",
    "optimizers": "Optimizer." + "a" * SIZE + "#" + ("." + "a" * 100) * (SIZE // 101),
    "fsdp": "FSDP::x (" + "(" * SIZE,
    "fsdp again": "FSDP::x (a)" + " (a)" * (SIZE // 4) + "!",
    "namespaces": "a::" * (SIZE // 3),
    "operator": "a::" + "a" * SIZE + "!",
    "layer": "layer:" + "a" * SIZE + " ",
    "pairs": "f:#" + "a=1," * (SIZE // 4) + "b=2#",
    "brackets": "f:#a=" + "(" * SIZE + ")" * SIZE + "#",
    "quotes": "f:#a=" + "'\"" * (SIZE // 2) + "#",
    "hashes": "#" * SIZE,
    "dictionary": repr(
        {"mod": "torch", "op": "cat", "args": [{"type": "tensor", "shape": (2, 3)}] * 1200}
    ),
    "dictionary too long": repr({"mod": "torch", "op": "x" * MAX_DICTIONARY}),
} | {
    f"dictionary of {what}": f"{{'mod': 'a', 'op': {value}}}"
    for what, value in {
        "brackets": "[" * SIZE + "]" * SIZE,
        "brackets, some": "[" * 150 + "]" * 150,
        "signs": "-" * SIZE + "1",
        "sums": "1+" * (SIZE // 2) + "1",
        "sums, some": "1+" * 900 + "1",
        "calls": "x" + "()" * (SIZE // 2),
        "parts": "x" + ".a" * (SIZE // 2),
        "lambdas": "lambda:" * (SIZE // 7) + "1",
        "comparisons": "1<" * (SIZE // 2) + "1",
        "digits": "9" * SIZE,
        "hexadecimal digits": "0x" + "f" * SIZE,
        "nothing": "\x00" * SIZE,
        "sets": "{[]}",
    }.items()
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.racy("costs are measured by the clock")
def test_a_hostile_text_is_read_at_once(text):
    start = time.process_time()
    assert written(parse(text)) == text
    # Milliseconds, in truth: the limit is for a change of kind.
    assert time.process_time() - start < 1


# -- real texts


@pytest.mark.slow
@pytest.mark.parametrize("path", [of for of in corpus_reports() if of.id not in EMPTY])
def test_real_texts(path):
    report = importers.load(path)
    texts = report.texts.factorize()[1]
    names = name_lengths(Texts.of(texts)).tolist()
    for text, length in zip(texts, names, strict=True):
        label, name = parse(text), text.encode()[:length].decode()
        assert written(label) == text
        assert label.op == parse(name).op
        if label.dialect not in REGROUPED:
            assert label.op == re.sub(r"^ProfilerStep#.+", "ProfilerStep", name)
        if "seq" in dict(label.arguments):
            assert label.kind in ("operator", "communication")


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/pytorch-backward.sqlite"))
def test_real_values_are_read_as_values(path):
    texts = importers.load(path).texts.factorize()[1]
    said = [pair for text in texts for pair in parse(text).arguments]
    assert {key for key, _ in said} == {*PER_CALL, "function"}
    assert all(isinstance(value, int | tuple) for key, value in said if key in PER_CALL)


WORDS = (
    *(
        "{",
        "#",
        ":",
        "::",
        "Backward",
        "_backward_",
        "nccl",
        "MPI_",
        "nvshmem",
        "FSDP",
        "ProfilerStep",
    ),
    *(
        "FullyShardedDataParallel",
        ".",
        "record_param_comms",
        "aten",
        "x",
        "0",
        " ",
        "/",
        "(",
        "'",
        "c10d",
    ),
)


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_what_is_taken_for_plain_without_a_look_is_read_by_no_dialect(words):
    name = ""
    for word in words:  # those that leave it plain
        name += "" if NOT_PLAIN.search(name + word) else word
    assert not any(dialect.read(name) for dialect in DIALECTS[:-1])
