"""The versions of installed distributions, looked up only when somebody asks."""


def version_of(distribution: str) -> str:
    """Return the version installed, or nothing."""
    from importlib import metadata  # noqa: PLC0415 (30 ms, and most programs never ask)

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
