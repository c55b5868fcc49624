"""What GPUs can do at most, from a file of data sheets and from what a report knows of its devices."""

from bridge.knowledge.hardware.catalogue import Catalogue, catalogue, read
from bridge.knowledge.hardware.gpu import DTYPES, Gpu, Peaks

__all__ = ["DTYPES", "Catalogue", "Gpu", "Peaks", "catalogue", "read"]
