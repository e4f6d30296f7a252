"""Maps, epilogues, scales in weights, transposes, attention, rows."""
import numpy as np
from onnxc.passes.absorb_transposes import absorb_transposes
from onnxc.passes.eliminate_dead import eliminate_dead
from onnxc.passes.fold_affine import fold_affine
from onnxc.passes.fuse_attention import fuse_attention
from onnxc.passes.fuse_epilogues import fuse_epilogues
from onnxc.passes.fuse_maps import fuse_maps
from onnxc.passes.fuse_rows import fuse_rows
from pass_text import TARGET, becomes, stays

from onnxc import interpret
from onnxc.text import parse


def then_clean(step):
    return lambda graph, target: eliminate_dead(step(graph, target), target)


def test_a_chain_becomes_one_map():
    becomes(then_clean(fuse_maps), """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }""", """graph g(%x: float32[n], %y: float32[n]) {
        %1 = map(%y, %x) { add(exp($1), $0) }
        return %1
    }""")


def test_what_is_dear_and_read_twice_is_stored():
    stays(then_clean(fuse_maps), """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %y) { add($0, $1) }
        %2 = map(%0, %y) { mul($0, $1) }
        return %1, %2
    }""")


def test_what_is_computed_for_fewer_elements_is_stored():
    stays(then_clean(fuse_maps), """graph g(%x: float32[c, 1], %y: float32[c, n]) {
        %0 = map(%x) { sqrt($0) }
        %1 = map(%y, %0) { div($0, $1) }
        return %1
    }""")


def test_an_index_does_not_enter_a_map_of_another_shape():
    stays(then_clean(fuse_maps), """graph g(%x: float32[b, n]) {
        %0 = map() { cast(index(0), float32) } shape=(n)
        %1 = map(%x, %0) { add($0, $1) }
        return %1
    }""")


def test_a_broadcast_vanishes_where_the_other_operand_gives_the_shape():
    becomes(then_clean(fuse_maps), """graph g(%x: float32[1, n], %y: float32[b, n]) {
        %0 = broadcast(%x) shape=(b, n)
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }""", """graph g(%x: float32[1, n], %y: float32[b, n]) {
        %1 = map(%x, %y) { add($0, $1) }
        return %1
    }""")


def test_a_map_becomes_an_epilogue():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3], %b: float32[8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = map(%0, %b) { max(add($0, $1), 0.0) }
        return %1
    }""",
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3], %b: float32[8, 1, 1]) {
        %1 = conv(%x, %k, %b) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) epilogue={ max(add($0, $1),
        0.0) } return %1
    }""",
    )


