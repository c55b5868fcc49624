"""Say how many floating-point operations and bytes a call of an op needs, from its arguments alone."""

from bridge.knowledge.formulas.call import Call, Formula
from bridge.knowledge.formulas.counted import flops
from bridge.knowledge.formulas.registry import bytes_moved, formula, register

__all__ = ["Call", "Formula", "bytes_moved", "flops", "formula", "register"]
