"""What MXNet's `set_config` takes, checked where it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

ENDING = ".jsonl"  # of the recording that grows while the program runs


class MXNetError(RuntimeError):
    """What MXNet's library raises."""


@dataclass(frozen=True)
class Config:
    """The options of `set_config`; the kinds of work are switches of what a session annotates by itself."""

    filename: str = "profile.json"
    gpu_memory_profile_filename_prefix: str = "gpu_memory_profile"
    profile_all: bool = False
    profile_symbolic: bool = True
    profile_imperative: bool = True
    profile_memory: bool = True
    profile_api: bool = True
    continuous_dump: bool = False
    dump_period: float = 1.0
    aggregate_stats: bool = False

    def changed(self, given: Mapping[str, Any]) -> Config:
        """Return it with what was given; raises MXNetError for what there is not, or no period over 0."""
        known = [one.name for one in fields(self)]
        unknown = ", ".join(repr(name) for name in given if name not in known)
        if unknown:
            raise MXNetError(f"set_config: no option {unknown}; there are {', '.join(known)}")
        made = replace(self, **given)
        if not made.dump_period > 0:
            raise MXNetError(f"set_config: dump_period is more than 0, not {made.dump_period!r}")
        return made

    @property
    def memory(self) -> bool:
        """Whether memory is looked at."""
        return self.profile_all or self.profile_memory

    @property
    def session(self) -> dict[str, Any]:
        """The options of a session."""
        ops = self.profile_all or self.profile_symbolic or self.profile_imperative
        options: dict[str, Any] = {
            "level": int(ops),
            "profile_memory": self.memory,
        }
        if self.continuous_dump:
            file = Path(self.filename)
            options |= {"path": file.with_suffix(ENDING), "dump_period": float(self.dump_period)}
        return options
