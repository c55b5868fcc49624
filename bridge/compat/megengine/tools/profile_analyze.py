"""``python -m bridge.compat.megengine.tools.profile_analyze``: list the operators that take longest."""

from bridge.compat.megengine.profile_analyze import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
