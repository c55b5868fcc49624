"""The modules of `megengine.utils` that this package stands for: `profiler` and `module_stats`."""
