"""Reports larger than memory, read in windows of host time."""
