"""Energy of GPUs: samples while the program runs, from which reports tell the energy of each op.

    bridge.power.start()    # every 50 ms, of all GPUs of the machine
    …
    bridge.power.stop()

This is the public path of `bridge.annotate.power`; see docs/counters.md#energy-per-op.
"""

from bridge.annotate.power import start, stop

__all__ = ["start", "stop"]
