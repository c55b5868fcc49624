"""From where on some rules fire, what they leave to others, and which remedy they reckon with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from made_reports import process

from advice.rules import WORKERS, checkpoint, handed_on, in_steps, locked
from advice.story import TO_HOST, US, Story
from bridge.analyze.checks.advice import Finding
from bridge.analyze.run import interventions
from bridge.analyze.run.critical.run import Run
from bridge.report import Report


def of_report(joined: Report, name: str) -> Finding | None:
    advised = joined.advise([name], 0)
    assert not advised.not_judged
    return next((one.finding for one in advised.advice), None)


@pytest.fixture
def said(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Story, str], Finding | None]:
    """Give what a rule says of a program."""
    return lambda story, name: of_report(story.load(tmp_path_factory.mktemp("told")), name)


# -- Waits for Python's lock


def unnamed(story: Story) -> Story:
    """Take the names of processes away: none is said to run Python."""
    story.tables["processes"].clear()
    return story


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "fires"), [(4_749, False), (4_750, True), (5_251, False)])
def test_a_thread_asks_for_pythons_lock_after_5_ms(asked, fires, said):
    assert (said(unnamed(in_steps(locked(asked))), "python-lock") is not None) == fires


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "call", "fires"),
    [
        ("train", "pthread_cond_timedwait", True),
        ("train", "pthread_cond_wait", False),
        ("load batch", "pthread_cond_timedwait", False),
        ("gloo:all_reduce", "pthread_cond_timedwait of 5251", False),
    ],
)
def test_a_thread_of_python_waits_for_its_lock_in_one_call(op, call, fires, said):
    """Not for a loader, which waits in this call, too; nor in a call that lasts longer than Python waits."""
    name, _, us = call.partition(" of ")

    def waits(story: Story, _number: int) -> None:
        with story.op(op):
            story.system(name, int(us or 2_000))

    assert (said(in_steps(waits), "python-lock") is not None) == fires


@pytest.mark.slow
@pytest.mark.parametrize(("apart", "fires"), [(20, True), (21, False)])
def test_it_waits_on_at_once(apart, fires, said):
    def waits(story: Story, _number: int) -> None:
        with story.op("train"):
            story.system("pthread_cond_timedwait", 5_000)
            story.rest(apart)
            story.system("pthread_cond_timedwait", 1_000)

    assert (said(unnamed(in_steps(waits)), "python-lock") is not None) == fires


@pytest.mark.slow
def test_what_runs_meanwhile_is_said(said):
    """For 6000 of each step, rather than what runs for 500 of it; nothing is said of what was not recorded."""

    def shorter(story: Story, _number: int) -> None:
        with story.beside(3, story.now), story.op("log"):
            story.rest(500)

    assert said(in_steps(shorter, locked(5_000)), "python-lock").figures["holder"] == "tokenize"

    def alone(story: Story, _number: int) -> None:
        with story.op("train"):
            story.system("pthread_cond_timedwait", 5_000)
            story.system("pthread_cond_timedwait", 1_000)

    finding = said(in_steps(alone), "python-lock")
    assert finding.figures["holder"] == "code that was not recorded"


# -- Checkpoints


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "call", "fires"),
    [
        (1 << 20, "write", True),
        ((1 << 20) - 1, "write", False),
        (1 << 20, "fsync", True),
        (1 << 20, "read", False),
    ],
)
def test_a_checkpoint_is_large_and_written(size, call, fires, said):
    assert (said(checkpoint(size=size, writes=call), "checkpoint") is not None) == fires


@pytest.mark.slow
def test_several_copies_are_one_checkpoint(said):
    """Two copies of 400, and one file: both go, and what lies between them and the end of writing."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            for _ in range(2):
                held = max(story.done, story.now + 2) + 410 - story.now
                copy = {"size": 8_000_000, "api": "cudaMemcpy_v3020", "held": held}
                story.copy(400, way=TO_HOST, **copy)
            story.system("write", 600)
    # Each step 1 + 2 of launch, 1000 of kernel, 410 and 412 of copies, 600 of writing and 1. Instead the GPU has 1000
    # of kernel and two copies of 16, the second still 2 after what it waits for; from 3 on. The last file is written
    # behind them, from 10 after the copy on.
    finding = said(story, "checkpoint")
    assert finding.figures["memcpys"] == 12
    assert finding.saving_ns == (6 * 2_426 - (3 + 6 * 1_034 + 10 + 600)) * US


