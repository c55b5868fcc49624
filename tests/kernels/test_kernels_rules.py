"""The rules of kernels against every name of the corpus and names of newer GPUs, as tables read by eye; and their laws."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from real_parts import NIGHT

from bridge.knowledge import kernels
from bridge.knowledge.kernels.classes import built_in_rules, matching_rules
from bridge.knowledge.kernels.rules import Pattern, rules

HERE = Path(__file__).parent
LONG = 160  # so much of a name stands in corpus.tsv
USE = {"yes": kernels.YES, "no": kernels.NO, "unknown": kernels.UNKNOWN}


def table(name):
    """Return {name of a kernel: what it is} of a file of kind, library, use of Tensor Cores, name."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    assert max(Counter(row[3] for row in rows).values()) == 1
    return {row[3]: kernels.Kernel(row[0], row[1], USE[row[2]]) for row in rows}


NEWER, CORPUS = table("newer.tsv"), table("corpus.tsv")


@pytest.mark.slow
@pytest.mark.parametrize("name", NEWER)
def test_a_name_of_newer_gpus_and_other_libraries(name):
    assert kernels.kinds_of([name]) == [NEWER[name]]


@pytest.mark.slow
def test_every_name_of_the_corpus_is_what_the_table_says(real_kernels):
    recorded = sorted({full for _, full in real_kernels})
    assert len(recorded) > 600
    told = kernels.kinds_of(recorded)
    wrong = {
        name: (kernel, CORPUS.get(name[:LONG]))
        for name, kernel in zip(recorded, told, strict=True)
        if CORPUS.get(name[:LONG]) != kernel
    }
    assert not wrong
    assert {name[:LONG] for name in recorded} == set(CORPUS)  # no row of nothing


def test_what_pytorch_ran_is_known(real_kernels):
    """Names that no rule knows are of programs with kernels of their own."""
    files = set()
    told = kernels.kinds_of([full for _, full in real_kernels])
    for found_in, kernel in zip(real_kernels.values(), told, strict=True):
        if kernel.kind == "other":
            files |= found_in
    assert sorted(files) == [
        "cloverleaf-no-nvtx.sqlite",
        "gaussian-no-nvtx.sqlite",
        "gtls-no-nvtx.sqlite",
        "jacobi-4gpu-host.sqlite",
        "jacobi-4gpu-peer.sqlite",
        "jacobi-coherent-memory.sqlite",
        "jacobi-mpi-two-loops.sqlite",
        "memcpy-heavy.sqlite",
        "mordred-host-bound.sqlite",
        "mordred-no-meta.sqlite",
        "saxpy-mpi.sqlite",
        "simplex-streams.sqlite",
        "vector-add.sqlite",
    ]


def test_no_rule_stands_behind_others():
    """Each rule decides about some name of the tables, and each pattern of Tensor Cores is found in one."""
    names, known = [*NEWER, *CORPUS], built_in_rules()
    decided = {id(next(matching_rules(name, known), ("", None))[1]) for name in names}
    idle = [
        f"{library.name}: {rule.match.text}"
        for library in known.libraries
        for rule in library.rules
        if id(rule) not in decided
    ]
    assert not idle
    assert all(any(pattern.matches(name) for name in names) for pattern, _ in known.uses)


def test_every_kind_is_some_name_s():
    assert {kernel.kind for kernel in (*NEWER.values(), *CORPUS.values())} == set(kernels.KINDS)


@pytest.mark.parametrize("kind", sorted(set(kernels.KINDS) - {"gemm", "convolution", "attention", "rnn", "fused", "other"}))  # fmt: skip
def test_what_multiplies_no_matrices_uses_no_tensor_cores(kind):
    uses = {k.tensor_cores for k in (*NEWER.values(), *CORPUS.values()) if k.kind == kind}
    assert uses == {kernels.NO}


# -- the users' own


OWN = """
[[library]]
name = "mine"
has = ["Fan", "^nvjet_"]
rules = [
  { match = '^Fan1\\b', kind = "solver" },
  { match = 'nvjet_', also = '_NTN$', kind = "attention" },
]

[[tensor_cores]]
match = 'wonder'
used = true
"""


