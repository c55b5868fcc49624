"""Rules of the user's that regroup ops: what is wrong with one is said with its place."""

import pytest

from bridge.join.options import ops_of, rules

GOOD = "[[rule]]\nmatch = '^layer(\\d+)$'\nop = 'layer \\1'\n"
NO_OP = "[[rule]]\nmatch = 'a'\n"
OPEN = "[[rule]]\nmatch = '('\nop = 'x'\n"
NO_GROUP = "[[rule]]\nmatch = 'a'\nop = '\\1'\n"


@pytest.mark.parametrize("wrong", [NO_OP, OPEN, NO_GROUP])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_rules_are_counted_from_1_to_the_one_that_is_wrong(wrong, before):
    with pytest.raises(ValueError, match=f"^rule {before + 1}(?: of --op-rules)?: "):
        rules(GOOD * before + wrong + GOOD)


def test_a_rule_gives_the_op_of_the_names_that_it_matches():
    assert ops_of(["layer7", "layer", "layer12"], rules(GOOD)) == ["layer 7", "layer", "layer 12"]
