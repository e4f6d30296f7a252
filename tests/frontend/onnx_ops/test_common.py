"""Operands that must fit each other fail the run where they do not, if only it knows their sizes."""

import numpy as np
import pytest
from support.small_models import parsed

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph


def run(text, *inputs, opset=21):
    """The first result of a graph's text for inputs: arrays, or shapes of ones."""
    given = [np.ones(x, np.float32) if isinstance(x, tuple) else x for x in inputs]
    return run_graph(import_model(parsed(f"m {text}", opset=opset)).graph, given)[0]


def places(*values):
    return np.array(values, np.int64)


#: A node, inputs that fit and the shape of what they give, and inputs that do not.
SIZED = {
    "what is expanded has the size that is asked for, or 1": (
        """(float[4] x, float[n] z) => (float y) { s = Shape (z) y = Expand (x, s) }""",
        [(4,), (1,)],
        (4,),
        [[(4,), (3,)], [(4,), (0,)]],
    ),
    "what is expanded by data has the sizes that are asked for": (
        """(float[4, 1] x, int64[2] s) => (float y) { y = Expand (x, s) }""",
        [(4, 1), places(4, 2)],
        (4, 2),
        [[(4, 1), places(3, 2)]],
    ),
    "what is expanded by data along a known axis alone, too": (
        """(float[4] x, int64[1] s) => (float y) { y = Expand (x, s) }""",
        [(4,), places(4)],
        (4,),
        [[(4,), places(3)], [(4,), places(8)]],
    ),
    "lengths are one for each sequence": (
        """(float[t, b] x, int64[n] l) => (float y) { y = ReverseSequence (x, l) }""",
        [(2, 3), places(1, 1, 1)],
        (2, 3),
        [[(2, 3), places(1, 1)], [(2, 3), places(1)]],
    ),
    "a layer's scale does not widen its rows": (
        """(float[n, m] x, float[k] s) => (float y) { y = LayerNormalization (x, s) }""",
        [(2, 3), (3,)],
        (2, 3),
        [[(2, 1), (3,)], [(2, 3), (2,)]],
    ),
    "a layer's bias does not widen its rows": (
        """(float[n, m] x, float[m] s, float[k] c) => (float y) { y = LayerNormalization (x, s, c) }""",
        [(2, 3), (3,), (1,)],
        (2, 3),
        [[(2, 1), (1,), (3,)]],
    ),
    "a root mean square's scale does not widen its rows": (
        """(float[n, m] x, float[k] s) => (float y) { y = RMSNormalization (x, s) }""",
        [(2, 3), (1,)],
        (2, 3),
        [[(2, 1), (3,)]],
    ),
    "the third operand does not widen a product": (
        """(float[n, m] x, float[m, p] w, float[k] c) => (float y) { y = Gemm (x, w, c) }""",
        [(2, 2), (2, 3), (1,)],
        (2, 3),
        [[(2, 2), (2, 1), (3,)]],
    ),
    "a convolution's bias is one for each kernel": (
        """(float[n, 2, 3] x, float[o, 2, 1] w, float[k] c) => (float y) { y = Conv (x, w, c) }""",
        [(1, 2, 3), (4, 2, 1), (4,)],
        (1, 4, 3),
        [[(1, 2, 3), (1, 2, 1), (4,)], [(1, 2, 3), (4, 2, 1), (1,)]],
    ),
    "a known bias is one for each kernel": (
        """(float[n, 2, 3] x, float[o, 2, 1] w, float[4] c) => (float y) { y = Conv (x, w, c) }""",
        [(1, 2, 3), (4, 2, 1), (4,)],
        (1, 4, 3),
        [[(1, 2, 3), (1, 2, 1), (4,)]],
    ),
    "a transposed convolution's bias is one for each channel": (
        """(float[n, 2, 3] x, float[2, o, 1] w, float[k] c) => (float y) { y = ConvTranspose (x, w, c) }""",
        [(1, 2, 3), (2, 4, 1), (4,)],
        (1, 4, 3),
        [[(1, 2, 3), (2, 1, 1), (4,)], [(1, 2, 3), (2, 4, 1), (1,)]],
    ),
    "statistics are one for each channel": (
        """(float[n, m, 3] x, float[k] s) => (float y) { y = BatchNormalization (x, s, s, s, s) }""",
        [(1, 4, 3), (4,)],
        (1, 4, 3),
        [[(1, 1, 3), (4,)], [(1, 4, 3), (1,)]],
    ),
    "an instance's scales are one for each channel": (
        """(float[n, m, 3] x, float[k] s) => (float y) { y = InstanceNormalization (x, s, s) }""",
        [(1, 4, 3), (4,)],
        (1, 4, 3),
        [[(1, 1, 3), (4,)], [(1, 4, 3), (1,)]],
    ),
    "a window is as long as its frames": (
        """(float[1, 9, 1] x, float[k] w, int64 l) => (float y)
            { s = Constant <value_int = 1> () y = STFT (x, s, w, l) }""",
        [(1, 9, 1), (4,), places(4)[0]],
        (1, 6, 3, 2),
        [[(1, 9, 1), (1,), places(4)[0]], [(1, 9, 1), (5,), places(4)[0]]],
    ),
    "classes have a weight each": (
        """(float[n, c] x, int64[n] t, float[k] w) => (float y)
            { y = NegativeLogLikelihoodLoss (x, t, w) }""",
        [(2, 3), places(0, 2), (3,)],
        (),
        [[(2, 3), places(0, 2), (4,)]],
    ),
    "writes are one for each batch": (
        """(float[b, 6, 2] x, float[b, 1, 2] u, int64[k] i) => (float y) { y = TensorScatter (x, u, i) }""",
        [(2, 6, 2), (2, 1, 2), places(0, 1)],
        (2, 6, 2),
        [[(2, 6, 2), (2, 1, 2), places(0)]],
    ),
}


@pytest.mark.parametrize("name", SIZED)
def test_operands_whose_sizes_only_the_run_knows_must_fit(name):
    text, fits, shape, others = SIZED[name]
    opset = 24 if "RMS" in text or "TensorScatter" in text else 21
    assert run(text, *fits, opset=opset).shape == shape
    for inputs in others:
        with pytest.raises(InterpretError):
            run(text, *inputs, opset=opset)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(
    ("text", "numbers", "shape"),
    [("y = Slice (x, p, q, a)", [[1], [3]], (3, 2)), ("y = Pad (x, r, , a)", [[1], [2]], (3, 6))],
    ids=["Slice", "Pad"],
)
def test_axes_of_which_only_the_run_knows_how_many_there_are_may_be_of_either_type(
    text, numbers, shape, kind
):
    first, second = (np.array(v, kind if "Slice" in text else np.int64) for v in numbers)
    other = kind if "Slice" in text else "int64"
    graph = f"(float[3, 3] x, {other}[n] p, {other}[n] q, {kind}[n] a) => (float y)"
    joined = "" if "Slice" in text else "r = Concat <axis = 0> (p, q)"
    assert run(f"{graph} {{ {joined} {text} }}", (3, 3), first, second, np.array([-1], kind)).shape == shape
    with pytest.raises(InterpretError, match="rank mismatch"):
        run(
            f"{graph} {{ {joined} {text} }}",
            (3, 3),
            *(np.repeat(v, 3) for v in (first, second)),
            np.arange(3).astype(kind),
        )
