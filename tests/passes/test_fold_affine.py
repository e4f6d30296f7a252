"""fold_affine: scales of channels move into the weights before them; what is left is a shift."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.ir.stored import half_weights
from onnxc.ir.text_parser import parse
from onnxc.passes.fold_affine import fold_affine
from onnxc.passes.fold_constants import fold_constants

CONVOLUTION = """graph g(%x: float32[b, 3, 5, 5], %y: float32[b, 4, 5, 5]) {
    %k = constant float32[4, 3, 3, 3] #k
    %s = constant float32[4, 1, 1] #s
    %t = constant float32[4, 1, 1] #t
    %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
    %1 = map(%0, %s, %t, %y) { BODY }
    return %1
}"""


def constants(**changed):
    random = np.random.default_rng(0)
    shapes = {"k": (4, 3, 3, 3), "s": (4, 1, 1), "t": (4, 1, 1)}
    found = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**found, **changed}


def bodies(graph):
    return [str(node.op.body) for node in graph.nodes if hasattr(node.op, "body")]


@pytest.mark.parametrize(
    "before, after",
    [
        ("max(sub(mul($0, $1), $2), 0.0)", "max(add($0, $1), 0.0)"),
        ("add(mul($0, $1), $2)", "add($0, $1)"),
        ("add($2, mul($1, $0))", "add($0, $1)"),
        ("add(mul(div(sub($0, $2), $1), 3.0), 1.0)", "add($0, $1)"),
        ("sub($2, $0)", "add($0, $1)"),
        ("neg($0)", "add($0, $1)"),
        ("max(min(mul($0, $1), 6.0), 0.0)", "max(min(add($0, $1), 6.0), 0.0)"),
        ("add(max(mul($0, $1), 0.0), $3)", "add(max(add($0, $2), 0.0), $1)"),
    ],
)
def test_a_scale_of_the_channels_moves_into_the_weights(before, after):
    found = agrees(clean(fold_affine), CONVOLUTION.replace("BODY", before), constants(), tolerance=2e-5, b=2)
    assert bodies(found) == [after]


def test_a_scale_that_the_activation_reads_twice_moves_into_the_weights():
    body = "t0 = sub(mul($0, $1), $2); mul(t0, min(max(add(t0, 3.0), 0.0), 6.0))"
    found = agrees(clean(fold_affine), CONVOLUTION.replace("BODY", body), constants(), tolerance=2e-4, b=2)
    assert bodies(found) == ["t0 = add($0, $1); mul(t0, min(max(add(t0, 3.0), 0.0), 6.0))"]


def test_both_scales_of_a_residual_addition_move_into_weights():
    data = constants(m=np.ones((4, 3, 1, 1), np.float32))
    found = agrees(
        clean(fold_affine),
        """graph g(%x: float32[b, 3, 5, 5]) {
        %k = constant float32[4, 3, 3, 3] #k
        %m = constant float32[4, 3, 1, 1] #m
        %s = constant float32[4, 1, 1] #s
        %t = constant float32[4, 1, 1] #t
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = conv(%x, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = map(%0, %1, %s, %t) { max(add(add(mul($0, $2), $3), sub(mul($1, $3), $2)), 0.0) }
        return %2
    }""",
        data,
        tolerance=2e-5,
        b=2,
    )
    assert bodies(found) == ["max(add(add($0, $2), add($1, $3)), 0.0)"]


@pytest.mark.parametrize(
    "body", ["mul(exp($0), $1)", "mul($0, $0)", "add(mul($0, $1), exp($0))", "mul($0, $3)", "div($1, $0)"]
)
def test_what_is_no_scale_of_the_channels_stays(body):
    stays(clean(fold_affine), CONVOLUTION.replace("BODY", body), constants())


def test_a_scale_that_is_not_finite_stays():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)")
    for number in (np.nan, np.inf):
        stays(clean(fold_affine), text, constants(s=np.full((4, 1, 1), number, np.float32)))


def test_a_scale_that_makes_infinities_of_weights_stays():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)")
    lowest = np.full((4, 1, 1), np.finfo(np.float32).min)
    stays(clean(fold_affine), text, constants(s=lowest))
    shift = CONVOLUTION.replace("BODY", "mul(add($0, $2), $1)")
    large = np.full((4, 1, 1), 1e30, np.float32)
    stays(clean(fold_affine), shift, constants(s=np.full((4, 1, 1), 1e10, np.float32), t=large))


def test_a_scale_that_makes_zeros_of_weights_stays():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)")
    small = np.array([1, 2, 1e-30, 3], np.float32).reshape(4, 1, 1)
    stays(clean(fold_affine), text, constants(s=small))


def test_a_scale_of_zero_moves_into_the_weights():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)")
    scale = np.array([1, 2, 0, 3], np.float32).reshape(4, 1, 1)
    found = agrees(clean(fold_affine), text, constants(s=scale), tolerance=2e-5, b=2)
    assert bodies(found) == ["add($0, $1)"]


def test_shifts_may_be_infinite():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)")
    found = clean(fold_affine)(parse(text, constants(t=np.full((4, 1, 1), -np.inf, np.float32))))
    assert bodies(found) == ["add($0, $1)"]


def test_a_result_that_others_read_stays():
    text = CONVOLUTION.replace("BODY", "add(mul($0, $1), $2)").replace("return %1", "return %0, %1")
    stays(clean(fold_affine), text, constants())


def test_a_scale_along_another_axis_stays():
    text = CONVOLUTION.replace("BODY", "mul($0, $1)").replace(
        "%s = constant float32[4, 1, 1]", "%s = constant float32[5, 1]"
    )
    stays(clean(fold_affine), text, constants(s=np.arange(5, dtype=np.float32).reshape(5, 1)))


def test_weights_that_the_run_tells_stay():
    stays(
        clean(fold_affine),
        """graph g(%x: float32[1, 3, 5, 5], %k: float32[4, 3, 3, 3]) {
        %s = constant float32[4, 1, 1] (1.0, 2.0, 3.0, 4.0)
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = map(%0, %s) { mul($0, $1) }
        return %1
    }""",
    )


def test_weights_of_half_precision_stay():
    stays(
        clean(fold_affine),
        """graph g(%x: float16[m, 2]) {
        %k = constant float16[2, 2] (1.0, 2.0, 3.0, 4.0)
        %s = constant float32[2] (1.0, 2.0)
        %0 = contract(%x, %k) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = map(%0, %s) { mul($0, $1) }
        return %1
    }""",
    )


def test_halves_of_a_convolution_stay_as_they_are_stored():
    found = agrees(
        lambda graph: clean(fold_affine)(fold_constants(graph)),
        """graph g(%x: float32[1, 2, 5]) {
        %w = constant float16[2, 2, 1] (1.0, 2.0, 3.0, 4.0)
        %s = constant float32[2, 1] (0.5, 2.0)
        %k = map(%w) { cast($0, float32) }
        %0 = conv(%x, %k) strides=(1) pads=(0, 0) dilations=(1)
        %1 = map(%0, %s) { mul($0, $1) }
        return %1
    }""",
    )
    assert half_weights(found.nodes[0].inputs[1].constant).dtype == "float16"


def test_weights_that_two_convolutions_share_are_scaled_for_one():
    found = agrees(
        clean(fold_affine),
        """graph g(%x: float32[m, 2], %y: float32[m, 2]) {
        %k = constant float32[2, 2] (1.0, 2.0, 3.0, 4.0)
        %s = constant float32[2] (0.5, 2.0)
        %0 = contract(%x, %k) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = contract(%y, %k) lhs=mk rhs=kn out=mn accumulate=float32
        %2 = map(%0, %s) { mul($0, $1) }
        return %1, %2
    }""",
        m=3,
    )
    assert bodies(found) == ["add($0, $1)"]


@pytest.mark.parametrize(
    "node, weights",
    [
        ("contract(%x, %k) lhs=mk rhs=kn out=mn accumulate=float32", (2, 6)),
        ("contract(%x, %k) lhs=mk rhs=nk out=mn accumulate=float32", (6, 2)),
    ],
)
def test_scales_of_a_product_move_into_the_axis_of_its_columns(node, weights):
    random = np.random.default_rng(0)
    data = {"k": random.standard_normal(weights).astype(np.float32), "s": np.arange(6, dtype=np.float32)}
    found = agrees(
        clean(fold_affine),
        f"""graph g(%x: float32[m, 2]) {{
        %k = constant float32[{weights[0]}, {weights[1]}] #k
        %s = constant float32[6] #s
        %0 = {node}
        %1 = map(%0, %s) {{ mul($0, $1) }}
        return %1
    }}""",
        data,
        tolerance=1e-6,
        m=3,
    )
    assert ops(found) == ["Contract", "Map"]
    assert bodies(found) == ["add($0, $1)"]


@pytest.mark.parametrize("groups", [1, 2])
def test_scales_of_a_transposed_convolution_move_into_the_axis_of_its_channels(groups):
    random = np.random.default_rng(0)
    data = {
        "k": random.standard_normal((4, 6 // groups, 2)).astype(np.float32),
        "s": np.arange(1, 7, dtype=np.float32).reshape(6, 1),
    }
    found = agrees(
        clean(fold_affine),
        f"""graph g(%x: float32[1, 4, 5]) {{
        %k = constant float32[4, {6 // groups}, 2] #k
        %s = constant float32[6, 1] #s
        %0 = conv(%x, %k) strides=(2) pads=(0, 0) dilations=(1) groups={groups} transposed=true
        %1 = map(%0, %s) {{ mul($0, $1) }}
        return %1
    }}""",
        data,
        tolerance=1e-5,
    )
    assert bodies(found) == ["add($0, $1)"]


def test_a_scale_of_the_rows_of_a_product_stays():
    stays(
        clean(fold_affine),
        """graph g(%x: float32[2, 2]) {
        %k = constant float32[2, 2] (1.0, 2.0, 3.0, 4.0)
        %s = constant float32[2, 1] (0.5, 2.0)
        %0 = contract(%x, %k) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = map(%0, %s) { mul($0, $1) }
        return %1
    }""",
    )


def test_a_scale_in_a_branch_moves_into_the_weights():
    found = agrees(
        clean(fold_affine),
        """graph g(%c: bool[], %x: float32[2, 2]) {
        %k = constant float32[2, 2] (1.0, 2.0, 3.0, 4.0)
        %s = constant float32[2] (0.5, 2.0)
        %0 = if(%c, %x) then=(%a: float32[2, 2]) {
            %1 = contract(%a, %k) lhs=mk rhs=kn out=mn accumulate=float32
            %2 = map(%1, %s) { mul($0, $1) }
            return %2
        } otherwise=(%a: float32[2, 2]) { return %a } : float32[2, 2]
        return %0
    }""",
        inputs=[np.array(True), np.ones((2, 2), np.float32)],
    )
    assert bodies(found.nodes[0].op.then) == ["add($0, $1)"]


def test_a_scalar_product_has_no_channels_to_scale():
    stays(
        clean(fold_affine),
        """graph g(%x: float32[3, 5]) {
        %0 = contract(%x, %x) lhs=ab rhs=ab out="" accumulate=float32
        %1 = map(%0) { mul($0, 2.0) }
        return %1
    }""",
    )
