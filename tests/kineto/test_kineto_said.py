"""What traces of PyTorch say of collectives and of synchronizations, in the columns that bridge has for it."""

from __future__ import annotations

import json

import made

from bridge import importers

NO_STREAM = 2**32 - 1  # CUPTI's CUPTI_SYNCHRONIZATION_INVALID_VALUE


def loaded(folder, *events):
    return importers.load(made.write(folder / "t.json", made.trace([*made.small(), *events])))


def test_what_is_said_of_a_collective_is_kept_as_details_of_its_call(tmp_path):
    said = {"Collective name": "allreduce", "Group size": 8, "dtype": "Float", "Process Group Ranks": "[0, 1]"}  # fmt: skip
    call = made.op("record_param_comms", "100.000", "5.000")
    call["args"] |= {**said, "Fwd thread id": 0}
    report = loaded(tmp_path, call)
    [details] = report.ranges["json"][report.ranges["name"] == "record_param_comms"]
    assert json.loads(details) == said


def test_types_of_inputs_stand_beside_what_is_said_of_a_collective(tmp_path):
    call = made.op("c10d::allreduce_", "100.000", "5.000")
    call["args"] |= {"Input type": ["float", ""], "In msg nelems": 1024}
    report = loaded(tmp_path, call)
    [details] = report.ranges["json"][report.ranges["name"] == "c10d::allreduce_"]
    assert json.loads(details) == {"dtypes": ["float", ""], "In msg nelems": 1024}


def test_a_synchronization_of_no_stream_or_event_names_none(tmp_path):
    def sync(kind, ts, **said):
        found = made.event("cuda_sync", kind, ts, "1.000", pid=0, tid=7, device=0, context=1)
        found["args"] |= {"cuda_sync_kind": kind, **said}
        return found

    waits = loaded(
        tmp_path,
        sync("Context Sync", "100.000", stream=NO_STREAM, wait_on_cuda_event_id=NO_STREAM),
        sync("Event Sync", "110.000", stream=NO_STREAM, wait_on_cuda_event_id=12),
        sync("Stream Wait Event", "120.000", stream=20, wait_on_cuda_event_id=13),
    ).waits
    assert waits["kind"].tolist() == ["context", "event", "stream_wait"]
    assert waits["stream"].tolist() == [-1, -1, 20]
    assert waits["event"].tolist() == [-1, 12, 13]