@pytest.mark.slow
def test_what_is_written_too_fast_is_something_else(said):
    """No 8 MB are written in 100 us: the program prints a line."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            held = story.done + 410 - story.now
            story.copy(400, way=TO_HOST, size=8_000_000, api="cudaMemcpy_v3020", held=held)
            story.system("write", 100)
    assert said(story, "checkpoint") is None


@pytest.mark.slow
def test_a_wait_between_a_copy_and_the_file_goes_with_them(said):
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            story.copy(400, way=TO_HOST, size=8_000_000)
            story.wait()
            story.system("write", 600)
    # Each step 1 + 2 of launch, 1000 of kernel, 400 of copy, 1 until the wait ends, 600 of writing and 1; then the GPU
    # has 1000 and 16 each, and the last file is written behind them, from 1 after the copy on.
    assert said(story, "checkpoint").saving_ns == (6 * 2_005 - (3 + 6 * 1_016 + 1 + 600)) * US


@pytest.mark.slow
@pytest.mark.parametrize(("size", "memcpys"), [(16_000_000, 7), (16_000_001, 6)])
def test_the_results_of_a_run_are_no_checkpoint(size, memcpys, said):
    """They are copied last, and are larger than twice a checkpoint."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            for part in (8_000_000, size) if number == 5 else (8_000_000,):
                held = story.done + 410 - story.now
                story.copy(400, way=TO_HOST, size=part, api="cudaMemcpy_v3020", held=held)
                story.system("write", 600)
            if number < 5:
                story.kernel(us=10)
    assert said(story, "checkpoint").figures["memcpys"] == memcpys


# -- Work that begins late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "fires"),
    [
        ("cudaStreamQuery_v3020", True),
        ("cudaMemPrefetchAsync_v8000", False),
        ("cudaLaunchHostFunc_v10000", False),
    ],
)
def test_what_a_stream_was_given_and_is_not_recorded_may_hold_up_work(api, fires, said):
    story = Story()
    with story.op("train"):
        for number in range(40):
            if number % 4 == 3:
                story.call(api)
                story.done += 200
            story.kernel(us=100)
    assert (said(story, "late-work") is not None) == fires


@pytest.mark.slow
@pytest.mark.parametrize(("of_run", "fires"), [(0.021, True), (0.019, False)])
def test_work_is_late_for_some_of_the_run(of_run, fires, said):
    """One kernel of 50 begins late, beyond the 100 us that any may."""
    story = Story()
    us = 300
    with story.op("train"):
        for number in range(50):
            story.done += us if number == 25 else 0
            story.kernel(us=round((us / of_run - us) / 50))
    assert (said(story, "late-work") is not None) == fires


@pytest.mark.slow
def test_a_wait_of_the_host_is_not_why_work_is_late(said):
    """The kernel after each wait begins 1000 after its launch: without the wait it begins no sooner after that."""

    def told() -> Story:
        story = Story()
        with story.op("train"):
            for _ in range(20):
                story.done = story.now + 1_000
                for _ in range(2):
                    story.kernel(us=100)
                story.wait()
        return story

    [of_waits, late] = (said(told(), name) for name in ("synchronization", "late-work"))
    assert of_waits.saving_ns < 1_000 * US < 19 * 900 * US < late.saving_ns


@pytest.mark.slow
@pytest.mark.parametrize("early", [0, 1])
def test_the_profiler_works_within_a_launch(early, said):
    """The kernel begins when the call returns, or 1 before: for 5000 the profiler kept the call from launching it."""
    story = Story()
    story.launch_us, story.early = 5_002, early
    with story.op("train"):
        for _ in range(10):
            story.profiled(5_000)
            story.kernel(us=100)
    # Launches of 2 from 1 on; without the profiler the GPU has one kernel after the other from the first launch on.
    run, better = 1 + 10 * 5_002 - early + 100, 1 + 2 - early + 10 * 100
    assert said(story, "profiler-overhead").saving_ns == (run - better) * US


# -- Files


