"""Which ranges are counted where one direction is asked for."""

from witness.attribution import Range

from join.trainings import training

PROCESS = 7 << 24


def test_ranges_of_the_other_direction_are_not_counted():
    def ran(thread, start, end, text):
        return Range(0, PROCESS, PROCESS | thread, start, end, ""), text

    joined = training(
        [
            ran(1, 0, 9, "a"),
            ran(1, 1, 5, "aten::mm, seq = 1, op_id = 3"),
            ran(2, 20, 30, "MmBackward0, seq = 1"),
        ]
    ).attributed()
    assert joined.counted_ranges.tolist() == [True, True, True]
    assert joined.only("forward").counted_ranges.tolist() == [True, True, False]
    assert joined.only("backward").counted_ranges.tolist() == [False, False, True]
    assert joined.only("backward").listed_ranges.tolist() == [False, False, True]
