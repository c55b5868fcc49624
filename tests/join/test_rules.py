"""Rules of the user's that regroup ops: what is wrong with one is said with its place."""

import made_reports
import pytest

import bridge
from bridge.importers import ReportError
from bridge.join.options import ops_of, rules

GOOD = "[[rule]]\nmatch = '^layer(\\d+)$'\nop = 'layer \\1'\n"
NO_OP = "[[rule]]\nmatch = 'a'\n"
OPEN = "[[rule]]\nmatch = '('\nop = 'x'\n"
NO_GROUP = "[[rule]]\nmatch = 'a'\nop = '\\1'\n"


@pytest.mark.parametrize("wrong", [NO_OP, OPEN, NO_GROUP])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_rules_are_counted_from_1_to_the_one_that_is_wrong(wrong, before):
    with pytest.raises(ValueError, match=f"^rule {before + 1}: "):
        rules(GOOD * before + wrong + GOOD)


def test_a_rule_gives_the_op_of_the_names_that_it_matches():
    assert ops_of(["layer7", "layer", "layer12"], rules(GOOD)) == ["layer 7", "layer", "layer 12"]


def test_python_takes_files_of_rules_as_the_command_does(tmp_path):
    report = made_reports.small(tmp_path / "r.sqlite")
    before = bridge.load(report).by("op")["op"].tolist()
    ops = tmp_path / "ops.toml"
    ops.write_text("[[rule]]\nmatch = '^(.*)$'\nop = 'my \\1'\n", encoding="utf-8")
    assert bridge.load(report, op_rules=ops).by("op")["op"].tolist() == [
        f"my {op}" for op in before
    ]
    with pytest.raises(ReportError, match=r"no\.toml: No such file or directory$"):
        bridge.load(report, kernel_rules=str(tmp_path / "no.toml"))
    ops.write_text(NO_OP, encoding="utf-8")
    with pytest.raises(ReportError, match=r"ops\.toml: rule 1: "):
        bridge.load(report, op_rules=ops)
