"""Classes of kernels by their names (kind of work, library, Tensor Cores, fused ops), and readable names.

The rules are data (rules.toml, names.toml); rules of the user precede them. Nothing heavy is imported.
"""

from bridge.knowledge.kernels.classes import Kernel, eligible, kinds_of, source_ops
from bridge.knowledge.kernels.readable import readable_names
from bridge.knowledge.kernels.rules import KINDS, NO, UNKNOWN, YES, Rules, rules

__all__ = (
    "KINDS",
    "NO",
    "UNKNOWN",
    "YES",
    "Kernel",
    "Rules",
    "eligible",
    "kinds_of",
    "readable_names",
    "rules",
    "source_ops",
)
