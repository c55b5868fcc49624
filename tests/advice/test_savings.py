"""Savings and ceilings of small programs, counted by hand; and what bounds them all."""

from __future__ import annotations

import pytest
from critical.machine import Machine

from advice.rules import FIRES, FP16, FP32, NCCL, annotated, loading
from advice.story import PAGEABLE, PINNED, TO_DEVICE, TO_HOST, US, Story
from bridge.analyze.checks.advice import RULES, Finding
from bridge.report import Report


def found(story: Story, name: str, folder) -> Finding:
    [one] = story.load(folder).advise([name], 0).advice
    return one.finding


@pytest.mark.slow
def test_a_short_wait_gains_no_more_than_it_took(tmp_path):
    """The host comes 10 µs before the kernel's end and then rests for 500: it could only have been 11 µs earlier."""
    story = Story()
    for _ in range(3):
        story.kernel(us=100)
        story.rest(90)
        story.wait()
        story.rest(500)
    story.kernel(us=100)
    finding = found(story, "synchronization", tmp_path)
    assert finding.figures["waits"] == 3
    assert finding.figures["waited_ns"] == 3 * 11 * US
    assert finding.ceiling_ns == finding.saving_ns == 3 * 11 * US


@pytest.mark.slow
def test_a_wait_for_a_value_that_was_copied_is_a_limit_alone(tmp_path):
    """The program may need at once what it copied: nobody knows whether it can go on without."""
    story = Story()
    for _ in range(3):
        story.kernel(us=100)
        story.copy(20, way=TO_HOST)
        story.kernel(us=10)
        story.wait()
        story.rest(50)
    story.kernel(us=100)
    finding = found(story, "synchronization", tmp_path)
    # Each round 2 of launch, 130 of work, 1 until the wait ends, and 50 of rest; without the waits work alone.
    assert finding.ceiling_ns == (3 * 183 + 102 - (2 + 3 * 130 + 100)) * US
    assert finding.saving_ns == -1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "saving"),
    [(TO_DEVICE, 3 * (1_000 - 200 - 1.2)), (TO_HOST, 3 * (1_000 - 333.333 - 1.2))],
)
def test_pinned_memory_is_as_fast_as_the_reports_own(way, saving, tmp_path):
    """4 MB take 1000 µs from pageable memory and 200 from pinned memory: copies the other way tell nothing of it."""
    story = Story()
    for _ in range(3):
        story.copy(1_000, host=PAGEABLE)
    story.copy(200, host=PINNED, way=way)
    finding = found(story, "pageable-memcpys", tmp_path)
    assert finding.saving_ns == pytest.approx(saving * US, abs=3)
    assert finding.figures["moved_bytes"] == 12_000_000


@pytest.mark.slow
def test_loading_saves_what_the_gpu_was_idle_in_it(tmp_path):
    """Loading takes 1000 µs, five times, the first of them before all work; kernels of 300 run beside the others."""
    story = Story()
    for _ in range(5):
        with story.op("DataLoader: data loading"):
            story.rest(998)  # 1000 with its own two
        with story.op("train"):
            story.kernel(us=300)
    finding = found(story, "single-process-loader", tmp_path)
    # A tenth stays, 100; then the GPU has one kernel after the other.
    assert finding.saving_ns == (5 * 1_004 - 1 + 300 - (100 + 3 + 5 * 300)) * US
    assert finding.ceiling_ns == (5 * 1_004 - 1 + 300 - (3 + 5 * 300)) * US


@pytest.mark.slow
def test_host_code_is_not_blamed_for_what_its_annotations_cost(tmp_path):
    """Of 992 µs of an op between two waits 20 are the inner sides of its range's ends, at 40 µs for a range."""
    for us, left in ((0, 992), (40, 972)):
        slow = found(annotated(us), "host-bound", tmp_path)
        assert slow.figures["host_ns"] == slow.ceiling_ns == 4 * left * US
        assert slow.saving_ns == 4 * left * US * 9 // 10
        (tmp_path / "story.sqlite").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("latency", [0, 3])
def test_a_cuda_graph_leaves_its_own_gaps(latency, tmp_path):
    """100 kernels of 5 µs, which begin some time after their launch: in a graph at most 1 after one another."""
    story = Story()
    with story.op("many"):
        for _ in range(100):
            story.done = story.now + 2 + latency
            story.kernel(us=5)
            story.now = story.done + 20
    finding = found(story, "launch-bound", tmp_path)
    run = 1 + 100 * (2 + latency + 5 + 20) + 1
    as_graph = 0.05 + 100 * (5 + min(latency, 1))
    assert finding.saving_ns == round((run - as_graph) * US)


def test_of_two_gpus_the_one_that_works_longest_counts(tmp_path):
    """A copy on one GPU, three on the other: what is saved on the first one saves nothing."""
    story = Story(gpus=2)
    for device, copies in ((0, 1), (1, 3)):
        story.device, story.done = device, 0
        for _ in range(copies):
            story.copy(1_000, host=PAGEABLE)
    finding = found(story, "pageable-memcpys", tmp_path)
    assert finding.figures["memcpys"] == 4
    assert finding.saving_ns == pytest.approx(3 * (1_000 - 333.333 - 1.2) * US, abs=3)


@pytest.mark.slow
@pytest.mark.parametrize("own_stream", [False, True])
def test_communication_on_a_stream_of_its_own_has_a_limit_alone(own_stream, tmp_path):
    """It runs beside kernels already, as far as its data allow."""
    story = Story()
    for _ in range(10):
        story.kernel(us=100)
        for _ in range(2):
            story.kernel(NCCL, 30, stream=20 if own_stream else 7)
    finding = found(story, "exposed-communication", tmp_path)
    assert finding.saving_ns == (-1 if own_stream else 10 * 30 * US)


