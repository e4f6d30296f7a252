"""How tiles of several widths cover a line."""

import pytest

from onnxc.codegen.tiles.blocked import left_to_narrower


def test_a_rest_goes_to_narrower_tiles_that_take_less_time_than_a_whole_one():
    widths = (14, 7, 3, 1)
    assert left_to_narrower(widths, [14, 7, 3, 1]) == [13, 6, 2, 0]
    assert left_to_narrower(widths, [15, 8, 4, 2]) == [11, 4, 1, 0]  # each begins and ends too
    assert left_to_narrower(widths, [14, 8, 7, 7]) == [7, 3, 0, 0]  # narrow ones wait for their sums


@pytest.mark.parametrize("begin", [0, 1, 5, 100])
def test_what_is_left_to_narrower_tiles_is_less_than_a_tile(begin):
    widths = (30, 15, 7, 3, 1)
    found = left_to_narrower(widths, [begin + width for width in widths])
    assert all(left < width for left, width in zip(found, widths))


def test_tiles_of_one_width_leave_nothing():
    assert left_to_narrower((13,), [1.0]) == [0]