@pytest.mark.slow
@pytest.mark.parametrize(("us", "estimated"), [(30_000, True), (30_001, False)])
def test_code_behind_a_file_is_that_of_the_file_if_it_is_no_longer(us, estimated, said):
    story = Story()
    story.system("read", 30_000)
    story.rest(us)
    with story.op("work"):
        for _ in range(20):
            story.kernel(us=50)
    finding = said(story, "paid-once")
    assert finding.saving_ns == (
        (30_000 + us) * US * 9 // 10 if estimated else 30_000 * US * 9 // 10
    )


# -- Pipelines


def in_parts(parts: int) -> Story:
    """Three steps, in each of which one GPU hands two kernels on to the next one so many times."""
    story = Story(gpus=2)
    story.device = 1
    story.kernel(us=10, stream=8)
    story.wait("cudaDeviceSynchronize_v3020")
    for number in range(3):
        with story.op(f"step {number}"):
            done = [story.now + 3, story.now]
            for part in range(parts):
                for device, stream in ((0, 7), (1, 8)):
                    story.device, story.done = device, max(done[:: 1 if device else 2])
                    if device:
                        story.event_wait(8, 10 * number + part + 1, 7)
                    for _ in range(2):
                        story.kernel(us=100, stream=stream)
                    done[device] = story.done
            story.done = max(done)
            story.wait("cudaDeviceSynchronize_v3020")
    return story


@pytest.mark.slow
def test_a_stage_waits_a_quarter_as_long_with_four_times_as_many_parts(said):
    """A batch in two parts has one micro-batch for each of two GPUs: four would leave a quarter of each wait."""
    finding = said(in_parts(2), "pipeline-bubble")
    assert {name: finding.figures[name] for name in ("gpus", "handovers", "batches", "more")} == {
        "gpus": 2, "handovers": 6, "batches": 2, "more": 8,
    }  # fmt: skip
    # In each step the second GPU waits from its first launch, 10 after that of the first GPU, until 203 after it; for the
    # second part it waits for nothing.
    assert finding.saving_ns == 3 * 193 * US * 3 // 4


@pytest.mark.slow
def test_a_batch_of_two_tensors_is_handed_on_once(said):
    """The second GPU waits for both: as long as for one, from its launch, which is 4 later."""
    one, two = (said(handed_on(2, tensors=count), "pipeline-bubble") for count in (1, 2))
    assert (one.figures["batches"], two.figures["batches"]) == (1, 1)
    assert two.figures["waited_ns"] == one.figures["waited_ns"] - 4 * 4 * US
    assert two.saving_ns == two.figures["waited_ns"] * 7 // 8


@pytest.mark.slow
def test_a_batch_in_enough_parts_is_left_as_it_is(said):
    assert said(in_parts(4), "pipeline-bubble") is None


@pytest.mark.slow
def test_at_most_no_stage_waits_for_another(said):
    """Nor the first one: all begin when they are launched, 12 after the GPU before, rather than 400."""
    finding = said(handed_on(2, begun=False), "pipeline-bubble")
    assert finding.ceiling_ns == 4 * 388 * US


# -- One kernel


def of_shares(main: int, *others: int, rest: int = 0) -> Story:
    """Kernels one after the other, for all of which the host waits, and then rests."""
    story = Story()
    with story.op("work"):
        for _ in range(20):
            for number, us in enumerate((main, *others)):
                story.kernel(f"kernel{number}", us)
            story.wait()
            story.rest(rest)
    return story


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "fires"),
    [
        (of_shares(100, 60, 60, 60, 60, 60), True),
        (of_shares(99, 60, 60, 60, 60, 60), False),
        (
            of_shares(100, rest=896),
            True,
        ),  # 20 of 2 + 20 * 999, as a launch takes 2 and a wait ends 1 later
        (of_shares(100, rest=897), False),
    ],
)
def test_a_hotspot_is_a_quarter_of_all_work_and_a_tenth_of_the_run(story, fires, said):
    assert (said(story, "kernel-hotspot") is not None) == fires


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "main"),
    [
        (of_shares(100, 50, 50), True),
        (of_shares(99, 50, 50), False),
        (of_shares(100, rest=15), True),  # 20 * 100 of 20 * 100 + 19 * 18
        (of_shares(100, rest=16), False),
    ],
)
def test_it_is_what_matters_most_with_half_of_the_work_of_a_busy_gpu(story, main, said):
    assert said(story, "kernel-hotspot").is_named == main


