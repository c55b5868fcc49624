"""Profiles as XLA's profiler writes them, made with Google's protobuf library from the messages' definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

descriptor_pb2 = pytest.importorskip(
    "google.protobuf.descriptor_pb2", reason="protobuf is not installed"
)
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")
message_factory = pytest.importorskip("google.protobuf.message_factory")

KINDS = {"double": 1, "int64": 3, "uint64": 4, "string": 9, "bytes": 12}
MESSAGE, OPTIONAL, REPEATED = 11, 1, 3
# Fields as (name, number, type), as in xplane.proto and hlo.proto; * stands for repeated, | for one of several values.
SCHEMA: Mapping[str, str] = {
    "XSpace": "planes 1 XPlane* errors 2 string* warnings 3 string* hostnames 4 string*",
    "XPlane": "id 1 int64 name 2 string lines 3 XLine* event_metadata 4 EventEntry* stat_metadata 5 StatEntry* stats 6 XStat*",
    "EventEntry": "key 1 int64 value 2 XEventMetadata",
    "StatEntry": "key 1 int64 value 2 XStatMetadata",
    "XLine": "id 1 int64 name 2 string timestamp_ns 3 int64 events 4 XEvent* duration_ps 9 int64 display_id 10 int64 display_name 11 string",
    "XEvent": "metadata_id 1 int64 offset_ps 2 int64| duration_ps 3 int64 stats 4 XStat* num_occurrences 5 int64|",
    "XStat": "metadata_id 1 int64 double_value 2 double| uint64_value 3 uint64| int64_value 4 int64| str_value 5 string| bytes_value 6 bytes| ref_value 7 uint64|",
    "XEventMetadata": "id 1 int64 name 2 string metadata 3 bytes display_name 4 string stats 5 XStat* child_id 6 int64*",
    "XStatMetadata": "id 1 int64 name 2 string description 3 string",
    "HloProto": "hlo_module 1 HloModuleProto",
    "HloModuleProto": "name 1 string computations 3 HloComputationProto* id 5 int64",
    "HloComputationProto": "name 1 string instructions 2 HloInstructionProto* id 5 int64",
    "HloInstructionProto": "name 1 string opcode 2 string metadata 7 OpMetadata id 35 int64 called_computation_ids 38 int64*",
    "OpMetadata": "op_type 1 string op_name 2 string",
}  # fmt: skip


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="xplane", package="made", syntax="proto3")
    for message, text in SCHEMA.items():
        described, words = file.message_type.add(name=message), text.split()
        for name, number, kind in zip(words[::3], words[1::3], words[2::3], strict=True):
            plain = kind.rstrip("*|")
            field = described.field.add(
                name=name, number=int(number), label=REPEATED if "*" in kind else OPTIONAL
            )
            field.type = KINDS.get(plain, MESSAGE)
            if plain not in KINDS:
                field.type_name = f".made.{plain}"
            if "|" in kind:
                if not described.oneof_decl:
                    described.oneof_decl.add(name="value")
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        m: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"made.{m}")) for m in SCHEMA
    }


CLASSES = _classes()
Stat = int | float | str | bytes


class Ref(str):
    """A text that a stat refers to by its number among the names of stats."""

    __slots__ = ()


class Plane:
    """A plane: events and stats by their names, which get numbers."""

    def __init__(self, space: Space, name: str, /, **stats: Stat) -> None:
        self.proto = space.proto.planes.add(name=name)
        self.events: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.tell(self.proto.stats, stats)

    def tell(self, target: Any, stats: Mapping[str, Stat]) -> None:
        for name, value in stats.items():
            stat = target.add(metadata_id=self._stat(name))
            if isinstance(value, Ref):
                stat.ref_value = self._stat(value)
            elif isinstance(value, int):
                stat.int64_value = value
            else:
                kind = {str: "str_value", bytes: "bytes_value", float: "double_value"}[type(value)]
                setattr(stat, kind, value)

    def name(self, name: str, /, **stats: Stat) -> int:
        """Return the number of a name of events, which the stats describe."""
        if name not in self.events:
            number = self.events[name] = len(self.events) + 1
            entry = self.proto.event_metadata.add(key=number)
            entry.value.id, entry.value.name = number, name
            self.tell(entry.value.stats, stats)
        return self.events[name]

    def line(self, number: int, name: str, timestamp_ns: int = 0) -> Line:
        return Line(self, self.proto.lines.add(id=number, name=name, timestamp_ns=timestamp_ns))

    def _stat(self, name: str) -> int:
        if name not in self.stats:
            number = self.stats[name] = len(self.stats) + 1
            entry = self.proto.stat_metadata.add(key=number)
            entry.value.id, entry.value.name = number, name
        return self.stats[name]


class Line:
    """A line of a plane."""

    def __init__(self, plane: Plane, proto: Any) -> None:
        self.plane, self.proto = plane, proto

    def event(self, name: str, start_ps: int, length_ps: int, /, **stats: Stat) -> None:
        event = self.proto.events.add(
            metadata_id=self.plane.name(name), offset_ps=start_ps, duration_ps=length_ps
        )
        self.plane.tell(event.stats, stats)


class Space:
    """A profile; its name of a host is written last."""

    def __init__(self, host: str = "node7") -> None:
        self.proto = CLASSES["XSpace"]()
        if host:
            self.proto.hostnames.append(host)

    def plane(self, name: str, /, **stats: Stat) -> Plane:
        return Plane(self, name, **stats)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.proto.SerializeToString())
        return path


Instructions = Iterable[tuple[str, str, str, int]]


def program(name: str, number: int, computations: Sequence[Instructions]) -> bytes:
    """Return a serialized program; an instruction is a name, an opcode, an op's name and the computation it calls, or 0."""
    proto = CLASSES["HloProto"]()
    proto.hlo_module.name, proto.hlo_module.id = name, number
    for place, instructions in enumerate(computations, 1):
        computation = proto.hlo_module.computations.add(name=f"computation.{place}", id=place)
        for instruction, opcode, op_name, called in instructions:
            added = computation.instructions.add(name=instruction, opcode=opcode)
            added.metadata.op_name = op_name
            if called:
                added.called_computation_ids.append(called)
    return bytes(proto.SerializeToString())


