"""RAF's op profiler by its native names."""

from bridge.compat.raf.op_profiler import GetCacheSize, Profile, ProfileGroup, ResetCache

__all__ = ["GetCacheSize", "Profile", "ProfileGroup", "ResetCache"]
