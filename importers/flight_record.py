"""Read dumps of PyTorch's flight recorder: the last collectives of a rank, with their states and Python lines.

PyTorch writes a dump per rank when a collective times out (``TORCH_NCCL_DUMP_ON_TIMEOUT``,
``TORCH_FR_BUFFER_SIZE``), to ``TORCH_NCCL_DEBUG_INFO_TEMP_FILE`` and the number of the rank. The pickle is
read without running anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.importers import plain_data
from bridge.importers.arrays import MISSING
from bridge.importers.call_chains import Frame
from bridge.importers.errors import NotAReport
from bridge.importers.kineto.events import unpacked

WHAT = "dump of the flight recorder"
MAX_BYTES = 1 << 30
RANK = re.compile(r"(\d+)(?:\.\w+)*$")
DONE, STARTED, SCHEDULED = STATES = ("completed", "started", "scheduled")


@dataclass(frozen=True)
class Operation:
    """A collective, or a send or receive, as one rank called it.

    ``group`` is the name of its process group, ``described`` what people call it; several groups may be described
    alike. ``number`` counts the collectives of the group, ``point_to_point`` says that it counts sends and receives.
    ``called_ns`` is since the Unix epoch; ``frames`` are the innermost first.
    """

    group: str
    described: str
    number: int
    name: str
    sizes: str
    state: str
    called_ns: int
    frames: tuple[Frame, ...]
    point_to_point: bool = False


@dataclass(frozen=True)
class FlightRecord:
    """The dump of one rank: its operations in order, and the ranks of each group as it knows them.

    ``enqueued`` is the number of the last collective that it called in each group, where the dump says so.
    ``dumped_ns`` is when the file was written, since the Unix epoch.
    """

    source: str
    rank: int
    operations: tuple[Operation, ...]
    groups: Mapping[str, tuple[int, ...]]
    enqueued: Mapping[str, int]
    dumped_ns: int


def read(path: Path) -> FlightRecord:
    """Read the dump of a rank, whose number ends the name of the file; raises NotAReport for other files."""
    rank = RANK.search(path.name)
    if rank is None:
        raise NotAReport(
            f"{path.name}: whose dump is it? End its name with the rank, as in nccl_trace_rank_3"
        )
    parsed = plain_data.parse(path.name, unpacked(path, MAX_BYTES), WHAT)
    entries = parsed.get("entries") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise NotAReport(f"{path.name}: no {WHAT} of PyTorch (entries)")
    completed, enqueued = (
        _by_group_id(parsed.get("pg_status"), f"last_{what}_collective")
        for what in ("completed", "enqueued")
    )
    operations = [_operation(entry, completed) for entry in entries if isinstance(entry, dict)]
    return FlightRecord(
        source=path.name,
        rank=int(rank[1]),
        operations=tuple(operations),
        groups=_groups(parsed.get("pg_config"), operations),
        enqueued=_of_groups(entries, enqueued),
        dumped_ns=path.stat().st_mtime_ns,
    )


def _by_group_id(status: object, key: str) -> dict[str, int]:
    """Return a number of each group, by its id. Gloo writes no states but the last collective that completed."""
    known = status.items() if isinstance(status, dict) else ()
    return {str(k): _int(v.get(key)) for k, v in known if isinstance(v, dict)}


def _of_groups(entries: Sequence[object], by_id: Mapping[str, int]) -> dict[str, int]:
    """Return numbers by the names of groups."""
    known = [one for one in entries if isinstance(one, dict) and str(one.get("pg_id")) in by_id]
    return {_group(one.get("process_group"))[0]: by_id[str(one.get("pg_id"))] for one in known}


def _operation(entry: Mapping[str, Any], completed: Mapping[str, int]) -> Operation:
    point_to_point = entry.get("is_p2p") is True
    group, described = _group(entry.get("process_group"))
    number = _int(entry.get("p2p_seq_id" if point_to_point else "collective_seq_id"))
    sizes, kinds = entry.get("input_sizes"), entry.get("input_dtypes")
    is_done = not point_to_point and number <= completed.get(str(entry.get("pg_id")), MISSING)
    state = DONE if is_done else str(entry.get("state"))
    return Operation(
        group=group,
        described=described,
        number=number,
        name=str(entry.get("profiling_name", "")).rpartition(":")[2],
        sizes=f"{sizes} {' '.join(map(str, kinds if isinstance(kinds, list) else []))}".strip(),
        state=state if state in STATES else SCHEDULED,
        called_ns=_int(entry.get("time_created_ns")),
        frames=tuple(_frames(entry.get("frames"))),
        point_to_point=point_to_point,
    )


def _int(value: object) -> int:
    return value if type(value) is int and abs(value) < 1 << 63 else MISSING


def _group(value: object) -> tuple[str, str]:
    """Return the name of a group and its description."""
    if isinstance(value, list | tuple) and len(value) > 1:
        return str(value[0]), str(value[1] or value[0])
    return str(value or ""), str(value or "")


def _frames(value: object) -> Sequence[Frame]:
    frames = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    return [
        Frame(str(f.get("name", "")), str(f.get("filename", "")), _int(f.get("line")), python=True)
        for f in frames
    ]


def _groups(config: object, operations: Sequence[Operation]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group; the only group may lack its name."""
    known = (
        [one for one in config.values() if isinstance(one, dict)]
        if isinstance(config, dict)
        else []
    )
    found = {
        str(one.get("name") or ""): tuple(map(int, re.findall(r"\d{1,9}", str(one.get("ranks")))))
        for one in known
    }
    names = dict.fromkeys(one.group for one in operations)
    if len(found) == 1 and len(names) == 1:
        return dict(zip(names, found.values(), strict=True))
    return found