def test_rules_of_the_user_come_first():
    own = rules(OWN)
    names = ["Fan1(float*)", "Fan2(float*)", "a_nvjet_x_NTN", "nvjet_hsh_1_NTN", "nvjet_hsh_1_TNT"]
    assert kernels.kinds_of([*names, "wonder_gemm"], own) == [
        ("solver", "mine", kernels.NO),
        ("other", "", kernels.UNKNOWN),
        ("other", "", kernels.UNKNOWN),
        ("attention", "mine", kernels.UNKNOWN),
        ("gemm", "nvjet", kernels.YES),
        ("gemm", "", kernels.YES),
    ]
    assert kernels.kinds_of(["wonder_gemm"]) == [("gemm", "", kernels.UNKNOWN)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[library]]"),
        ("[[library", "Expected"),
        ("[[rule]]\nmatch = 'a'", "no key 'rule': one of library"),
        ("library = 3", "'library' is a list of tables"),
        ("[[library]]\nrules = []", "library 1: needs 'name'"),
        ("[[library]]\nname = 'a'\nhas = 'b'\nrules = []", "'has' is a list of texts"),
        ("[[library]]\nname = 'a'\nhave = []", "library 'a': no key 'have': one of has, name, rules"),
        ("[[library]]\nname = 'a'\nrules = [{kind = 'gemm'}]", "library 'a', rule 1: needs 'match'"),
        ("[[library]]\nname = 'a'\nrules = [{match = 'x'}]", "library 'a', rule 1: needs 'kind'"),
        ("[[library]]\nname = 'a'\nrules = [{match = 'x', kind = 'gem'}]", "no kind 'gem'; did you mean gemm"),
        ("[[library]]\nname = 'a'\nrules = [{match = '(', kind = 'gemm'}]", "is no regular expression"),
        ("[[library]]\nname = 'a'\nrules = [{match = 'x', also = '[', kind = 'gemm'}]", "'[' is no regular"),
        ("[[library]]\nname = 'a'\nrules = [{match = 3, kind = 'gemm'}]", "needs 'match', a text"),
        ("[[library]]\nname = 'a'\nrules = [{match = 'x', kind = 'gemm', tensor_cores = 1}]", "true or false"),
        ("[[library]]\nname = 'a'\nrules = [{match = 'x', kind = 'gemm', use = 1}]", "no key 'use'"),
        ("[[tensor_cores]]\nmatch = 'x'", "tensor_cores 1: 'used' is true or false"),
    ],
)  # fmt: skip
def test_a_bad_file_is_said_in_a_line(text, said):
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        rules(text)
    assert "\n" not in str(error.value)


# -- laws


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_is_something(name):
    (kernel,) = kernels.kinds_of([name])
    assert kernel.kind in kernels.KINDS
    assert kernel.tensor_cores in (kernels.YES, kernels.NO, kernels.UNKNOWN)


@given(st.sampled_from([*NEWER, *CORPUS]), st.integers(0, 60), st.integers(0, 60))
def test_a_part_of_a_name_is_something(name, first, last):
    assert kernels.kinds_of([name[first : len(name) - last]])[0].kind in kernels.KINDS


PIECES = ("a", "b", "_", "\\b", "[ab|]", "[^]|a]", "(?:a|b)", "(a|b)", "\\|", "\\(", "x|", "|", "a*", "ab", "[\\]|b]", "\\[", ".")  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text("ab_|](x[", max_size=8))
def test_a_pattern_finds_what_its_expression_finds(text, name):
    try:
        expression = re.compile(text)
    except re.error:
        assume(False)
    assert Pattern(text).matches(name) == (expression.search(name) is not None)


@pytest.mark.parametrize("text", ["(?i)a|B", r"(a)|\1b", r"(?P<n>a)|b(?P=n)?", "(?x) a | b"])
def test_a_pattern_that_hangs_together_is_not_taken_apart(text):
    for name in ("A", "b", "a b", "xb", "", "c"):
        assert Pattern(text).matches(name) == (re.search(text, name) is not None)


def seconds(function):
    """Return the time that this process worked for a call, whatever else the machine does."""
    began = time.process_time()
    function()
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_long_names_take_no_time():
    """Of 100 kB, whatever is repeated in them: all that rules look for."""
    known = built_in_rules()
    words = {word for library in known.libraries for word in (*library.has, *library.begins)}
    words |= {
        re.sub(r"\W", "", rule.match.text)[:40] for one in known.libraries for rule in one.rules
    }
    tried = sorted({*words, "a::", "_", "a", "void ", "triton_poi_fused_add_"} - {""})
    for word in tried[:: 1 if NIGHT else 8]:
        name = (word * (100_000 // len(word) + 1))[:100_000]
        fastest = min(seconds(lambda n=f"{name}{again}"[-100_000:]: kernels.kinds_of([n])) for again in range(2))  # fmt: skip
        assert fastest < 0.05, word


@pytest.mark.slow
def test_many_names_take_little_time():
    names = [f"{name[:120]}#{place}" for place in range(40) for name in (*NEWER, *CORPUS)]
    assert seconds(lambda: kernels.kinds_of(names)) / len(names) < 100e-6


@pytest.mark.slow
def test_nothing_heavy_is_loaded():
    import subprocess
    import sys

    program = "import sys, bridge.knowledge.kernels; bridge.knowledge.kernels.kinds_of(['a']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    assert {"pandas", "numpy", "click"}.isdisjoint(loaded)
