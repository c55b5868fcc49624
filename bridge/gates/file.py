"""Budgets are kept in files: YAML (of which JSON is a part), or TOML."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bridge.gates.budget import Budget

MERGE = "tag:yaml.org,2002:merge"
DEEPEST = 20  # a budget has three levels; PyYAML takes seconds over thousands, and refuses none


def read(path: Path) -> Budget:
    """Read a budget; ValueError, in a line for the user, for what is none, OSError for what is not there."""
    text = path.read_text(encoding="utf-8")
    try:
        said = tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, _Loader)  # noqa: S506 (a safe one)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("nested too deeply for a budget") from error
    except (AttributeError, LookupError) as error:  # of PyYAML, where a tag and its value disagree
        raise ValueError("a value is not what its tag says") from error
    return Budget.parsed(said)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values alone; a name that stands twice is a mistake, and not the last one's."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level > DEEPEST:
            raise yaml.YAMLError("nested too deeply for a budget")
        super().fetch_flow_collection_start(token)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        if any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
            raise yaml.YAMLError("a name is needed before each colon")
        if any(key.tag == MERGE for key, _ in node.value):
            raise yaml.YAMLError("limits cannot be merged with <<: write them out")
        names = Counter(key.value for key, _ in node.value)
        twice = next((name for name, times in names.items() if times > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"{twice!r} stands twice")
        found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return found
