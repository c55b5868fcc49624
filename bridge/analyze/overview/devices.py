"""Moved."""

from bridge.analyze.devices import Devices, KEY  # noqa: F401, I001
