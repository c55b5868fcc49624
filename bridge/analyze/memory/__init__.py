"""What of the memory each op allocated and released, what was held when, and what was never released."""

from bridge.analyze.memory.allocations import by_allocation
from bridge.analyze.memory.held import Held
from bridge.analyze.memory.of_categories import by_category
from bridge.analyze.memory.of_groups import alive_at_peak, summary
from bridge.analyze.memory.of_ops import by_op
from bridge.analyze.memory.of_scopes import by_scope
from bridge.analyze.memory.of_steps import by_step
from bridge.analyze.memory.trace import by_event

__all__ = [
    "Held", "alive_at_peak", "by_allocation", "by_category", "by_event", "by_op", "by_scope", "by_step", "summary",
]  # fmt: skip
