"""Regular expressions of users: Python's, and none of them hangs, wherever it is given."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time

import made_reports
import pytest
from command import assert_misused, bridge, done
from hypothesis import given
from hypothesis import strategies as st

from bridge.compat.megengine.profile_analyze import HOST, OperatorRequest, operators
from bridge.join.options import rules
from bridge.knowledge.expressions import LIMIT_S, MAX_LENGTH, Expression, SlowExpressionError
from bridge.knowledge.kernels.rules import rules as kernel_rules
from bridge.report import load

SLOW = ["(a|aa)+$", "(.*a){20}$"]
NAME = "a" * 100 + "!"  # on which `re` takes longer than anyone waits

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a report with an op and a kernel of that name."""
    path = made_reports.small(tmp_path_factory.mktemp("input") / "slow.sqlite")
    for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
        made_reports.changed(
            path, f"UPDATE {table} SET {column} = '{NAME}' WHERE {column} = 'gemm'"
        )
    kernel = f"UPDATE StringIds SET value = '{NAME}' WHERE value LIKE '%gemm_kernel%'"
    return made_reports.changed(path, kernel)


# -- The same matches as `re`

EXPRESSIONS = [
    "gemm|conv", "^aten::_?(addmm|mm)$", r"\d+x\d+", "(?i)GEMM", r"nccl(?!Send)", r"\bmm\b", "a{2,}",
    "[^a-z:]", r"(?P<op>\w+)::", r"(\w)\1", "x*", "", r"\.", "(?:ab|a)(?:c|bcd)$", r"[\w.-]+_v\d",
]  # fmt: skip
names = st.text(st.sampled_from("aAbcgemNCL_:0129x. -<>é\n"), max_size=30)


@pytest.mark.parametrize("text", EXPRESSIONS)
@given(names=st.lists(names, max_size=5))
def test_matches_are_those_of_python(text, names):
    ours, python = Expression(text, "here"), re.compile(text)
    for name in [*names, "aten::mm", "ncclSend", "sm80_gemm_128x64_v2", ""]:
        for way in ("search", "match"):
            found, expected = (getattr(pattern, way)(name) for pattern in (ours, python))
            assert (found is None) == (expected is None)
            if expected is not None:
                assert (found.span(), found.groups()) == (expected.span(), expected.groups())


@pytest.mark.parametrize(
    "text", ["(", "[a", "a{2,1}", "*", r"\p{L}", "(?P<a>x)(?P<a>y)", "(?V1)a", "(?R)"]
)
def test_what_python_refuses_is_refused(text):
    with pytest.raises(re.error):
        re.compile(text)
    with pytest.raises(ValueError, match=r"^here: .* is no regular expression: ") as refused:
        Expression(text, "here")
    assert "\n" not in str(refused.value)


@pytest.mark.racy("costs are measured by the clock")
def test_a_long_expression_is_refused_at_once():
    began = process_time()
    with pytest.raises(ValueError, match="over 10000 characters"):
        Expression("(a|b)" * MAX_LENGTH, "here")
    assert process_time() - began < 1


# -- The limit


@pytest.mark.slow
@pytest.mark.parametrize("text", SLOW)
@pytest.mark.racy("costs are measured by the clock")
def test_a_search_ends_at_the_limit(text):
    expression = Expression(text, "--filter op~")
    began = process_time()
    with pytest.raises(SlowExpressionError, match=r"--filter op~: .* takes over 0.5 s") as slow:
        expression.search(NAME * 3)
    assert process_time() - began < 2 * LIMIT_S + 1
    assert len(str(slow.value)) < 200


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_the_expression_that_hung_for_over_a_minute_ends():
    began = process_time()
    assert Expression("((a+)+)+$", "here").search(NAME) is None
    assert process_time() - began < 1


@pytest.mark.slow
def test_many_names_are_not_too_many():
    """A hundred thousand names take more than the limit in all, and none of them is slow."""
    expression = Expression(r"(\w+)::(\w+)_(kernel|gemm)\d+$", "here")
    texts = [f"at::native::vectorized_elementwise_kernel{n}" for n in range(200_000)]
    assert sum(expression.search(name) is not None for name in texts) == len(texts)


