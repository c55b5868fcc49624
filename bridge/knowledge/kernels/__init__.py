"""What kernels are, told by their names: the kind of work, the library, Tensor Cores, the ops that were fused.

The rules are data (rules.toml), and users may put their own before them. Light: nothing heavy is imported.
"""

from bridge.knowledge.kernels.classes import Kernel, eligible, kinds_of, source_ops
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
    "rules",
    "source_ops",
)
