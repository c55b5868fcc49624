"""MegEngine's command-line tools: `python -m bridge.compat.megengine.tools.profiler` and others."""