def test_an_expression_goes_to_a_worker():
    expression = pickle.loads(pickle.dumps(Expression("a+", "here")))
    assert expression == Expression("a+", "here")
    assert expression.search("baa").span() == (1, 3)


# -- Everywhere an expression is given

RULE = "[[rule]]\nmatch = '{}'\nop = 'x'\n"
KERNEL_RULE = "[[library]]\nname = 'a'\nrules = [{{match = '{}', kind = 'gemm'}}]\n"


def given_slow(folder: Path, where: str) -> list[str | Path]:
    """Return the words of a command with a slow expression at some place."""
    (folder / "rules.toml").write_text(RULE.format(SLOW[0]), encoding="utf-8")
    (folder / "kernels.toml").write_text(KERNEL_RULE.format(SLOW[0]), encoding="utf-8")
    return {
        "--filter": ["--filter", f"op~{SLOW[0]}"],
        "--filter of kernels": ["--by", "op-kernel", "--filter", f"kernel~{SLOW[0]}"],
        "--op-rules": ["--op-rules", "rules.toml"],
        "--kernel-rules": ["--kernel-rules", "kernels.toml", "--by", "kind"],
    }[where]


WHERE = {
    "--filter": "--filter op~: ",
    "--filter of kernels": "--filter kernel~: ",
    "--op-rules": "rule 1: ",
    "--kernel-rules": "library 'a', rule 1: ",
}


@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.racy("costs are measured by the clock")
def test_the_program_names_the_slow_expression_and_where_it_stands(where, long_names, folder):
    began = perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "bridge", "report", long_names, *given_slow(folder, where)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert perf_counter() - began < 30  # a few seconds, on a machine that does other things
    assert (ran.returncode, ran.stdout) == (2, "")
    last = ran.stderr.splitlines()[-1]
    assert f"{WHERE[where]}'(a|aa)+$' takes over 0.5 s" in last


@pytest.mark.slow
def test_import_and_diff_end_too(long_names, folder):
    words = given_slow(folder, "--op-rules")
    assert_misused(bridge("import", long_names, *words), "takes over 0.5 s")
    assert_misused(
        bridge("diff", long_names, long_names, "--filter", f"op~{SLOW[0]}"), "takes over 0.5 s"
    )


@pytest.mark.slow
def test_the_rank_of_a_path_ends_too(long_names, folder):
    path = folder / f"{NAME}.sqlite"
    path.write_bytes(long_names.read_bytes())
    result = bridge("report", path, "--by", "rank", "--rank-from", "(a|aa)+$()")
    assert result.exit_code == 2
    assert "--rank-from: '(a|aa)+$()' takes over 0.5 s" in result.stderr


@pytest.mark.slow
def test_the_operators_of_megengine_end_too(long_names):
    with pytest.raises(SlowExpressionError, match="the name: "):
        operators(load(long_names), HOST, OperatorRequest(name="step/aten::mm/(a|aa)+$"))


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_a_wildcard_never_takes_long(long_names):
    began = process_time()
    done("report", long_names, "--filter", f"op={'*a' * 40}")
    assert process_time() - began < 10


# -- Rules


def test_rules_substitute_as_python_does():
    [rule] = rules(
        "[[rule]]\nmatch = '^(\\w+)::(?P<op>\\w+)(x)?$'\nop = '\\2 of \\g<op>, \\1\\3'\n"
    )
    name = "aten::mm"
    python = re.search(r"^(\w+)::(?P<op>\w+)(x)?$", name)
    assert rule(name) == python.expand(r"\2 of \g<op>, \1\3") == "mm of mm, aten"


def test_the_rules_of_a_user_are_limited_and_those_of_this_package_are_not():
    text = KERNEL_RULE.format("[ab]+")
    for limited, kind in ((True, Expression), (False, re.Pattern)):
        [library] = kernel_rules(text, limited=limited).libraries
        assert [type(part) for part in library.rules[0].match.rest] == [kind]


# -- When the engine is loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["import bridge", "from bridge.cli import main; main(['--version'], standalone_mode=False)"],
)
def test_the_engine_is_imported_at_first_use(program):
    code = f"{program}\nimport sys\nassert 'regex' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
