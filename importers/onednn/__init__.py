"""What oneDNN logs of itself (``ONEDNN_VERBOSE=1``), as a frame; see docs/onednn.md."""

from importers.onednn.log import Log, load

__all__ = ["Log", "load"]