@pytest.mark.slow
@pytest.mark.parametrize(("pauses", "repeated"), [((1, 3, 5), 3), ((3, 5), 1), ((1, 3), 2)])
def test_a_pause_behind_the_last_iteration_is_one_of_those_within(pauses, repeated, said):
    """If two of those are as long: else it is what happens once."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            story.wait()
        if number in pauses:
            story.rest(5_000)
    story.wait()
    finding = said(story, "host-bound")
    assert finding.figures["host_ns"] // (5_000 * US) == repeated


@pytest.mark.slow
def test_pauses_of_another_thread_say_nothing_of_what_happens_behind_iterations(said):
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            story.wait()
    story.rest(5_000)
    story.call("cudaGetDevice_v3020")
    with story.beside(2, 100):
        for _ in range(3):
            with story.op("log metrics"):
                story.rest(5)
            story.rest(3_000)
    assert said(story, "host-bound") is None


# -- Files of several threads


@pytest.mark.slow
@pytest.mark.parametrize("early", [0, 2, 5])
def test_the_last_file_of_each_thread_is_written_before_the_run_ends(early, said):
    """Six steps that each write for 5000 behind a copy, and a second thread that writes once, for 600."""
    story = Story()

    def save(us: int) -> None:
        with story.op("save"):
            held = story.done + 410 - story.now
            story.copy(400, way=TO_HOST, size=8_000_000, api="cudaMemcpy_v3020", held=held)
            story.system("write", us)

    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            save(5_000)
            if number == early:
                with story.beside(2, story.now):
                    story.kernel("side", us=10)
                    save(600)
                    story.kernel("side", us=10)
            story.kernel("check", us=10)
        story.now = max(story.now, story.done)
    finding = said(story, "checkpoint")
    assert finding.figures["memcpys"] == 7
    # The five other files and copies go, and about all of the second thread's; the last file of 5000 stays.
    assert 5 * 5_000 * US < finding.saving_ns < (5 * 5_410 + 2_000) * US


# -- A GPU that two processes share


def shared_by_two(*, event: bool) -> Story:
    """Rounds of 300: a kernel of another process for 50, then one of 40 and in another stream one of 205.

    With ``event`` the latter waits for the one of 40; else it begins as late by chance.
    """
    story = Story()
    story.tables["processes"].append({"process": process(200), "name": story.string("other")})

    def kernel(name: str, start: int, us: int, stream: int, launched: int) -> None:
        story.now, story.done = launched, start
        story.kernel(name, us=us, stream=stream)

    for pid in (200, 100):
        story.pid = pid
        for n in range(20):
            at, launched = 1_000 + 300 * n, 20 * n
            if pid == 200:
                kernel("other", at, 50, 7, launched)
                continue
            kernel("first", at + 50, 40, 7, launched)
            if event:
                story.event_wait(8, 10 + n, 7)
            kernel("second", at + 90, 205, 8, launched + 10)
        story.now, story.done = 500, 7_000
        story.call("cudaDeviceSynchronize_v3020", 6_300 + (pid == 100))
    return story


@pytest.mark.slow
@pytest.mark.parametrize("event", [True, False])
def test_a_shared_gpu_keeps_its_times_when_nothing_changes(event, tmp_path):
    run = Run.of(shared_by_two(event=event).load(tmp_path).attributed)
    assert len(run.shared)
    assert run.span_of(interventions.nothing) == run.span
    if event:
        first = np.flatnonzero(run.work.end - run.work.start == 40 * US)
        assert run.span - run.span_of(interventions.faster_work(run, first, 0.5)) == 20 * 20 * US


# -- Loaders that were recorded


def with_loader(us: int, *, late: int | None = None, copies: bool = False) -> Story:
    """Ten steps, each of which waits for a batch and then computes for 1000, while another thread loads.

    A batch takes so long. With ``late`` the loader waits until a batch is asked for, and begins so much later; else it
    loads one batch after the other. A wait ends 2 after its batch is there. In the end the loader goes on.
    """
    story, loaded, asked = Story(), 0, 0
    for number in range(11):
        with story.beside(2, loaded):
            if late is not None and number:
                story.system("pthread_cond_wait", asked + late - loaded)
            with story.op("decode"):
                story.rest(us - 2)
                if copies and number:  # 1 MB while kernels run, as another stream does
                    done, now, story.done, story.now = story.done, story.now, 0, loaded + 10
                    story.copy(2, size=1_000_000)
                    story.done, story.now = done, now
            loaded = story.now
        if number == 10:
            return story
        with story.op(f"step {number}"):
            with story.op(WORKERS):
                story.system("poll", loaded + 2 - story.now)
            with story.op("train"):
                for _ in range(10):
                    story.kernel(us=100)
        story.now = story.done
        asked = story.now + 2
    return story


# A step goes on for 1 to leave the op, 1 to begin another and 2 of launch, and 1000 of kernels, after which the next one
# begins two ops: 1004 and 2. A batch that is there ends a wait after 2: steps of 1008 that begin with the first batch.
@pytest.mark.slow
def test_loaders_that_always_load_should_be_four_times_as_many(said):
    """Batches of 3000, which all steps but the first wait for; then batches of 750, which they need not wait for."""
    finding = said(with_loader(3_000), "data-loading")
    assert finding.saving_ns == ((3_002 + 9 * 3_000) - (3_002 + 9 * 1_008)) * US


@pytest.mark.slow
def test_at_most_the_first_batch_is_there_at_once_too(said):
    finding = said(with_loader(3_000), "data-loading")
    assert finding.ceiling_ns == ((3_002 + 9 * 3_000) - (4 + 9 * 1_008)) * US


@pytest.mark.slow
def test_a_quarter_of_the_loading_may_still_be_waited_for(said):
    """Batches of 8000, then of 2000."""
    finding = said(with_loader(8_000), "data-loading")
    assert finding.saving_ns == 9 * (8_000 - 2_000) * US


@pytest.mark.slow
@pytest.mark.parametrize(
    "late",
    [
        100,  # after it was asked: nobody knows what ends the wait of the loader
        2,
    ],
)  # fmt: skip
def test_loaders_that_wait_should_be_further_ahead(late, said):
    """Batches of 1000 that are loaded when they are asked for: each step but the first waits for 1002 and what is late."""
    finding = said(with_loader(1_000, late=late), "data-loading")
    assert finding.saving_ns == 9 * (1_006 + late + 1_000 + 2 - 1_008) * US


@pytest.mark.slow
@pytest.mark.parametrize("copies", [False, True], ids=["loads", "copies, too"])
def test_what_recorded_loaders_do_is_loading_of_data(copies, tmp_path):
    """Also in ops whose name does not say so: all of the first batch, and what later ones take longer than the GPU's 1006.

    Nobody waits for the last batch.
    """
    table = with_loader(3_000, copies=copies).load(tmp_path).by("idle")
    here = table[table["op"] == "decode"]
    times = dict(zip(here["cause"], here["total_ns"], strict=True))
    assert times == {"data loading": (3_000 + 9 * 1_994) * US, "host code": 1_994 * US}


# -- Code that is loaded


@pytest.mark.slow
def test_code_before_a_module_is_loaded_makes_it(said):
    """In three of six steps 500 of code and 200 of the call, and 1 to end the step before and 1 to begin one."""

    def story(call: str) -> Story:
        result = Story()
        for number in range(6):
            with result.op(f"step {number}"):
                if number >= 3:
                    result.rest(500)
                    result.call(call, 200)
                for _ in range(10):
                    result.kernel(us=100)
                result.wait()
        return result

    finding = said(story("cuModuleLoadData"), "recompilation")
    assert finding.figures["host_ns"] == finding.saving_ns == finding.ceiling_ns == 3 * 702 * US
    assert said(story("cuModuleLoadData"), "host-bound") is None
    assert said(story("cudaGetDeviceProperties"), "recompilation") is None


@pytest.mark.slow
def test_code_of_an_op_is_of_that_op(said):
    """An op of 500 before the call of 200: loading are that one and the ends of the step before and of this one."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            if number >= 3:
                with story.op("tokenize"):
                    story.rest(498)
                story.call("cuModuleLoadData", 200)
            for _ in range(10):
                story.kernel(us=100)
            story.wait()
    assert said(story, "recompilation").saving_ns == 3 * 202 * US


@pytest.mark.slow
def test_code_before_an_op_that_loads_code_is_not_loading(said):
    """The call is a part of the op, which is no compilation by its name."""
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            if number >= 3:
                story.rest(500)
                with story.op("forward"):
                    story.call("cuModuleLoadData", 200)
                    story.kernel(us=100)
            for _ in range(10):
                story.kernel(us=100)
            story.wait()
    assert said(story, "recompilation") is None
