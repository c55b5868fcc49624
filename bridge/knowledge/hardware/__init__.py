"""What GPUs can do at most, from a file of data sheets and from what a report knows of its devices."""

from bridge.knowledge.hardware.catalogue import DTYPES, Catalogue, Gpu, Peaks, catalogue, read

__all__ = ["DTYPES", "Catalogue", "Gpu", "Peaks", "catalogue", "read"]
