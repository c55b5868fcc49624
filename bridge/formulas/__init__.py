"""Say how many floating-point operations and bytes a call of an op needs, from its arguments alone."""

from bridge.formulas.call import Call
from bridge.formulas.counted import flops
from bridge.formulas.formula import Formula
from bridge.formulas.registry import bytes_moved, formula, register

__all__ = ["Call", "Formula", "bytes_moved", "flops", "formula", "register"]
