"""What the CUDA driver of this process tells: contexts, and the GPUs that it sees. Nothing here loads or starts it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

NAME_BYTES, UUID_BYTES = 256, 16
ATTRIBUTES = {  # CUdevice_attribute
    "threads_per_block": 1, "shared_per_block": 8, "warp_size": 10, "registers_per_block": 12, "clock_khz": 13,
    "sm_count": 16, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38, "threads_per_sm": 39,
    "compute_major": 75, "compute_minor": 76, "shared_per_sm": 81, "registers_per_sm": 82, "blocks_per_sm": 106,
}  # fmt: skip


def loaded_driver() -> Any:
    """Return libcuda if this process has loaded it, else None."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):
        return None


def device_count(driver: Any) -> int:
    """Return the number of GPUs, 0 if the driver has not been started."""
    count = ctypes.c_int()
    return 0 if _failed(driver, "cuDeviceGetCount", ctypes.byref(count)) else count.value


def has_active_context(driver: Any) -> bool:
    """Return whether the program has used a GPU, by its primary contexts."""
    return any(_is_active(driver, number) for number in range(device_count(driver)))


def current_context() -> int | None:
    """Return the context of this thread, None if it has none."""
    driver, context = loaded_driver(), ctypes.c_void_p()
    if driver is None or _failed(driver, "cuCtxGetCurrent", ctypes.byref(context)):
        return None
    return context.value


def wait(contexts: Iterable[int]) -> None:
    """Wait for the work of contexts, and of all primary contexts."""
    driver = loaded_driver()
    if driver is None:
        return
    for number in range(device_count(driver)):
        if _is_active(driver, number):
            context = ctypes.c_void_p()
            if not _failed(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), number):
                _wait_for(driver, context.value)
                _failed(driver, "cuDevicePrimaryCtxRelease_v2", number)
    for created in contexts:
        _wait_for(driver, created)


def gpus() -> list[dict[str, Any]]:
    """Return the GPUs that this process sees, with the facts that CUPTI's records of devices have, and their UUIDs."""
    driver = loaded_driver()
    return [] if driver is None else [_gpu(driver, n) for n in range(device_count(driver))]


def _gpu(driver: Any, number: int) -> dict[str, Any]:
    name, uuid = ctypes.create_string_buffer(NAME_BYTES), ctypes.create_string_buffer(UUID_BYTES)
    memory, value = ctypes.c_size_t(), ctypes.c_int()
    fact: dict[str, Any] = {"gpu": number}
    if not _failed(driver, "cuDeviceGetName", name, NAME_BYTES, number):
        fact["name"] = name.value.decode(errors="replace")
    if not _failed(driver, "cuDeviceGetUuid_v2", uuid, number):  # of a MIG device its own
        fact["uuid"] = uuid.raw.hex()
    if not _failed(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), number):
        fact["memory_bytes"] = memory.value
    for key, attribute in ATTRIBUTES.items():
        if not _failed(driver, "cuDeviceGetAttribute", ctypes.byref(value), attribute, number):
            fact[key] = value.value
    return fact


def _is_active(driver: Any, number: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    references = ctypes.byref(flags), ctypes.byref(active)
    return not _failed(driver, "cuDevicePrimaryCtxGetState", number, *references) and bool(
        active.value
    )


def _wait_for(driver: Any, context: int | None) -> None:
    before = ctypes.c_void_p()
    if context and not _failed(driver, "cuCtxPushCurrent_v2", ctypes.c_void_p(context)):
        _failed(driver, "cuCtxSynchronize")
        _failed(driver, "cuCtxPopCurrent_v2", ctypes.byref(before))


def _failed(driver: Any, name: str, *arguments: Any) -> bool:
    """Call a function of the driver; return whether it failed or does not exist."""
    function = getattr(driver, name, None)
    return function is None or bool(function(*arguments))
