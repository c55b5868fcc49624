"""Simulated programs on GPUs whose truth is known: the witness against which an analysis is held.

A discrete-event simulator runs programs on a machine of GPUs by the rules that CUDA's documentation gives, and
writes the exports that Nsight Systems would have made of them. Because it knows what released every event, and can run
a program again with one thing changed and the same random numbers, it knows the truth: how long the run was, what
every GPU did, why it was idle, and what each remedy saves.

    program = draw(seed)                      # a base program and 0 to 3 troubles; the same for the same seed
    result = simulate(program)                # its run
    better = simulate(program, frozenset(["slow_loader"]))  # the run with this trouble remedied
    truth = Truth.of(program)                 # length, states, causes of idle time, savings
    files = write(result, path)               # exports: one of all processes, or with per_process=True one each

- `draw(seed) -> Program`; `program(seed, plan, *troubles) -> Program` makes one from parts: `Plan` says what a healthy
  program does, `KINDS` names the kinds of trouble, with their remedies.
- `simulate(program, without=frozenset()) -> Result`; ``without`` are names of troubles of `Program.names`.
- `Truth.of(program) -> Truth`; times are ns of the simulation, GPUs are numbered from 0.
  Each of `Truth.troubles` has ``true_saving_ns``, which may be 0 (something else bounds the run) or below 0 (by less than 1 %:
  the same work in another order), whether it is ``healthy`` (it looks like a trouble and must not be found), and ``about``: names as
  the export has them. Programs without ranges have no names of ops.
- `collective_waits(result)`, `iterations(result)`: what collectives waited for, and where iterations lie.
- `write_degraded(result, name, path)`, for each name of `DEGRADED`; `known_span` and `known_states` say what is still true.
- `write(result, path, per_process=False) -> list[Path]`; times in an export of all processes are those of the simulation; exports
  of single processes begin at times of their own, which their session's epoch tells.

The modules from the bottom up: `chance` (random numbers by identity), `engine` (the clock), `device` (GPUs), `host`
(threads), `calls` (the CUDA API), `machine`; `plan`, `loading`, `ranks`, `training` and others (programs), `fragments`
and `troubles` (what spoils them), `further` (kinds of trouble that are measured apart), `programs`; `span`, `causes`,
`truth`; `export`, `degraded`; `answers` (what the product says), `matching` (which trouble it is about), `measure`,
`tables`: `python -m tests.simulated` makes these.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ != "simulated":  # as tests.simulated: modules of tests find each other, as under pytest
    sys.path.insert(0, str(Path(__file__).parents[1]))

from simulated.degraded import DEGRADED, known_span, known_states, write_degraded
from simulated.export import write
from simulated.plan import Plan
from simulated.programs import Program, Result, draw, program, simulate
from simulated.troubles import KINDS, Trouble
from simulated.truth import Truth, collective_waits, iterations

__all__ = [
    "DEGRADED",
    "KINDS",
    "Plan",
    "Program",
    "Result",
    "Trouble",
    "Truth",
    "collective_waits",
    "draw",
    "iterations",
    "known_span",
    "known_states",
    "program",
    "simulate",
    "write",
    "write_degraded",
]
