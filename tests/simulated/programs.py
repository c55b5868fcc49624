"""Programs drawn from a seed, and what a machine does when it runs one."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from simulated.calls import Costs
from simulated.further import FURTHER, FURTHER_EXCLUSIVE
from simulated.machine import Machine
from simulated.plan import Plan
from simulated.ranks import Rank, World
from simulated.solving import MultiRank, PipelineRank, ServingRank, SolverRank
from simulated.training import TrainingRank
from simulated.troubles import EXCLUSIVE, KINDS, Kind, Trouble

HEALTHY_SHARE = 0.15
MIXED_SHARE = 0.5  # of programs with a further kind: with a known one, too
BASES: dict[str, Callable[..., Rank]] = {
    "training": TrainingRank,
    "solver": SolverRank,
    "multi": MultiRank,
    "serving": ServingRank,
    "pipeline": PipelineRank,
}


@dataclass(frozen=True)
class Program:
    """A healthy plan and the troubles that spoil it."""

    seed: int
    plan: Plan
    troubles: tuple[Trouble, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of the troubles."""
        return frozenset(trouble.name for trouble in self.troubles)

    def planned(self, without: frozenset[str] = frozenset()) -> Plan:
        """Return the plan with every trouble, but for those that are remedied."""
        plan = deepcopy(self.plan)
        for trouble in self.troubles:
            change = trouble.kind.remedy if trouble.name in without else trouble.kind.inject
            change(plan, dict(trouble.numbers))
        return plan


@dataclass(frozen=True)
class Result:
    """A program and the machine that has run it."""

    program: Program
    plan: Plan
    machine: Machine
    without: frozenset[str]


def draw(seed: int) -> Program:
    """Return the program of a seed: a base program with no to three troubles."""
    chance = random.Random(f"program {seed}")
    plan = Plan.draw(seed)
    count = 0 if chance.random() < HEALTHY_SHARE else chance.choice((1, 1, 2, 3))
    names: list[str] = []
    _add(names, count, _in_turn(KINDS, plan, chance))
    return program(seed, plan, *names)


def draw_further(seed: int) -> Program:
    """Return another program of a seed: with one further kind of trouble and at most one known one, or healthy."""
    chance = random.Random(f"further {seed}")
    plan, names = Plan.draw(seed), list[str]()
    if chance.random() >= HEALTHY_SHARE:
        _add(names, 1, _in_turn(FURTHER, plan, chance))
        if chance.random() < MIXED_SHARE:
            _add(names, 2, _in_turn(KINDS, plan, chance))
    return program(seed, plan, *names)


def _in_turn(kinds: dict[str, Kind], plan: Plan, chance: random.Random) -> list[Kind]:
    """Return the kinds that fit a plan, in an order by chance."""
    fitting = [kind for kind in kinds.values() if kind.fits(plan)]
    return sorted(fitting, key=lambda kind: chance.expovariate(kind.weight))


def _add(names: list[str], count: int, kinds: list[Kind]) -> None:
    """Add the first kinds that go together, until there are so many names."""
    for kind in kinds:
        if len(names) < count and not _excluded(kind.name, names):
            names.append(kind.name)


def _excluded(name: str, names: list[str]) -> bool:
    """Return whether a kind changes what one of these does."""
    return any(name in group and group & set(names) for group in (*EXCLUSIVE, *FURTHER_EXCLUSIVE))


def program(seed: int, plan: Plan, *names: str) -> Program:
    """Return a program with troubles of these names, whose numbers come from the seed."""
    troubles = []
    for name in names:
        chance = random.Random(f"trouble {seed} {name}")
        kind = (KINDS | FURTHER)[name]
        troubles.append(Trouble(kind, kind.draw(plan, chance)))
    return Program(seed, plan, tuple(troubles))


def simulate(program: Program, without: frozenset[str] = frozenset(), **changes: float) -> Result:
    """Return the run of a program, with some of its troubles remedied, and with other numbers in its plan."""
    plan = program.planned(without)
    for name, value in changes.items():
        setattr(plan, name, value)
    costs = Costs(latency_ns=plan.latency_ns)
    gpus = max(plan.ranks, plan.stages)
    machine = Machine(program.seed, gpus, costs=costs, crowding=plan.crowding)
    machine.annotated = plan.annotated
    world = World(machine, plan)
    shared = machine.process("python") if plan.one_process else None
    for rank in range(plan.ranks):
        process = shared or machine.process(f"python rank {rank}")
        process.rank = rank
        BASES[plan.base](world, rank, process).run()
    machine.run()
    return Result(program, plan, machine, without)