def test_of_two_convolutions_the_later_one_adds():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1], %m: float32[8, 8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %1 = conv(%x, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1], %m: float32[8, 8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = conv(%x, %m, %0) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) epilogue={ add($1, $0) }
        return %2
    }""",
    )


def test_a_result_that_is_read_twice_keeps_its_map():
    stays(fuse_epilogues, """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %1 = map(%0) { max($0, 0.0) }
        return %0, %1
    }""")


BATCH_NORM = """graph g(%x: float32[1, 3, 5, 5]) {
    %k = constant float32[4, 3, 3, 3] #k
    %s = constant float32[4, 1, 1] #s
    %t = constant float32[4, 1, 1] #t
    %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
    %1 = map(%0, %s, %t) { let t0 = sub(mul($0, $1), $2); mul(t0, sigmoid(t0)) }
    return %1
}"""


def constants():
    rng = np.random.default_rng(0)
    shapes = {"k": (4, 3, 3, 3), "s": (4, 1, 1), "t": (4, 1, 1)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_channel_scale_moves_into_the_weights():
    text = BATCH_NORM.replace(
        "let t0 = sub(mul($0, $1), $2); mul(t0, sigmoid(t0))", "max(sub(mul($0, $1), $2), 0.0)"
    )
    graph = parse(text, constants())
    found = eliminate_dead(fold_affine(graph, TARGET), TARGET)
    assert [str(n.op.body) for n in found.nodes if hasattr(n.op, "body")] == ["max(add($0, $1), 0.0)"]
    x = np.random.default_rng(1).standard_normal((1, 3, 5, 5)).astype(np.float32)
    (before,), (after,) = interpret.run_graph(graph, [x]), interpret.run_graph(found, [x])
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def test_a_transposed_operand_is_a_change_of_labels():
    becomes(then_clean(absorb_transposes), """graph g(%x: float32[b, s, 12, 64], %y: float32[b, 12, 64, t]) {
        %0 = transpose(%x) perm=(0, 2, 1, 3)
        %1 = contract(%0, %y) lhs=bhqd rhs=bhdk out=bhqk accumulate=float32
        return %1
    }""", """graph g(%x: float32[b, s, 12, 64], %y: float32[b, 12, 64, t]) {
        %1 = contract(%x, %y) lhs=bqhd rhs=bhdk out=bhqk accumulate=float32
        return %1
    }""")


def test_a_result_is_permuted_where_its_innermost_axis_stays():
    becomes(then_clean(absorb_transposes), """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {
        %0 = contract(%x, %y) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        return %1
    }""", """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {
        %1 = contract(%x, %y) lhs=bhqk rhs=bhke out=bqhe accumulate=float32
        return %1
    }""")


ATTENTION = """graph g(%q: float32[b, s, 4, 8], %k: float32[b, t, 4, 8], %v: float32[b, t, 4, 16],
                        %mask: bool[b, 1, 1, t]) {
    %0 = contract(%q, %k) lhs=bqhd rhs=bkhd out=bhqk accumulate=float32
    %1 = map(%0, %mask) { SCORES }
    %2 = reduce(%1) kind=max axes=(3) keepdims=true
    %3 = map(%1, %2) { exp(sub($0, $1)) }
    %4 = reduce(%3) kind=sum axes=(3) keepdims=true
    %5 = map(%3, %4) { div($0, $1) }
    %6 = contract(%5, %v) lhs=xyqk rhs=xkye out=xqye accumulate=float32
    return %6
}"""


def test_attention_is_found_behind_a_scale_and_a_mask():
    becomes(then_clean(fuse_attention), ATTENTION.replace("SCORES", "select($1, mul($0, 0.5), -inf:float32)"),
            """graph g(%q: float32[b, s, 4, 8], %k: float32[b, t, 4, 8], %v: float32[b, t, 4, 16], %mask:
            bool[b, 1, 1, t]) {
        %0 = map(%mask) { select($0, 0.0:float32, -inf:float32) }
        %1 = attention(%q, %k, %v, %0) scale=0.5 q=aqbd k=akbd v=akbe out=aqbe
        return %1
    }""")


def test_scores_that_are_not_scaled_alone_are_no_attention():
    stays(then_clean(fuse_attention), ATTENTION.replace("SCORES", "select($1, tanh($0), -inf:float32)"))


def test_softmax_becomes_a_group_of_rows():
    becomes(fuse_rows, """graph g(%x: float32[b, n]) {
        %0 = reduce(%x) kind=max axes=(1) keepdims=true
        %1 = map(%x, %0) { exp(sub($0, $1)) }
        %2 = reduce(%1) kind=sum axes=(1) keepdims=true
        %3 = map(%1, %2) { div($0, $1) }
        return %3
    }""", """graph g(%x: float32[b, n]) {
        %3 = fused(%x) kind=rows region=(%9: float32[b, n]) {
            %0 = reduce(%9) kind=max axes=(1) keepdims=true
            %1 = map(%9, %0) { exp(sub($0, $1)) }
            %2 = reduce(%1) kind=sum axes=(1) keepdims=true
            %3 = map(%1, %2) { div($0, $1) }
            return %3
        }
        return %3
    }""")


def test_a_reduction_alone_is_no_group():
    stays(fuse_rows, """graph g(%x: float32[b, n]) {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%0) { div($0, 3.0) }
        return %1
    }""")


def test_what_depends_on_a_group_from_outside_does_not_join_it():
    graph = parse("""graph g(%x: float32[n, n]) {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%x, %0) { sub($0, $1) }
        %2 = transpose(%1) perm=(1, 0)
        %3 = map(%1, %2) { add($0, $1) }
        return %3
    }""")
    found = fuse_rows(graph, TARGET)
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert [type(n.op).__name__ for n in found.nodes] == ["Fused", "Transpose", "Map"]
    np.testing.assert_array_equal(interpret.run_graph(found, [x])[0], interpret.run_graph(graph, [x])[0])
