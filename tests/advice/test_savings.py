"""Savings and ceilings of small programs, counted by hand; and what bounds them all."""

from __future__ import annotations

import pytest

from advice.rules import FIRES, FP16, FP32
from advice.story import PAGEABLE, PINNED, TO_HOST, US, Story
from bridge.analyze.checks.advice import RULES, Finding
from bridge.report import Report


def found(story: Story, name: str, folder) -> Finding:
    [one] = story.load(folder).advise([name], 0).advice
    return one.finding


@pytest.mark.slow
def test_a_wait_costs_the_gap_after_it(tmp_path):
    """Three kernels of 100 µs; the host waits, rests 40 µs and takes 2 to launch: two gaps of 43."""
    story = Story()
    for _ in range(3):
        story.kernel(us=100)
        story.wait()  # ends 1 µs after the kernel
        story.rest(40)
    finding = found(story, "synchronization", tmp_path)
    assert finding.figures["waits"] == 3
    assert finding.figures["idle_ns"] == finding.ceiling_ns == finding.saving_ns == 86 * US


@pytest.mark.slow
def test_a_short_wait_gains_no_more_than_it_took(tmp_path):
    """The host comes 10 µs before the kernel's end and then rests for 500: it could only have been 11 µs earlier."""
    story = Story()
    story.kernel(us=100)
    story.rest(90)
    story.wait()
    story.rest(500)
    story.kernel(us=100)
    finding = found(story, "synchronization", tmp_path)
    assert finding.figures["idle_ns"] == (1 + 500 + 2) * US
    assert finding.ceiling_ns == finding.saving_ns == 11 * US


def test_pinned_memory_is_as_fast_as_the_reports_own(tmp_path):
    """4 MB take 100 µs from pageable memory and 40 from pinned memory: 60 of each of three copies."""
    story = Story()
    for _ in range(3):
        story.copy(100, host=PAGEABLE)
    story.copy(40, host=PINNED)
    finding = found(story, "pageable-memcpys", tmp_path)
    assert finding.saving_ns == 3 * 60 * US
    assert finding.ceiling_ns == 3 * 100 * US
    assert finding.figures["moved_bytes"] == 12_000_000


@pytest.mark.slow
def test_no_speed_of_pinned_memory_no_estimate(tmp_path):
    """Copies of pinned memory the other way tell nothing of this one."""
    story = Story()
    story.copy(100, host=PAGEABLE)
    story.copy(40, host=PINNED, way=TO_HOST)
    finding = found(story, "pageable-memcpys", tmp_path)
    assert (finding.saving_ns, finding.ceiling_ns) == (-1, 100 * US)


@pytest.mark.slow
def test_loading_costs_what_the_gpu_was_idle_in_it(tmp_path):
    """Of 1000 µs of loading the GPU works for 300 more: it is idle in 700, twice. The first is before all work."""
    story = Story()
    for _ in range(3):
        with story.op("DataLoader: data loading"):
            story.rest(998)  # 1000 with its own two
        with story.op("train"):
            story.rest(9)
            story.kernel(us=300)
    finding = found(story, "data-loading", tmp_path)
    assert finding.figures["loading_ns"] == finding.ceiling_ns == 3 * 1_000 * US
    # A kernel ends 299 µs after the op train does, which is when loading begins.
    assert finding.saving_ns == 2 * (1_000 - 299) * US


@pytest.mark.slow
def test_a_cuda_graph_leaves_its_own_gaps(tmp_path):
    """99 gaps of 22 µs before kernels of 5: a graph would leave 1.5 each."""
    story = Story()
    with story.op("many"):
        for _ in range(100):
            story.kernel(us=5)
            story.now = story.done + 20
    finding = found(story, "launch-bound", tmp_path)
    assert finding.ceiling_ns == 99 * 22 * US
    assert finding.saving_ns == 99 * 20_500


def test_of_two_gpus_the_one_with_most_counts(tmp_path):
    story = Story(gpus=2)
    for device, copies in ((0, 1), (1, 3)):
        story.device, story.done = device, 0
        for _ in range(copies):
            story.copy(100, host=PAGEABLE)
    finding = found(story, "pageable-memcpys", tmp_path)
    assert finding.figures["memcpys"] == 4
    assert finding.ceiling_ns == 3 * 100 * US


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
def test_kernels_that_run_at_once_save_no_more_than_the_gpu_was_busy(tmp_path):
    """Ten products of 1000 µs, side by side: the GPU is busy for little more than one of them."""
    story = Story()
    for stream in range(10):
        with story.op("aten::mm"):
            story.done = 0
            story.kernel(FP32, 1_000, stream=stream)
    finding = found(story, "single-precision", tmp_path)
    assert finding.ceiling_ns == (1_000 + 9 * 4) * US
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
def test_loading_between_steps_counts_for_them(tmp_path):
    """Of steps 2 to 4 alone: the two times of loading between them, though no step holds these."""
    story = Story()
    for number in range(6):
        with story.op("DataLoader: data loading"):
            story.rest(998)
        with story.op(f"step {number}"):
            story.kernel(us=100)
        story.now = story.done
    joined = story.load(tmp_path).within(steps=(2, 4))
    advised = joined.advise(worth=0)
    [one] = [one for one in advised.advice if one.rule.name == "data-loading"]
    assert one.finding.figures["loading_ns"] == 2 * 1_000 * US
    assert one.finding.saving_ns == 2 * 1_000 * US
    assert all(one.finding.ceiling_ns <= advised.wall_ns for one in advised.advice)
