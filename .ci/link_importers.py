"""A step of the build: the package holds the folder importers as `bridge.importers`, by a link.

A checkout has the link. An sdist has the folder alone, because archives of Python packages hold no links; it gets
the link here, before a wheel or an editable install is made of it.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LinkImporters(BuildHookInterface[Any]):
    """Makes the link where there is none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Link bridge/importers to the folder beside bridge."""
        link = Path(self.root, "bridge", "importers")
        if link.is_file():  # what Git makes of a link where it makes none
            link.unlink()
        if not link.exists():
            link.symlink_to(Path("..", "importers"), target_is_directory=True)
