"""sink_reshapes: Maps come before the squeeze behind a convolution, whose epilogue they can then become."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir.ops import Map
from onnxc.passes.fuse_epilogues import fuse_epilogues
from onnxc.passes.sink_reshapes import sink_reshapes

SIGNAL = """graph g(%x: float32[b, 2, n + 2, 1], %k: float32[3, 2, 3, 1], %c: float32[3, 1],
                     %r: float32[b, 3, n], %z: float32[2, 1, 1, 1]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %1 = reshape(%0) shape=(b, 3, n)
    %2 = map(%1, %c, %r) { BODY }
    return RESULTS
}"""
HEAD = SIGNAL[: SIGNAL.index("%1 =")]


def signal(body="tanh(add($0, $1))", results="%2"):
    return SIGNAL.replace("BODY", body).replace("RESULTS", results)


def test_a_map_of_a_squeezed_signal_comes_before_the_squeeze():
    becomes(
        clean(sink_reshapes),
        signal().replace("map(%1, %c, %r)", "map(%1, %c)"),
        HEAD
        + """
        %1 = reshape(%c) shape=(1, 3, 1, 1)
        %2 = map(%0, %1) { tanh(add($0, $1)) }
        %3 = reshape(%2) shape=(b, 3, n)
        return %3
    }""",
    )


def test_it_becomes_the_epilogue_of_the_convolution():
    graph = agrees(clean(sink_reshapes), signal("add(tanh(add($0, $1)), $2)"), b=2, n=3)
    assert ops(fuse_epilogues(graph)) == ["Reshape", "Reshape", "Conv", "Reshape"]


def test_constants_get_their_axes_when_they_are_written():
    text = signal().replace("%c: float32[3, 1],", "")
    text = text.replace("%0 = conv", "%c = constant float32[3, 1] #c %0 = conv")
    graph = agrees(clean(sink_reshapes), text, {"c": np.arange(3, dtype=np.float32).reshape(3, 1)}, b=2, n=3)
    operand = next(node for node in graph.nodes if type(node.op).__name__ == "Map").inputs[1]
    assert operand.constant.array.shape == (1, 3, 1, 1)


def test_maps_follow_each_other():
    text = signal("add($0, $1)", "%3").replace("return", "%3 = map(%2) { exp($0) } return")
    found = agrees(clean(sink_reshapes), text, b=2, n=3)
    assert ops(found)[-1] == "Reshape"


VOLUMES = """graph g(%x: float32[b, 2, d * h, 4], %k: float32[3, 2, 1, 1], %c: float32[3, 1, 1, 1],
                      %r: float32[b, 3, d, h, 4], %p: float32[d, 1, 1]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %1 = reshape(%0) shape=(b, 3, d, h, 4)
    %2 = map(%1, %c, %r) { tanh(add(add($0, $1), $2)) }
    %3 = reshape(%2) shape=(b, 3, d * h, 4)
    return %3
}"""


def test_a_map_of_images_whose_axes_were_split_comes_before_that():
    graph = agrees(clean(sink_reshapes), VOLUMES, b=2, d=3, h=5)
    assert ops(graph) == ["Conv", "Reshape", "Reshape", "Map"]


FRAMES = """graph g(%x: float32[b * d, 2, h, 4], %k: float32[3, 2, 1, 1], %c: float32[3, 1, 1, 1]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %1 = reshape(%0) shape=(b, d, 3, h, 4)
    %2 = transpose(%1) perm=(0, 2, 1, 3, 4)
    %3 = map(%2, %c) { tanh(add($0, $1)) }
    return %3
}"""


def test_a_bias_of_moved_volumes_is_added_before_they_move():
    graph = agrees(clean(sink_reshapes), FRAMES, b=2, d=3, h=5)
    assert ops(graph) == ["Conv", "Reshape", "Map", "Reshape", "Transpose"]


SHORTCUT = FRAMES.replace("%c: float32[3, 1, 1, 1])", "%c: float32[3, 1, 1, 1], %r: float32[b, 3, d, h, 4])")
SHORTCUT = SHORTCUT.replace(
    "map(%2, %c) { tanh(add($0, $1)) }", "map(%2, %c, %r) { tanh(add(add($0, $1), $2)) }"
)


def test_volumes_that_are_added_are_images_where_somebody_reads_them_so():
    text = SHORTCUT.replace("return %3", "%4 = transpose(%r) perm=(0, 2, 1, 3, 4) return %3, %4")
    graph = agrees(clean(sink_reshapes), text, b=2, d=3, h=5)
    assert ops(graph)[:4] == ["Conv", "Reshape", "Transpose", "Reshape"]
    (fused,) = (n for n in graph.nodes if isinstance(n.op, Map))
    assert [type(v.node.op).__name__ for v in fused.inputs] == ["Conv", "Reshape", "Reshape"]


def test_volumes_that_nobody_reads_as_images_stay():
    stays(clean(sink_reshapes), SHORTCUT)


def test_what_differs_along_one_of_the_axes_stays():
    stays(clean(sink_reshapes), VOLUMES.replace("%c, %r)", "%p, %r)"))


@pytest.mark.parametrize("results", ["%2, %1", "%2, %0"])
def test_a_signal_that_others_read_stays(results):
    stays(clean(sink_reshapes), signal(results=results))


def test_a_map_that_knows_its_place_stays():
    stays(clean(sink_reshapes), signal("add($0, cast(index(2), float32))"))


def test_a_map_of_a_larger_shape_stays():
    stays(clean(sink_reshapes), signal("add($0, $1)").replace("map(%1, %c, %r)", "map(%1, %z)"))


def test_a_reshape_that_joins_axes_stays():
    text = signal("exp($0)").replace("shape=(b, 3, n)", "shape=(b, 3*n)")
    stays(clean(sink_reshapes), text.replace("map(%1, %c, %r)", "map(%1)"))


def test_what_is_no_convolution_stays():
    stays(
        clean(sink_reshapes),
        """graph g(%x: float32[b, 3, n, 1]) {
        %1 = reshape(%x) shape=(b, 3, n)
        %2 = map(%1) { exp($0) }
        return %2
    }""",
    )


def test_a_map_of_a_reshaped_map_comes_before_the_reshape():
    text = """graph g(%x: float32[n, 8], %y: float32[n, 8]) {
        %0 = map(%x, %y) { add($0, $1) }
        %1 = reshape(%0) shape=(8*n)
        %2 = map(%1) { exp($0) }
        return %2
    }"""
    becomes(
        clean(sink_reshapes),
        text,
        """graph g(%x: float32[n, 8], %y: float32[n, 8]) {
        %0 = map(%x, %y) { add($0, $1) }
        %1 = map(%0) { exp($0) }
        %2 = reshape(%1) shape=(8*n)
        return %2
    }""",
    )
    agrees(clean(sink_reshapes), text, n=3)


def test_a_map_with_other_operands_of_the_new_shape_stays():
    stays(
        clean(sink_reshapes),
        """graph g(%x: float32[n, 8], %y: float32[8*n]) {
        %0 = map(%x) { neg($0) }
        %1 = reshape(%0) shape=(8*n)
        %2 = map(%1, %y) { add($0, $1) }
        return %2
    }""",
    )


@pytest.mark.parametrize("b, n", [(0, 3), (1, 1), (2, 0), (3, 4)])
def test_elements_stay_where_they_are(b, n):
    agrees(clean(sink_reshapes), signal("mul(add($0, $1), $2)"), b=b, n=n)


SEQUENCE = """graph g(%x: float32[n, 2, 3, 4], %k: float32[5, 2, 1, 1], %s: float32[]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    MIDDLE
    return RESULTS
}"""
MOVED = """%1 = transpose(%0) perm=(0, 2, 3, 1)
    %2 = reshape(%1) shape=(n, 12, 5)
    %3 = map(%2, %s) { tanh(mul($0, $1)) }"""


def sequence(middle=MOVED, results="%3"):
    return SEQUENCE.replace("MIDDLE", middle).replace("RESULTS", results)


def test_a_map_of_a_sequence_of_pixels_comes_before_it_is_one():
    becomes(
        clean(sink_reshapes),
        sequence(),
        sequence(
            """%1 = map(%0, %s) { tanh(mul($0, $1)) }
    %2 = transpose(%1) perm=(0, 2, 3, 1)
    %3 = reshape(%2) shape=(n, 12, 5)"""
        ),
    )


@pytest.mark.parametrize("others", ["%3, %0", "%3, %1", "%3, %2"])
def test_what_others_read_of_a_sequence_stays(others):
    stays(clean(sink_reshapes), sequence(results=others))


def test_a_map_that_reads_more_than_the_sequence_stays():
    text = sequence(MOVED.replace("%2, %s", "%2, %v")).replace("%s: float32[]", "%v: float32[5]")
    stays(clean(sink_reshapes), text)


SHUFFLED = """graph g(%x: float32[1, 2, 5, 6], %k: float32[16, 2, 1, 1], %c: float32[4, 1, 1]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %1 = reshape(%0) shape=(1, 4, 2, 2, 5, 6)
    %2 = transpose(%1) perm=(0, 1, 4, 2, 5, 3)
    %3 = reshape(%2) shape=(1, 4, 10, 12)
    %4 = map(%3, %c) { mul($0, $1) }
    return %4
}"""


def test_numbers_of_channels_that_pixels_became_stay():
    stays(clean(sink_reshapes), SHUFFLED)
