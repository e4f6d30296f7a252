"""group_heads: keys and values that repeat for the heads of a group are read as they are before."""

import numpy as np
import pytest
from support.pass_text import agrees, array, becomes, clean, ops, stays

from onnxc.ir.ops import Map
from onnxc.ir.text_parser import parse
from onnxc.passes.group_heads import group_heads

GROUPED = """graph g(%q: float32[b, 8, s, 16], %k: float32[b, 2, t, 16], %v: float32[b, 2, t, 24],
                     %m: MASK) {
    %k1 = reshape(%k) shape=(b, 2, 1, t, 16)
    %k2 = broadcast(%k1) shape=(b, 2, 4, t, 16)
    %k3 = reshape(%k2) shape=(b, 8, t, 16)
    %v1 = reshape(%v) shape=(b, 2, 1, t, 24)
    %v2 = broadcast(%v1) shape=(b, 2, 4, t, 24)
    %v3 = reshape(%v2) shape=(b, 8, t, 24)
    %y = attention(%q, %k3, %v3, %m) scale=0.25
    return %y
}"""


def of_mask(shape, text=GROUPED):
    return text.replace("MASK", f"float32[{shape}]")


def grouped(text, mask, **sizes):
    """What the pass makes of the text, after a comparison of the results."""
    random, (b, s, t) = np.random.default_rng(1), (2, 3, 5)
    shapes = ((b, 8, s, 16), (b, 2, t, 16), (b, 2, t, 24), mask)
    inputs = [array(random, "float32", shape) for shape in shapes]
    return agrees(clean(group_heads), text, inputs=inputs, tolerance=2e-6, b=b, s=s, t=t, **sizes)


def test_heads_of_a_group_share_keys_and_values():
    becomes(
        clean(group_heads),
        of_mask("b, 1, s, t"),
        """graph g(%q: float32[b, 8, s, 16], %k: float32[b, 2, t, 16], %v: float32[b, 2, t, 24],
                   %m: float32[b, 1, s, t]) {
            %k1 = reshape(%k) shape=(b, 2, 1, t, 16)
            %v1 = reshape(%v) shape=(b, 2, 1, t, 24)
            %0 = reshape(%q) shape=(b, 2, 4, s, 16)
            %1 = reshape(%m) shape=(b, 1, 1, s, t)
            %2 = reshape(%k1) shape=(b, 2, t, 16)
            %3 = reshape(%v1) shape=(b, 2, t, 24)
            %4 = attention(%0, %2, %3, %1) scale=0.25 q=bhaqd k=bhkd v=bhke out=bhaqe
            %y = reshape(%4) shape=(b, 8, s, 24)
            return %y
        }""",
    )


@pytest.mark.parametrize("mask", [(2, 1, 3, 5), (2, 8, 3, 5), (8, 1, 5), (3, 5), (5,)])
def test_masks_of_any_shape_mean_the_same(mask):
    shape = ", ".join(map(str, mask))
    assert "Broadcast" not in ops(grouped(of_mask(shape), mask))


def test_keys_may_be_transposed_behind_the_repetition():
    turned = GROUPED.replace(
        "%k3 = reshape(%k2) shape=(b, 8, t, 16)", "%k3 = reshape(%kt) shape=(b, 8, 16, t)"
    )
    turned = turned.replace("%k3 =", "%kt = transpose(%k2) perm=(0, 1, 2, 4, 3)\n    %k3 =")
    turned = turned.replace("scale=0.25", "scale=0.25 q=bhqd k=bhdk v=bhke out=bhqe")
    found = grouped(of_mask("2, 1, 3, 5", turned), (2, 1, 3, 5))
    assert not {"Broadcast", "Transpose"} & set(ops(found))


def test_groups_may_come_after_their_heads():
    """As a Tile writes them: head h reads the keys h % 2."""
    tiled = GROUPED.replace("(b, 2, 1, t,", "(b, 1, 2, t,").replace("(b, 2, 4, t,", "(b, 4, 2, t,")
    assert "Broadcast" not in ops(grouped(of_mask("2, 8, 3, 5", tiled), (2, 8, 3, 5)))


def test_numbers_that_are_widened_behind_the_repetition_are_widened_once():
    halves = GROUPED.replace("%k: float32", "%k: float16")
    halves = halves.replace("%k3 =", "%kw = map(%k2) { cast($0, float32) }\n    %k3 =")
    halves = halves.replace("reshape(%k2)", "reshape(%kw)")
    found = clean(group_heads)(parse(of_mask("b, 1, s, t", halves)))
    assert "Broadcast" not in ops(found)
    (widened,) = (node for node in found.nodes if isinstance(node.op, Map))
    assert str(widened.outputs[0].type) == "float32[b, 2, t, 16]"


def test_heads_stay_as_they_are_where_keys_and_values_do_not_repeat_alike():
    other = GROUPED.replace("(b, 2, 1, t, 24)", "(b, 1, 2, t, 24)")
    stays(clean(group_heads), of_mask("b, 1, s, t", other.replace("(b, 2, 4, t, 24)", "(b, 4, 2, t, 24)")))


def test_heads_stay_as_they_are_where_only_keys_repeat():
    stays(
        clean(group_heads),
        """graph g(%q: float32[b, 8, s, 16], %k: float32[b, 2, 1, t, 16], %v: float32[b, 8, t, 24]) {
            %k2 = broadcast(%k) shape=(b, 2, 4, t, 16)
            %k3 = reshape(%k2) shape=(b, 8, t, 16)
            %y = attention(%q, %k3, %v) scale=0.25
            return %y
        }""",
    )


def test_heads_stay_as_they_are_where_only_the_run_knows_how_many_masks_there_are():
    stays(clean(group_heads), of_mask("b, h, s, t"))


def test_what_differs_from_head_to_head_repeats_before():
    """A Map may know which head a number is of."""
    shifted = GROUPED.replace("%k3 =", "%ki = map(%k2) { add($0, cast(index(2), float32)) }\n    %k3 =")
    stays(clean(group_heads), of_mask("b, 1, s, t", shifted.replace("reshape(%k2)", "reshape(%ki)")))
