"""The ops of XLA: instructions of its programs, which events of the CPU and of GPUs name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bridge.importers.arrays import MISSING, Ints
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.records import record
from bridge.importers.xplane.hlo import Instruction, Programs
from bridge.importers.xplane.scopes import Path, path_of
from bridge.importers.xplane.space import Part

OP, MODULE, PROGRAM, RUN = "hlo_op", "hlo_module", "program_id", "run_id"  # stats of events
# Stats with the name of an op in the user's program; of the one in the middle that before it is the beginning.
OP_NAME_STATS = ("prefix", "name", "tf_op")


class Op(NamedTuple):
    """An op: the module of XLA, the name of the instruction, what the program and what the events say of it."""

    module: str
    name: str
    instruction: Instruction
    op_names: tuple[str, ...]  # what `OP_NAME_STATS` say

    @property
    def text(self) -> str:
        """The text of its ranges, as XLA writes its annotations."""
        return f"{self.module}:#hlo_op={self.name}#" if self.module else self.name

    @property
    def op_name(self) -> str:
        """The name of the op in the user's program."""
        prefix, name, tf_op = self.op_names
        told = "/".join(part.strip("/") for part in (prefix, name) if part) if name else tf_op
        return self.instruction.op_name or (told if "/" in told else "")

    @property
    def path(self) -> Path:
        return path_of(self.op_name)

    @property
    def details(self) -> str:
        """What is known of it besides its text, as JSON."""
        known = self.instruction
        facts = {
            "hlo_module": self.module,
            "op_name": self.op_name,
            "opcode": known.opcode,
            "fused": [*known.fused],
        }
        return json.dumps({key: value for key, value in facts.items() if value})


@record
class Ops:
    """The ops that events name: a number per event of each part, -1 for none."""

    numbers: Sequence[Ints]
    ops: Sequence[Op]

    @classmethod
    def of(cls, parts: Sequence[Part], programs: Programs) -> Ops:
        """Find the ops of some parts of a file."""
        op, module, *op_names = (
            Names.concat([part.texts(stat) for part in parts])
            for stat in (OP, MODULE, *OP_NAME_STATS)
        )
        program = np.concatenate([part.integers(PROGRAM) for part in parts])
        rows = np.flatnonzero(op.codes != MISSING)
        code, first = distinct_keys(
            op.codes[rows], module.codes[rows], program[rows], *(n.codes[rows] for n in op_names)
        )
        ops = [
            Op(
                module[row],
                op[row],
                programs.find(int(program[row]), module[row], op[row]),
                tuple(name[row] for name in op_names),
            )
            for row in rows[first].tolist()
        ]
        number = np.full(len(op), MISSING)
        number[rows] = code
        edges = np.cumsum([len(part) for part in parts])[:-1]
        return cls(np.split(number, edges), ops)
