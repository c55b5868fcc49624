"""Call ids: the payload by which all slices of one call are known as one.

The invariant: the top 16 bits are those of CALL_ID_BASE ("NB"), by which an importer tells an id
from a user's payload.
"""

from collections.abc import Callable
from itertools import count

CALL_ID_BITS = 48
CALL_ID_BASE = 0x4E42 << CALL_ID_BITS

# Returns an id that no other call of this process has; only a forked child repeats some.
new: Callable[[], int] = count(CALL_ID_BASE + 1).__next__
