"""Copies between views: what of the caches they go through."""

import pytest

from onnxc.codegen.nests.nest import View, run_through


@pytest.mark.parametrize(
    ("strides", "sizes", "nbytes"),
    [
        ((64, 4), (10, 16), 640),  # whole rows, one after the other
        ((64, 4), (10, 8), 640),  # half of each line
        ((256, 4), (10, 8), 640),  # a line of each row
        ((256, 4), (10, 20), 1280),  # two lines of each row
        ((4, 4096), (10, 3), 192),  # pieces of less than a line
        ((4096, 64), (3, 10), 1920),  # elements of a line each
        ((0, 4), (10, 16), 64),  # what repeats goes through them once
    ],
)
def test_of_what_lies_apart_whole_lines_go_through_the_caches(strides, sizes, nbytes):
    assert run_through(View("input", 0, "float32", strides), sizes) == nbytes
