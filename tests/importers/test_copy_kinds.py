"""Ways of copies: the numbers of CUPTI's CUpti_ActivityMemcpyKind, in the words that nsys prints."""

from __future__ import annotations

from join.plain_writer import COPIES, PID, write

from bridge.importers import load

WAYS = (
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array", "Array-to-Device",
    "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
)  # fmt: skip
UNIFIED = ("Unified Host-to-Device", "Unified Device-to-Host", "Unified Device-to-Device")


def test_a_copy_is_called_by_its_way_in_the_words_of_nsys(tmp_path):
    rows = [
        {"start": at, "end": at + 1, "globalPid": PID, "deviceId": 0, "copyKind": at, "bytes": 8}
        for at in range(len(WAYS + UNIFIED))
    ]
    found = load(write(tmp_path / "r.sqlite", {COPIES: rows})).activities
    assert found["copy_kind"].tolist() == list(range(14))
    assert found["name"].tolist() == [f"[CUDA memcpy {way}]" for way in WAYS + UNIFIED]
