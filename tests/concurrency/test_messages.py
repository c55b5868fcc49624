"""What names and details say of a collective."""

import json

import pytest

from bridge.analyze.run.concurrency.collective_names import Message, collective_of, parse_kernel
from bridge.analyze.run.concurrency.communication import (
    Details,
    bus_factor,
    collective_bytes,
    element_size,
    elements,
)


@pytest.mark.parametrize(
    ("name", "collective", "dtype", "algorithm"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)", "AllReduce", "f32", "ring"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_TREE_LL", "ReduceScatter", "bf16", "tree"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "AllGather", "", "ring"),
        ("ncclDevKernel_AllGatherV_RING_LL", "AllGatherV", "", "ring"),
        ("ncclDevKernel_Broadcast_RING_LL", "Broadcast", "", "ring"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "SendRecv", "", ""),
        ("ncclDevKernel_Reduce_Sum_u8_RING_LL", "Reduce", "u8", "ring"),
        ("ncclDevKernel_Generic(ncclDevComm*)", "", "", ""),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "AllReduce", "half", "ring"),
        ("ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16", "AllReduce", "__nv_bfloat16", "tree"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "SendRecv", "", ""),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "AllGather", "", "ring"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "AllReduce", "f32", "ring"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "Broadcast", "", "ring"),
    ],
)  # fmt: skip
def test_names_of_kernels(name, collective, dtype, algorithm):
    assert parse_kernel(name) == Message(collective, dtype, algorithm)


@pytest.mark.parametrize(
    ("text", "collective"),
    [
        ("nccl:all_to_all", "AllToAll"), ("nccl:_all_gather_base", "AllGather"), ("allreduce", "AllReduce"),
        ("nccl:_reduce_scatter_base", "ReduceScatter"), ("alltoallv", "AllToAll"), ("nccl:broadcast", "Broadcast"),
        ("gloo:reduce", "Reduce"), ("nccl:send 0->1", "Send"), ("nccl:barrier", "Barrier"), ("nccl:coalesced", ""),
    ],
)  # fmt: skip
def test_names_of_ops(text, collective):
    assert collective_of(text) == collective


@pytest.mark.parametrize(
    ("name", "size"),
    [("f32", 4), ("c10::Half", 2), ("long int", 8), ("BFloat16", 2), ("Byte", 1), ("f8e4m3", 1), ("complex", -1), ("", -1)],
)  # fmt: skip
def test_sizes_of_types(name, size):
    assert element_size(name) == size


def test_what_the_profiler_says_of_a_collective():
    text = json.dumps(
        {"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 80, "Group size": 8, "dtype": "BFloat16"}
    )  # fmt: skip
    said = Details.of(text, own=False)
    assert said == Details("AllGather", "bfloat16", 10, 80, 8)
    assert collective_bytes("AllGather", "", said) == 160  # what each has in the end
    assert collective_bytes("ReduceScatter", "", said) == 20  # what each has in the beginning
    assert collective_bytes("AllGather", "", Details("", "float", 10, -1, 8)) == 320
    assert collective_bytes("AllGather", "f32", Details("", "", 10, -1, -1)) == -1
    assert collective_bytes("AllReduce", "f32", Details("", "", 10)) == 40


def test_details_of_ours_count_for_the_collective_alone():
    text = '{"shapes": [[2, 3], [4], []], "dtypes": ["float32", "float32"]}'
    assert Details.of(text, own=False) is None
    assert Details.of(text, own=True) == Details("", "float32", 10)
    mixed = '{"shapes": [[2]], "dtypes": ["float32", "int64"]}'
    assert Details.of(mixed, own=True) == Details("", "", 2)


@pytest.mark.parametrize("text", ["", "{", '{"Group size": 8', '["Group size"]', '"Group size"'])
def test_other_texts_say_nothing(text):
    assert Details.of(text, own=True) is None


@pytest.mark.parametrize(
    ("shapes", "count"),
    [([[2, 3]], 6), ([[[2, 3], [4]]], 10), ([[]], -1), ([], -1), (None, -1), ([[2, None]], -1), ([2], 2)],
)  # fmt: skip
def test_elements(shapes, count):
    assert elements(shapes) == count


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [("AllReduce", 4, 1.5), ("AllGather", 4, 0.75), ("ReduceScatter", 8, 0.875), ("AllToAll", 2, 0.5),
     ("Broadcast", -1, 1), ("SendRecv", 2, 1), ("AllReduce", -1, -1), ("Barrier", 4, -1), ("AllReduce", 1, 0)],
)  # fmt: skip
def test_bandwidth_of_the_bus(collective, ranks, factor):
    assert bus_factor(collective, ranks) == factor
