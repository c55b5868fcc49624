"""Decoding of CUPTI's buffers: every version's layout, sizes that are learnt, records that are not read."""

from __future__ import annotations

import ctypes
import json
import platform
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bridge.capture.cupti import records
from bridge.capture.cupti.callbacks import BUFFER_BYTES, BUFFER_COUNT, NATIVE, Callbacks
from bridge.capture.cupti.records import LAYOUTS, Decoder

VERSIONS = json.loads((Path(__file__).parent / "layouts.json").read_text(encoding="utf-8"))
NAMED = {"u1": 1, "u2": 2, "u4": 4, "i4": 4, "u8": 8}
UNREAD = 11  # a kind that is not decoded
SIZES = {UNREAD: 32}


class Cupti:
    """Iterates over a buffer as CUPTI does, from the sizes of one version; counts the calls."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.calls = 0
        self.functions = SimpleNamespace(cuptiActivityGetNextRecord=self.following)

    def following(self, base, valid, reference) -> int:
        self.calls += 1
        record = reference._obj
        at = base.value
        if record.value is not None:
            kind = ctypes.c_uint32.from_address(record.value).value
            at = record.value + self.sizes[kind]
        if at >= base.value + valid.value:
            return 12
        record.value = at
        return 0


def sizes_of(version: dict) -> dict[int, int]:
    return {
        int(kind): fields["size"][0] for kind, fields in version.items() if kind != "version"
    } | SIZES


def written(version: dict, rows: list[tuple[int, dict[str, int]]]) -> ctypes.Array:
    """Write records by the offsets of NVIDIA's headers, with every other byte set."""
    sizes = sizes_of(version)
    data = bytearray()
    for kind, values in rows:
        record = bytearray(b"\xee" * sizes[kind])
        record[0:4] = kind.to_bytes(4, "little")
        for name, value in values.items():
            offset, size = version[str(kind)][name]
            record[offset : offset + size] = value.to_bytes(size, "little")
        data += record
    return (ctypes.c_uint8 * len(data)).from_buffer(data)


def rows_of(seed: int, count: int) -> list[tuple[int, dict[str, int]]]:
    """Draw records of all kinds, with all their fields."""
    random = np.random.default_rng(seed)
    kinds = random.choice([*LAYOUTS, UNREAD], count)
    return [
        (
            int(kind),
            {
                name: int(random.integers(0, 1 << (8 * NAMED[type_] - 1), dtype=np.uint64))
                for name, (type_, _) in LAYOUTS.get(int(kind), (0, {}))[1].items()
            },
        )
        for kind in kinds
    ]


def split(decoder: Decoder, buffer: ctypes.Array) -> dict[int, list[dict[str, int]]]:
    found = decoder.split(ctypes.addressof(buffer), len(buffer))
    return {
        kind: [dict(zip(rows.dtype.names, row, strict=True)) for row in rows.tolist()]
        for kind, rows in found.items()
    }


def expected(rows: list[tuple[int, dict[str, int]]]) -> dict[int, list[dict[str, int]]]:
    result: dict[int, list[dict[str, int]]] = {}
    for kind, values in rows:
        if kind in LAYOUTS:
            result.setdefault(kind, []).append(values)
    return result


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: str(version["version"]))
def test_the_layouts_are_those_of_every_version(version):
    for kind, (size, fields) in LAYOUTS.items():
        theirs = version[str(kind)]
        assert size <= theirs["size"][0], "a record would be read past its end"
        assert {n: [offset, NAMED[t]] for n, (t, offset) in fields.items()} == {
            n: place for n, place in theirs.items() if n != "size"
        }


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: str(version["version"]))
def test_records_are_decoded_with_the_sizes_of_every_version(version):
    cupti = Cupti(sizes_of(version))
    decoder = Decoder(cupti)
    rows = rows_of(version["version"], 300)
    assert split(decoder, written(version, rows)) == expected(rows)
    assert cupti.calls == 301, "the first buffer teaches the sizes"
    rows = rows_of(version["version"] + 1, 300)
    assert split(decoder, written(version, rows)) == expected(rows)
    assert cupti.calls == 301, "the second one needs CUPTI no more"


def test_an_empty_buffer_has_no_records():
    assert Decoder(Cupti(SIZES)).split(0, 0) == {}


def test_a_kind_that_comes_later_is_learnt_then():
    version = VERSIONS[-1]
    cupti, calls = Cupti(sizes_of(version)), [records.RUNTIME, records.DRIVER]
    decoder = Decoder(cupti)
    first = [row for row in rows_of(1, 200) if row[0] in calls]
    assert split(decoder, written(version, first)) == expected(first)
    asked = cupti.calls
    rows = rows_of(2, 200)
    assert split(decoder, written(version, rows)) == expected(rows)
    assert cupti.calls > asked


def test_a_size_that_changes_is_noticed_where_records_do_not_end_with_the_data():
    old, new = VERSIONS[0], VERSIONS[-1]
    kernels = [row for row in rows_of(3, 400) if row[0] == records.KERNEL]
    cupti = Cupti(sizes_of(old))
    decoder = Decoder(cupti)
    assert split(decoder, written(old, kernels)) == expected(kernels)
    cupti.sizes = sizes_of(new)
    assert split(decoder, written(new, kernels)) == expected(kernels)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_libraries_of_callbacks_are_of_their_source(machine):
    digest = sha256((NATIVE / "callbacks.c").read_bytes()).hexdigest()
    assert f"source:{digest}".encode() in (NATIVE / f"callbacks-{machine}.so").read_bytes()


def test_callbacks_pass_buffers_on():
    native = ctypes.CDLL(str(NATIVE / f"callbacks-{platform.machine()}.so"))
    own = Callbacks(native)
    native.bridge_begin(ctypes.c_uint64(BUFFER_BYTES), None, None, None)
    buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(7)
    taken = []
    for _ in range(BUFFER_COUNT + 1):
        native.bridge_request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        taken.append((buffer.value, size.value, most.value))
    assert len({address for address, _, _ in taken[:-1]}) == BUFFER_COUNT
    assert {(size, most) for _, size, most in taken[:-1]} == {(BUFFER_BYTES, 0)}
    assert taken[-1] == (None, 0, 0), "no buffer is left: CUPTI drops records"
    for number, (address, _, _) in enumerate(taken[:3]):
        native.bridge_complete(
            None,
            0,
            ctypes.c_void_p(address),
            ctypes.c_size_t(BUFFER_BYTES),
            ctypes.c_size_t(8 * number),
        )
    assert own.take() == [(address, 8 * number) for number, (address, _, _) in enumerate(taken[:3])]
    assert own.take() == []
    own.give(taken[0][0])
    native.bridge_request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
    assert buffer.value == taken[0][0]
