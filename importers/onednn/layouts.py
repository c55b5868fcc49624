"""Which fields a line has: as the log's template says, or as the versions had them that print none.

A layout is the fields after the operation. Sources: the developer guides of oneDNN 1.1, 1.3, 2.4 and 3.x
(Verbose Mode), and logs of 0.19, 1.0, 1.3, 2.4 and 3.12.
"""

from __future__ import annotations

Layout = tuple[str, ...]

TIME = "exec_time"  # in ms
WITH_ATTRIBUTES: Layout = (  # since 1.2
    *("engine", "primitive", "implementation", "prop_kind", "memory_descriptors"),
    *("attributes", "auxiliary", "problem_desc", TIME),
)
WITH_ENGINE: Layout = tuple(f for f in WITH_ATTRIBUTES if f != "attributes")  # 1.0 and 1.1
FIRST: Layout = tuple(f for f in WITH_ENGINE if f != "engine")  # before 1.0
UNSAID = {len(layout): layout for layout in (WITH_ATTRIBUTES, WITH_ENGINE, FIRST)}

BEFORE = {"operation", "timestamp"}  # in a template, but no field of a layout
SAME = {"partition_kind": "primitive", "logical_tensors": "memory_descriptors"}  # in graph's


def layout(template: str, fields: int) -> Layout | None:
    """Return the layout of lines with so many fields, of which ``template`` tells ('' for none printed).

    A template of another number of fields is not theirs: a log may hold what several versions wrote. None where
    no version has so many.
    """
    told = tuple(SAME.get(f, f) for f in template.split(",") if f not in BEFORE)
    if len(told) == fields and told[-1] == TIME and "primitive" in told:
        return told
    return UNSAID.get(fields)
