"""convolve_rows: a product of rows beside an image is a 1x1 convolution where the image is wider."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.ir.stored import half_weights, stored_weights
from onnxc.ir.text_parser import parse
from onnxc.passes.convolve_rows import convolve_rows
from onnxc.passes.fold_constants import fold_constants

SAME = "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)"


def network(inner=12, widened="%w", between="", image="%3", turned="%5", outputs=3, returned="%8"):
    """Rows of 4 channels, widened to `inner`, convolved as an image, and made `outputs` wide."""
    return f"""graph g(%x: float32[n, 30, 4]) {{
    %w = constant float32[4, {inner}] #w
    %b = constant float32[{inner}] #b
    %k = constant float32[{inner}, 1, 3, 3] #k
    %v = constant float32[{inner}, {outputs}] #v
    %0 = contract(%x, {widened}) lhs=amk rhs=kn out=amn accumulate=float32
    %1 = map(%0, %b) {{ add($0, $1) }}
    %2 = reshape(%1) shape=(n, 5, 6, {inner})
    %3 = transpose(%2) perm=(0, 3, 1, 2)
    {between}
    %4 = conv({image}, %k) {SAME} groups={inner}
    %5 = transpose(%4) perm=(0, 2, 3, 1)
    %6 = reshape({turned}) shape=(n, 30, {inner})
    %7 = map(%6) {{ max($0, 0.0) }}
    %8 = contract(%7, %v) lhs=amk rhs=kn out=amn accumulate=float32
    return {returned}
}}"""


def weights(inner=12, outputs=3, seed=5):
    rng = np.random.default_rng(seed)
    shapes = {"w": (4, inner), "b": (inner,), "k": (inner, 1, 3, 3), "v": (inner, outputs)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def transposed(graph):
    return [str(node.inputs[0].shape[1:]) for node in graph.nodes if type(node.op).__name__ == "Transpose"]


@pytest.mark.parametrize("n", [1, 3])
def test_rows_turn_where_they_are_narrow(n):
    found = agrees(clean(convolve_rows), network(), weights(), tolerance=1e-4, n=n)
    assert ops(found) == [
        *["Reshape", "Transpose", "Conv", "Map"],
        *["Conv", "Map", "Conv"],
        *["Transpose", "Reshape"],
    ]
    assert transposed(found) == ["(5, 6, 4)", "(3, 5, 6)"]


def test_weights_that_lie_the_other_way_round():
    text = network(widened="%wt").replace(
        "%w = constant float32[4, 12] #w", "%wt = constant float32[12, 4] #w"
    )
    text = text.replace("rhs=kn", "rhs=nk", 1)
    arrays = weights()
    found = agrees(clean(convolve_rows), text, arrays | {"w": arrays["w"].T.copy()}, tolerance=1e-4, n=2)
    assert ops(found).count("Conv") == 3


def test_a_product_as_wide_as_its_rows_stays():
    found = agrees(clean(convolve_rows), network(outputs=7), weights(outputs=7), tolerance=1e-4, n=2)
    assert ops(found)[-1] == "Contract"
    assert transposed(found) == ["(5, 6, 4)", "(12, 5, 6)"]


def stored(dtype, widened):
    """The network after its weights were folded, which are stored in a narrower type."""
    text = network().replace("%w = constant float32[4, 12] #w", f"%s = constant {dtype}[4, 12] #w")
    text = text.replace("%0 = contract(", f"%w = map(%s) {{ {widened} }}\n    %0 = contract(")
    arrays = weights()
    return fold_constants(parse(text, arrays | {"w": arrays["w"].astype(dtype)}))


def test_convolutions_read_halves_as_they_are_stored():
    found = clean(convolve_rows)(stored("float16", "cast($0, float32)"))
    conv = next(node for node in found.nodes if type(node.op).__name__ == "Conv")
    assert half_weights(conv.inputs[1].constant).dtype == "float16"


def test_products_read_bytes_as_they_are_stored():
    found = clean(convolve_rows)(stored("int8", "mul(cast($0, float32), 0.5)"))
    product = next(node for node in found.nodes if type(node.op).__name__ == "Contract")
    assert stored_weights(product.inputs[1].constant).elements.dtype == "int8"


def test_a_number_as_the_only_row_stays():
    text = """graph g(%x: float32[]) {
    %w = constant float32[1, 4] #w
    %0 = reshape(%x) shape=(1, 1)
    %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=float32
    return %1
}"""
    stays(clean(convolve_rows), text, {"w": np.ones((1, 4), np.float32)})


@pytest.mark.parametrize("labels", [("ab", "", ""), ("ab", "b", "a"), ("ab", "ab", "ab")])
def test_products_of_other_operands_stay(labels):
    left, right, out = labels
    axes = {"a": 3, "b": 4}
    text = f"""graph g(%x: float32[3, 4]) {{
    %w = constant float32[{", ".join(str(axes[label]) for label in right)}] #w
    %y = contract(%x, %w) lhs={left} rhs={right or '""'} out={out or '""'} accumulate=float32
    return %y
}}"""
    stays(clean(convolve_rows), text, {"w": np.ones([axes[label] for label in right], np.float32)})


def test_an_image_that_others_read_too_is_made_once():
    found = agrees(clean(convolve_rows), network(returned="%8, %3"), weights(), tolerance=1e-4, n=2)
    assert ops(found).count("Conv") == 3


def test_rows_that_others_read_too_stay():
    stays(clean(convolve_rows), network(outputs=7, returned="%8, %1"), weights(outputs=7))


def test_an_image_that_nothing_convolves_stays():
    text = network(outputs=7).replace(f"%4 = conv(%3, %k) {SAME} groups=12", "%4 = map(%3) { tanh($0) }")
    stays(clean(convolve_rows), text, weights(outputs=7))


def test_rows_that_differ_in_what_is_added_to_them_stay():
    text = network(outputs=7).replace("%b = constant float32[12] #b", "%b = constant float32[30, 12] #b")
    arrays = weights(outputs=7) | {"b": np.ones((30, 12), np.float32)}
    stays(clean(convolve_rows), text, arrays)
