"""The first screen of a report: how long the run was, what each GPU did, what the run pays for, what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.knowledge.abbreviations import abbreviation
from bridge.render import device_work, failures, units
from bridge.render.advice import with_figures
from bridge.render.summaries import host_differs
from bridge.render.table import clean
from bridge.render.wrapping import wrap

if TYPE_CHECKING:
    from bridge.analyze.checks.costs import Cost, Costs
    from bridge.analyze.checks.failures import Failure
    from bridge.analyze.checks.summary import FirstAdvice, Iteration, Summary
    from bridge.analyze.run.account import GpuAccount, Run
    from bridge.analyze.run.gpu_use import Use

MOST_LINES, WIDTH = 12, 80  # of the screen; where it takes more, less is said
MOST_NAMES = 2  # of reports
MOST_GPUS = 4  # on a line, and lines; more GPUs are written as one
LOW_FILL = 0.5  # of the multiprocessors that have work while kernels run: less is said
MOST_LOOPS = 3  # more are written as one
MIN_PART = 0.005  # of the run, from which on a part or a state of a GPU is named
ALIKE = 0.05  # of the run, by which the busy times of GPUs on one line differ at most
WITH_PLACE = ("host code", "synchronization")  # causes that the name of the op makes clearer
UNKNOWN = "unknown"  # no API calls were recorded
NOT_RECORDED = "not-recorded"  # the kind of a failure
ITERATIONS = "iterations"
PARTS = {"between": "between the loops"}  # of a run, for people
WORDS = {  # of states, for people
    "compute": "compute",
    "communication": "communication",
    "copy": "copies",
    "other": "memsets",
    "graph": "CUDA graphs",
    "elsewhere": "work not selected",
    "idle": "idle",
}


def lines(summary: Summary) -> list[str]:
    """Return the first screen, a text per line or paragraph; what would not fit and tells least is left out."""
    if summary.use.nothing:
        before = first_lines(summary.failures, summary.use)
        return [*_scope(summary), *before, f"→ {next_command(summary)}"]
    written = _lines(summary)
    for count in range(1, len(LEAST_TELLING) + 1):
        if _height(written, summary) <= MOST_LINES:
            break
        written = _lines(summary, LEAST_TELLING[:count])
    return written


# What a screen can do without, the least telling first: how full kernels are, the largest cause of idle time, the
# second of the costs in each list, the remedy of the advice, and why there are no iterations.
FILL, CAUSE, SECOND, REMEDY, WHY = LEAST_TELLING = ("fill", "cause", "second", "remedy", "why")


def _lines(summary: Summary, without: Collection[str] = ()) -> list[str]:
    use = replace(summary.use, idle=()) if CAUSE in without and summary.costs else summary.use
    most = 1 if SECOND in without else None
    return [
        *_scope(summary),
        *first_lines(summary.failures, use, with_states=True),
        *_throughput(summary),
        *(() if FILL in without else _fill_lines(summary)),
        *(() if WHY in without else _no_iterations(summary)),
        *(_cost_lines(summary.costs, most) if summary.costs else _op_lines(summary)),
        *_advice_lines(summary, with_remedy=REMEDY not in without),
    ]


def _height(written: Iterable[str], summary: Summary) -> int:
    """Return how many lines of a terminal the texts take, in which commands name the reports."""
    reports = " ".join(summary.source) if 0 < len(summary.source) <= MOST_NAMES else "REPORT"
    return sum(len(wrap(line.replace("REPORT", reports), WIDTH)) for line in written)


def next_command(summary: Summary) -> str:
    """Return the command that helps most with this report."""
    return command_for(summary.use, summary.ranges)


def command_for(use: Use, ranges: int) -> str:
    """Return the command that helps most with a report with this use of GPUs and so many ranges."""
    if use.nothing:
        return "bridge doctor REPORT"
    if not ranges:
        return "bridge run --auto train.py (to record ops; this report has no NVTX ranges)"
    return "bridge report REPORT --by kernel" if use.is_busy else "bridge advise REPORT"


# -- Scope: the report, its length, and the parts of the run


def _scope(summary: Summary) -> Iterator[str]:
    names = ", ".join(map(clean, summary.source)) if len(summary.source) <= MOST_NAMES else ""
    head = names or f"{len(summary.source)} reports"
    profiler = f", {clean(summary.profiler)}" if summary.profiler else ""
    if len(summary.use.runs) == 1:
        [run] = summary.use.runs
        yield f"{head}{profiler}: {_run_text(run, summary)}."
    elif summary.use.runs:
        lengths = sorted(run.length_ns for run in summary.use.runs)
        yield (
            f"{head}{profiler}: {len(lengths)} runs without a common clock,"
            f" {units.time(lengths[0])} to {units.time(lengths[-1])}."
        )


def _run_text(run: Run, summary: Summary) -> str:
    """Return ``15.4 s: start-up 2.83 s, 59 iterations of 153.4 ms, end 3.62 s``."""
    length = units.time(run.length_ns)
    if run.is_part:
        return f"{units.time(run.part.length)} selected of a run of {length}"
    bare = " from the first CUDA call" if run.evidence == "calls" else ""
    parts = ", ".join(_part_texts(run, summary))
    return f"{length}{bare}: {parts}" if parts else f"{length}{bare}"


def _part_texts(run: Run, summary: Summary) -> Iterator[str]:
    """Yield the parts of a run; of one without iterations, only if work on a GPU is one of several."""
    named = {name: ns for name, ns in summary.parts.items() if ns >= MIN_PART * run.length_ns}
    if not summary.iterations and (len(named) == 1 or summary.use.nothing):
        return
    for name in summary.parts:
        if name == ITERATIONS:
            yield from _loop_texts(summary.iterations)
        elif name in named:
            yield f"{PARTS.get(name, name)} {units.time(named[name])}"


def _loop_texts(loops: Sequence[Iteration]) -> Iterator[str]:
    if len(loops) > MOST_LOOPS:
        yield from _loops_by_name(loops)
        return
    for loop in loops:
        time = f" of {units.time(round(loop.iteration_ns))}" if loop.iteration_ns else ""
        noun = "iteration" if loop.count == 1 else "iterations"
        besides = [f"{units.count(loop.warm_up)} of warm-up"] if loop.warm_up else []
        besides += [f"{units.time(round(loop.host_ns))} on the host"] if host_differs(loop) else []
        more = f" ({', '.join(besides)})" if besides else ""
        yield f"{units.count(loop.count)} {noun}{time}{more}"


def _loops_by_name(loops: Sequence[Iteration]) -> Iterator[str]:
    """Yield the iterations of all loops of a name together: ``12 iterations of train step * in 3 loops, of 10 ms``."""
    names = dict.fromkeys(loop.loop for loop in loops)
    by_name = [[loop for loop in loops if loop.loop == name] for name in names]
    by_name.sort(key=lambda own: -sum(loop.count * loop.iteration_ns for loop in own))
    for own in by_name[:MOST_LOOPS]:
        count, several = (
            sum(loop.count for loop in own),
            f" in {len(own)} loops" if len(own) > 1 else "",
        )
        longest = max(own, key=lambda loop: loop.count * loop.iteration_ns)
        time = f", each {units.time(round(longest.iteration_ns))}" if longest.iteration_ns else ""
        name = f" of {clean(own[0].loop)}" if own[0].loop else ""
        yield f"{units.count(count)} iterations{name}{several}{time}"
    if len(by_name) > MOST_LOOPS:
        yield f"{len(by_name) - MOST_LOOPS} more kinds of loops"


def _no_iterations(summary: Summary) -> Iterator[str]:
    if summary.no_iterations and not summary.iterations:
        yield f"No iterations: {clean(summary.no_iterations)}."


# -- What failed, and what the GPUs did


def first_lines(found: Sequence[Failure], use: Use, *, with_states: bool = False) -> list[str]:
    """Return the lines on what failed and what was lost, then `use_lines`."""
    if use.nothing:  # which says itself what was not recorded
        found = [one for one in found if one.kind != NOT_RECORDED]
    elif any(one.kind == NOT_RECORDED for one in found):
        return [*failures.lines(found), *device_work.quoted(device_work.WARNING, use.hints)]
    said = failures.quoted(found)
    return [*failures.lines(found), *use_lines(use, said, with_states=with_states)]


def use_lines(use: Use, said: Collection[str] = (), *, with_states: bool = False) -> list[str]:
    """Return how busy each GPU was, the largest cause of idle time, and what the program says of its GPUs.

    ``with_states`` what each GPU did is said in place of the length of the run. Where next to nothing ran, the lines
    say so and why; ``said`` are lines that are quoted before.
    """
    if use.nothing:
        return device_work.lines(use.nothing, said)
    return [
        *_gpu_lines(use, with_states=with_states),
        *device_work.quoted(device_work.WARNING, use.hints),
    ]


def _gpu_lines(use: Use, *, with_states: bool) -> list[str]:
    written = [line for run in use.runs for line in _lines_of_run(run, with_states=with_states)]
    cause = _cause_text(use)
    if not cause or not written:
        return written
    return [f"{written[0]} {cause}"] if len(written) == 1 else [*written, cause]


def _lines_of_run(run: Run, *, with_states: bool) -> Iterator[str]:
    alike = [*_alike(run.gpus)]
    if len(alike) > MOST_GPUS:
        alike = [list(run.gpus)]
    for gpus in alike:
        if with_states:
            of = "the selected time" if run.is_part else "the run"
            yield f"{_busy_text(gpus)} of {of} ({_states_text(gpus)})."
        else:
            yield f"{_busy_text(gpus)} of {span_text(run)}."


def _alike(gpus: Iterable[GpuAccount]) -> Iterator[list[GpuAccount]]:
    """Yield the GPUs whose busy times are close to each other."""
    left = list(gpus)
    while left:  # one iteration per line
        first = left[0]
        yield [gpu for gpu in left if abs(gpu.share - first.share) <= ALIKE]
        left = [gpu for gpu in left if abs(gpu.share - first.share) > ALIKE]


def _busy_text(gpus: Sequence[GpuAccount]) -> str:
    """Return ``GPU 0: busy 91.3 %, GPU 1: busy 89.1 %``; of many GPUs the least and the most busy."""
    shares = {clean(gpu.device): units.percent(gpu.share) for gpu in gpus}
    if len(gpus) > MOST_GPUS:
        by_share = sorted(gpus, key=lambda gpu: gpu.share)
        least, most = (
            f"{units.percent(g.share)} ({clean(g.device)})" for g in by_share[:: len(gpus) - 1]
        )
        return f"{len(gpus)} GPUs: busy {least} to {most}"
    if len({*shares.values()}) == 1:
        return f"{', '.join(shares)}: busy {next(iter(shares.values()))}"
    return ", ".join(f"{name}: busy {share}" for name, share in shares.items())


def _states_text(gpus: Sequence[GpuAccount]) -> str:
    """Return ``compute 2.5 %, idle 97.3 %`` of one GPU; of several the share of each, or the least and the most."""
    shares = {
        state: [gpu.states.get(state, 0) / max(1, gpu.length_ns) for gpu in gpus] for state in WORDS
    }
    named = {
        state: of
        for state, of in shares.items()
        if max(of) >= (0 if state == "idle" else MIN_PART) or (state == "compute" and max(of))
    }
    return ", ".join(f"{WORDS[state]} {_between(of)}" for state, of in named.items())


def _between(shares: Sequence[float]) -> str:
    """Return the shares of two GPUs, or the least and the largest of several."""
    texts = dict.fromkeys(map(units.percent, shares))
    if len(texts) <= MOST_NAMES:
        return " and ".join(texts)
    least, most = units.percent(min(shares)), units.percent(max(shares))
    return least if least == most else f"{least} to {most}"


def span_text(run: Run) -> str:
    """Return what the account of a run is of: ``the run, 15.3 s``, or ``3.1 s selected of the run, 15.3 s``."""
    whole = f"the run, {units.time(run.length_ns)}"
    return f"{units.time(run.part.length)} selected of {whole}" if run.is_part else whole


def _cause_text(use: Use) -> str:
    cause = use.main_cause
    if cause is None or cause.cause == UNKNOWN:
        return ""
    op = use.places.get(cause.cause, "") if cause.cause in WITH_PLACE else ""
    place = f" (mainly in {clean(op)})" if op else ""
    part, time = units.percent(cause.idle_ns / use.idle_ns), units.time(cause.idle_ns)
    gpus = f" over {len(use.gpus)} GPUs" if len(use.gpus) > 1 else ""
    return (
        f"Largest cause of idleness: {cause.cause}{place}, {time}{gpus}, {part} of the idle time."
    )


MOST_RATES = 2


def _throughput(summary: Summary) -> Iterator[str]:
    """Yield the rates that the program printed, and how much of the peak its FLOPs use."""
    told = [f"{clean(text)} as the program printed" for text in summary.rates[:MOST_RATES]]
    if summary.mfu >= 0:
        told.append(f"FLOPs of an iteration are {units.percent(summary.mfu)} of the peak (MFU)")
    if told:
        yield f"Throughput: {', '.join(told)}."


def _fill_lines(summary: Summary) -> Iterator[str]:
    """Yield how much of the multiprocessors kernels fill, where that is little: a busy GPU may be nearly empty."""
    low = {gpu: share for gpu, share in summary.filled.items() if 0 <= share < LOW_FILL}
    if low:
        least = min(low.values())
        whose = (
            "Its kernels"
            if len(summary.filled) == 1
            else f"Kernels of {', '.join(map(clean, low))}"
        )
        share = units.percent(least)
        yield f"{whose} fill {share} of the multiprocessors while they run, by the sizes of their launches."


# -- What the run pays for


def _cost_lines(costs: Costs, most: int | None) -> list[str]:
    """Return what is paid in each iteration and what is paid once, first the list that takes more of the run."""
    each = _costs_text(costs.in_each[:most], with_time=not costs.each_ns)
    once = _costs_text(costs.once[:most], with_time=True)
    where = "in each iteration" if costs.each_ns else "while the GPU works"
    both = [
        (costs.in_all_ns, f"Paid {where}: {each}." if each else ""),
        (
            costs.once_ns,
            f"Paid once ({units.time(costs.once_ns)}): {once} of the run." if once else "",
        ),
    ]
    return [text for _, text in sorted(both, key=lambda one: -one[0]) if text]


def _costs_text(costs: Iterable[Cost], *, with_time: bool) -> str:
    return "; ".join(
        f"{_cost_name(cost)}{f' {units.time(cost.time_ns)},' if with_time else ''} {units.percent(cost.share)}"
        for cost in costs
    )


def _cost_name(cost: Cost) -> str:
    if not cost.what:
        return clean(abbreviation(cost.where))
    if not cost.where or cost.where.lower() == cost.what:
        return clean(cost.what)
    joint = ", mostly" if cost.is_work else " in"
    return f"{clean(cost.what)}{joint} {clean(abbreviation(cost.where))}"


MIN_UNATTRIBUTED = 0.1  # of the GPU time; below, a line on it would only distract


def _op_lines(summary: Summary) -> Iterator[str]:
    if summary.ops and summary.gpu_ns:
        shares = (
            f"{clean(op.op)} {units.percent(op.gpu_self_ns / summary.gpu_ns)}" for op in summary.ops
        )
        yield f"Most GPU time: {', '.join(shares)}."
        in_ops = summary.gpu_ns if summary.attributed_ns is None else summary.attributed_ns
        if (share := 1 - in_ops / summary.gpu_ns) >= MIN_UNATTRIBUTED:
            yield f"{units.percent(share)} of the GPU time is in no op. → bridge report REPORT --by kernel"


# -- What to do


def _advice_lines(summary: Summary, *, with_remedy: bool) -> Iterator[str]:
    if summary.failures and not summary.advice:
        yield "→ bridge advise REPORT"
    elif summary.advice:
        said = _first_advice(summary.advice, with_remedy=with_remedy)
        following = f" Next: {summary.advice.next_title}." if summary.advice.next_title else ""
        yield f"{summary.advice.title}: {said}.{following} → bridge advise REPORT"
    elif summary.use.gpus:
        found = "No bottleneck found. " if summary.is_judged else ""
        yield f"{found}→ {next_command(summary)}"


def _first_advice(advice: FirstAdvice, *, with_remedy: bool) -> str:
    """Return the sentence of the first advice and its remedy, with their figures."""
    texts = (advice.text, f"Remedy: {advice.remedy}" if with_remedy else "")
    return ". ".join(with_figures(text, advice.figures) for text in texts if text)