# -- Two steps of a program on two GPUs


US = 1_000_000  # ps
MODULE = "jit_train_step"
LAYERS = (
    ("fusion.3", "jit(train_step)/jvp(net)/layer0/add"),
    ("dot.1", "jit(train_step)/jvp(net)/layer1/dot_general"),
    ("fusion.4", "jit(train_step)/transpose(jvp(net))/layer1/mul"),
)
KERNEL_DETAILS = "regs:32 static_shared:128 dynamic_shared:0 grid:4,2,1 block:256,1,1 occ_pct:100"
STARTED = 1_760_000_000_000_000_000


def program_of_layers() -> bytes:
    fused = [("p", "parameter", "", 0), ("m", "multiply", "", 0), ("a", "add", "", 0)]
    main = [
        (name, "fusion" if "fusion" in name else "dot", op, int("fusion" in name))
        for name, op in LAYERS
    ]
    return program(MODULE, 8, [fused, main])


def gpu_profile(*, steps: int = 2, with_program: bool = True) -> Space:
    """Return a profile of two steps: each launches a kernel per layer and copies 4096 bytes back."""
    space = Space()
    if with_program:
        metadata = space.plane("/host:metadata")
        metadata.name(f"{MODULE}(8)", **{"Hlo Proto": program_of_layers(), "program_id": 8})
    host = space.plane("/host:CPU", process_id=4242)
    python, driver = host.line(77, "python", 5000), host.line(78, "Host Threads/78", 5000)
    device = space.plane(
        "/device:GPU:1", gpu_device_name="NVIDIA H100", core_count=132, clock_rate=1_980_000,
        memory_size=80 << 30, memory_bandwidth=3_350_000_000_000, compute_cap_major=9, compute_cap_minor=0,
    )  # fmt: skip
    stream, copies = (
        device.line(13, "Stream #13(Compute)", 5000),
        device.line(14, "Stream #14(MemcpyD2H)", 5000),
    )
    derived = [
        device.line(100 + n, name, 5000)
        for n, name in enumerate(("XLA Modules", "XLA Ops", "Steps", "Framework Name Scope"))
    ]
    counters = device.line(200, "_counters_", 5000)
    for step in range(steps):
        at = step * 200 * US
        python.event("train", at, 150 * US, step_num=step, _r=1)
        python.event("PjitFunction(train_step)", at + 10 * US, 100 * US)
        for place, (name, op_name) in enumerate(LAYERS):
            call = 10 * step + place + 1
            begins = at + (20 + 10 * place) * US
            python.event("cuLaunchKernel", begins, 2 * US, device_id=1, correlation_id=call)
            annotation = {
                "hlo_op": Ref(name),
                "hlo_module": Ref(MODULE),
                "program_id": 8,
                "prefix": "jit(train_step)",
            }
            annotation["name"] = Ref(op_name.partition("/")[2])
            stream.event(
                f"void {name.replace('.', '_')}<float>(float*)", begins + 5 * US + 700, 8 * US + 600,
                correlation_id=call, context_id="$$1", kernel_details=Ref(KERNEL_DETAILS), **annotation,
            )  # fmt: skip
            for line in derived:
                line.event(name, begins + 5 * US, 8 * US)
        call = 10 * step + 9
        driver.event(
            "cuMemcpyDtoHAsync_v2", at + 120 * US, 3 * US, device_id=1, correlation_id=call
        )
        details = "kind_src:device kind_dst:pinned size:4096 dest:0 async:1"
        copies.event(
            "MemcpyD2H",
            at + 125 * US,
            4 * US,
            correlation_id=call,
            context_id="$$1",
            memcpy_details=Ref(details),
        )
        stream.event(
            "Memset",
            at + 140 * US,
            1 * US,
            context_id="$$1",
            Memset_details=Ref("kind:device num_bytes:64 async:1"),
        )
        stream.event(
            "MemoryAlloc", at + 141 * US, 1 * US, memalloc_details=Ref("kind:device num_bytes:64")
        )
        counters.event("power_mw", at, 0, power_mw=300.0)
    space.plane("Task Environment", profile_start_time=STARTED, profile_stop_time=STARTED + 10**9)
    return space