@pytest.mark.slow
def test_small_grids_leave_multiprocessors_empty(tmp_path):
    """27 blocks on 108 multiprocessors: three quarters have none."""
    story = Story()
    story.kernel(us=100, blocks=27)
    finding = found(story, "small-grids", tmp_path)
    assert finding.figures["empty_share"] == pytest.approx(0.75)
    assert (finding.saving_ns, finding.ceiling_ns) == (-1, 75 * US)


def judged(joined: Report):
    advised = joined.advise(worth=0)
    return [(one, advised.wall_ns) for one in advised.advice]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIRES))
def test_nothing_saves_more_than_its_ceiling_nor_than_the_run(name, tmp_path):
    for one, wall_ns in judged(FIRES[name]().load(tmp_path)):
        finding = one.finding
        assert -1 <= finding.saving_ns <= max(finding.ceiling_ns, -1), one.rule.name
        assert finding.ceiling_ns <= wall_ns, one.rule.name
        assert (finding.saving_ns == -1) or one.rule.estimate != "none"


def test_rules_that_estimate_nothing_say_so():
    assert {rule.name for rule in RULES if rule.estimate == "none"} >= {
        "low-gpu-use",
        "small-grids",
    }


@pytest.mark.slow
def test_patterns_say_what_they_take_of_the_host_and_of_the_gpu(tmp_path):
    """Three gradients, each 4 µs of the host and 20 of the GPU, which is idle for 2 before the first of each step."""
    story = Story()
    story.kernel(us=10)
    with story.op("Optimizer.zero_grad#SGD.zero_grad"):
        for _ in range(3):
            with story.op("aten::zero_"):
                story.fill(20)
    finding = found(story, "gradients-set-to-zero", tmp_path)
    assert finding.figures == {"calls": 3, "host_ns": 12 * US, "work_ns": 60 * US}
    assert finding.evidence["total_ns"].tolist() == [12 * US]
    assert finding.evidence["path"].tolist() == ["Optimizer.zero_grad#SGD.zero_grad/aten::zero_"]
    assert finding.saving_ns == finding.ceiling_ns == 60 * US


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_neighbours_are_under_one_range(apart, tmp_path):
    """A convolution that ends one block and a norm that begins the next do not follow one another."""
    story = Story()
    convolution = "aten::conv2d, op_id = 1, sizes = [[8, 3, 32, 32], [64, 3, 3, 3], [64]]"
    norm = "aten::batch_norm, op_id = 2, sizes = [[8, 64, 32, 32], [64]]"
    with story.op("block"):
        with story.op(convolution):
            story.kernel(us=100)
        if not apart:
            with story.op(norm):
                story.kernel(us=50)
    with story.op("next"):
        if apart:
            with story.op(norm):
                story.kernel(us=50)
        story.kernel(us=5)
    assert len(story.load(tmp_path).advise(["bias-before-norm"], 0).advice) == (not apart)


@pytest.mark.slow
def test_kernels_that_run_at_once_save_no_more_than_the_run_waits_for_them(tmp_path):
    """Ten products of 1000 µs, side by side: half of one is saved, and at most all but the launches."""
    story = Story()
    for stream in range(10):
        with story.op("aten::mm"):
            story.done = 0
            story.kernel(FP32, 1_000, stream=stream)
    finding = found(story, "single-precision", tmp_path)
    assert finding.saving_ns == 500 * US
    assert finding.ceiling_ns == (3 + 9 * 4 + 1_000 - 10 * 4) * US
    assert finding.figures["time_share"] == pytest.approx(1)


@pytest.mark.slow
def test_names_that_do_not_tell_are_no_advice(tmp_path):
    """A kernel of Triton may use Tensor Cores: nothing is said of an op that it has most time in."""
    story = Story()
    with story.op("aten::scaled_dot_product_attention"):
        story.kernel("_attn_fwd", 100)
    with story.op("aten::mm"):
        story.kernel(FP32, 50)
    assert not story.load(tmp_path).advise(["no-tensor-cores"], 0).advice


@pytest.mark.slow
def test_a_product_in_a_range_called_half_is_no_cast(tmp_path):
    story = Story()
    with story.op("half"):
        story.kernel(FP16, 100)
    assert not story.load(tmp_path).advise(["casts"], 0).advice


@pytest.mark.slow
def test_a_part_of_the_run_saves_no_more_than_it_lasts(tmp_path):
    """Of steps 2 to 4 alone, each of which loads for 2002."""
    advised = loading(2_000).load(tmp_path).within(steps=(2, 4)).advise(["data-loading"], 0)
    [one] = advised.advice
    assert advised.wall_ns == 3 * 3_007 * US
    assert one.finding.figures["host_ns"] == 3 * 2_002 * US
    assert one.finding.saving_ns <= one.finding.ceiling_ns <= 3 * 2_002 * US


TRAINING = [
    ("launch", "forward", 5, 4, 7, 1, 60),
    ("sync", "wait", 7, 3),
    ("code", "log", 30),
]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["synchronization", "host-bound"])
def test_the_saving_is_that_of_the_program_without_it(rule):
    """A machine of known costs runs the program with and without the wait, or with a tenth of the code."""
    run = Machine().run([(TRAINING, [])] * 8)
    changed = {
        "synchronization": [TRAINING[0], TRAINING[2]],
        "host-bound": [*TRAINING[:2], ("code", "log", 3)],
    }[rule]
    last = TRAINING if rule == "synchronization" else changed  # the last wait ends with all work
    better = Machine().run([(changed, [])] * 7 + [(last, [])])
    advised = Report(run.records.attributed()).advise([rule], 0)
    [one] = advised.advice
    assert one.finding.saving_ns == run.span - better.span > 0
