"""What a program prints of its throughput is found in the forms that programs use, and nothing else is taken for it."""

import pytest

from bridge.importers.program_rates import rate_text


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Throughput: 59.19 samples/second\n", "59.19 samples/s"),
        (
            "{'avg_time_ms': 26.2, 'throughput_samples_per_sec': 152.3244019266648, 'status': 'ok'}",
            "152.3 samples/s",
        ),
        ("step 10: 1.2k tokens per sec\nstep 20: 1.4k tokens per sec\n", "1.4k tokens/s"),
        ("[  ] 8/6019, 8.8 task/s, elapsed: 1s, ETA: 682s", "8.8 task/s"),
        ("images/s: 1,234", "1,234 images/s"),
        ("tokens_per_second=12", "12 tokens/s"),
        ("v2.tokens/s", ""),
        ("12 samples in 3 s", ""),
        ("lr 0.1 loss 2.3 time 0.5 s", ""),
        ("", ""),
    ],
)
def test_the_last_rate_is_found(output: str, expected: str) -> None:
    assert rate_text(output) == expected
