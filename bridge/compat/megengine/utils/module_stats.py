"""The names of `megengine.utils.module_stats`."""

from bridge.compat.megengine.module_stats import module_stats

__all__ = ["module_stats"]
