"""Budgets are kept in files: YAML (of which JSON is a part), or TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bridge.gates.budget import Budget


def read(path: Path) -> Budget:
    """Read a budget; ValueError, in a line for the user, for what is none, OSError for what is not there."""
    text = path.read_text(encoding="utf-8")
    try:
        said = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _Loader)  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return Budget.parsed(said)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values alone; a name that stands twice is a mistake, and not the last one's."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"{twice!r} stands twice")
        found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return found
