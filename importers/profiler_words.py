"""What messages of profilers tell: records that were lost, or that CUDA was not recorded as it should have been."""

from __future__ import annotations

import re

ABOUT_GPUS = re.compile(r"\bCUDA\b|\bCUPTI\b|\bGPU\b|\bdriver\b|\bkernels?\b", re.IGNORECASE)
OTHERS = re.compile(  # APIs and records that no table of GPU work rests on
    r"cudnn|cublas|os runtime|osrt|opengl|vulkan|direct ?x|dx1[12]|openmp|openacc|\bmpi\b|ucx|python|sampl|backtrace"
    r"|context switch|perf\b|etw|wddm|network|nic\b|ftrace|video|opencl|openxr|mmap",
    re.IGNORECASE,
)
LOST = re.compile(
    r"\b(?:dropped|lost|discarded|overflow\w*|overwritten|truncated|incomplete)\b|\bnot all\b",
    re.IGNORECASE,
)
NOTHING_LOST = re.compile(
    r"\bmight\b|\bmay\b|(?:dropped|lost|discarded|overwritten)\w*\s*[:=]\s*0\b"
    r"|\b(?:0|no)\s+(?:\w+\s+){0,3}(?:dropped|lost|discarded|overwritten)",
    re.IGNORECASE,
)
MERE_COUNT = re.compile(r"^Number of |\bcollected: *\t?\d")
NOT_STARTED = re.compile(
    r"might have not been started|\bnot supported\b|\bunsupported\b|\bfailed\b", re.IGNORECASE
)
NO_EVENTS = re.compile(r"\bCUDA\b.*\bnot\b|\bNo CUDA\b")


def tells_of_loss(text: str) -> bool:
    """Return whether a message says that records were lost; "might have been" says nothing."""
    if not LOST.search(text) or NOTHING_LOST.search(text):
        return False
    return bool(ABOUT_GPUS.search(text)) or not OTHERS.search(text)


def rank(text: str) -> int | None:
    """Return how much a message explains of GPU work that is missing, 0 for most; None if it explains nothing."""
    if tells_of_loss(text):
        return 0
    if not ABOUT_GPUS.search(text) or MERE_COUNT.search(text) or OTHERS.search(text):
        return None
    if NOT_STARTED.search(text):
        return 1
    return 2 if NO_EVENTS.search(text) else None
