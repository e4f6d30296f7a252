"""pool_channels_last: pools of images whose channels are last, where they lie."""

import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.passes.pool_channels_last import pool_channels_last

WINDOW = "kernel=(3, 2) strides=(2, 1) pads=(1, 0, 1, 1) dilations=(1, 1)"


def network(kind="max", back="0, 2, 3, 1", there="0, 3, 1, 2", after="", returned="%2"):
    return f"""graph g(%x: float32[2, h, 6, 5]) {{
        %0 = transpose(%x) perm=({there})
        %1 = pool(%0) kind={kind} {WINDOW} sizes=((h-1)//2+1, 6)
        %2 = transpose(%1) perm=({back})
        {after}
        return {returned}
    }}"""


@pytest.mark.parametrize("kind", ("max", "sum", "mean"))
def test_channels_stay_last(kind):
    found = agrees(clean(pool_channels_last), network(kind), h=7)
    assert ops(found) == ["Reshape", "Pool", "Reshape"]


def test_what_is_transposed_otherwise_or_counts_places_or_is_read_twice_stays():
    stays(clean(pool_channels_last), network("argmax"))
    stays(clean(pool_channels_last), network(back="0, 3, 2, 1"))
    stays(clean(pool_channels_last), network(returned="%2, %1"))


def test_a_transpose_before_alone_stays():
    stays(
        clean(pool_channels_last),
        f"""graph g(%x: float32[2, 7, 6, 5]) {{
        %0 = transpose(%x) perm=(0, 3, 1, 2)
        %1 = pool(%0) kind=max {WINDOW} sizes=(4, 6)
        return %1
    }}""",
    )
