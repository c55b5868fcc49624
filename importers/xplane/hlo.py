"""What XLA's programs say of their instructions: serialized `HloProto` messages in the plane `/host:metadata`.

Numbers of fields are those of xla/service/hlo.proto and xla/xla_data.proto.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridge.importers.arrays import MISSING, Ints, scatter
from bridge.importers.frames import Names
from bridge.importers.messages import Messages, Pairs
from bridge.importers.wire import LENGTH
from bridge.importers.xplane.space import Space

PROTO, PROGRAM = "Hlo Proto", "program_id"  # stats of an entry of the plane
MODULE = 1  # field of an HloProto
MODULE_NAME, COMPUTATIONS = 1, 3  # of a module
INSTRUCTIONS, COMPUTATION_ID = 2, 5  # of a computation
NAME, OPCODE, METADATA, CALLED = 1, 2, 7, 38  # of an instruction
OP_NAME = 2  # of its metadata
FUSION = "fusion"
# Opcodes that compute nothing.
PASSIVE = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"])


class Instruction(NamedTuple):
    """An instruction: the name of its op in the program of the user, and the opcodes that a fusion computes."""

    op_name: str = ""
    opcode: str = ""
    fused: tuple[str, ...] = ()


UNKNOWN = Instruction()


class Programs:
    """The programs whose instructions a file tells; two of them may have modules of one name."""

    def __init__(self, space: Space) -> None:
        """Read the programs of a file; raises `DamagedMessageError` if one is not whole."""
        owner, start, end = space.name_stats.bytes(PROTO)
        modules = Messages(space.wire, owner, start, end).parts(MODULE)
        computations = modules.parts(COMPUTATIONS)
        instructions = computations.parts(INSTRUCTIONS)
        program = computations.owner[instructions.owner]
        numbers = space.name_stats.integers(PROGRAM, len(space.names))[owner[modules.owner]]
        self._rows_by_number = dict(zip(numbers.tolist(), range(len(modules)), strict=True))
        self._rows_by_name: dict[str, list[int]] = {}
        for row, name in enumerate(modules.texts(MODULE_NAME)):
            self._rows_by_name.setdefault(name, []).append(row)
        names = instructions.texts(NAME)
        self._codes = {text: code for code, text in enumerate(names.texts)}
        self._instructions = Pairs(program, names.codes)
        self._opcode, self._op_name = instructions.texts(OPCODE), _op_names(instructions)
        self._called = Pairs(computations.owner, computations.integers(COMPUTATION_ID)).rows(
            program, _first_called(instructions)
        )
        self._edges = np.searchsorted(instructions.owner, np.arange(len(computations) + 1))

    def find(self, program: int, module: str, name: str) -> Instruction:
        """Return an instruction by the number of its program, or by its module if no other has this name."""
        same_name = self._rows_by_name.get(module, [])
        only = same_name[0] if len(same_name) == 1 and program == MISSING else MISSING
        place = self._rows_by_number.get(program, only)
        pair = np.array([place]), np.array([self._codes.get(name, MISSING)])
        row = int(self._instructions.rows(*pair)[0])
        if row == MISSING:
            return UNKNOWN
        opcode = self._opcode[row]
        fused = self._fused(int(self._called[row])) if opcode == FUSION else ()
        return Instruction(self._op_name[row], opcode, fused)

    def _fused(self, computation: int) -> tuple[str, ...]:
        """Return what the instructions of a computation compute, each opcode once."""
        if computation == MISSING:
            return ()
        rows = slice(*self._edges[computation : computation + 2])
        return tuple(opcode for opcode in self._opcode[rows].used if opcode not in PASSIVE)


def _op_names(instructions: Messages) -> Names:
    metadata = instructions.parts(METADATA)
    row = scatter(np.arange(len(metadata)), metadata.owner, len(instructions))
    return metadata.texts(OP_NAME).at(row)


def _first_called(instructions: Messages) -> Ints:
    """Return the number of the first computation that each instruction calls, -1 if it calls none."""
    fields = instructions.fields
    fields = fields.take(
        np.flatnonzero((fields.number == CALLED) & (fields.end > fields.start))[::-1]
    )
    packed = fields.wire == LENGTH
    value = np.where(packed, instructions.wire.varints(fields.start)[0], fields.value)
    return scatter(value, fields.message, len(instructions))
