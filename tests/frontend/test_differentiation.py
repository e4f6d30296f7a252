"""Gradients of every op with a rule are those that finite differences in float64 give."""

import numpy as np
import onnx.parser
import pytest

from onnxc.errors import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph

TRAINING = '"ai.onnx.preview.training" : 1'

#: What y is of x [2, 3] and w [3]; z is [3, 4].
FORMULAS = {
    "sums": "a = Add (x, w) b = Sub (w, x) y = Mul (a, b)",
    "quotients": "a = Exp (w) y = Div (x, a)",
    "powers": "a = Exp (x) y = Pow (a, w)",
    "functions": "a = Sin (x) b = Cos (a) c = Tanh (b) d = Erf (c) e = Atan (d) y = Sqrt (b)",
    "all functions": """a = Tanh (x) b = Asin (a) c = Acos (a) d = Atanh (a) e = Sinh (x) f = Cosh (e)
        g = Asinh (f) h = Acosh (f) i = Tan (a) k = Log (f) l = Sum (b, c, d, e, f)
        m = Sum (g, h, i, k) n = Atan (l)
        o = Erf (m) p = Abs (n) q = Neg (o) y = Mul (p, q)""",
    "choices": "a = Relu (x) b = Max (a, w) c = Min (x, w) d = Less (x, w) e = Where (d, b, c) y = Clip (e)",
    "activations": """a = Sigmoid (x) b = Softplus (a) c = LeakyRelu (x) d = Elu (x) e = Gelu (b)
        y = Sum (a, b, c, d, e)""",
    "a product": "a = MatMul (x, z) y = Tanh (a)",
    "a dense layer": "a = Gemm <transB = 1> (x, x) y = Softmax (a)",
    "an einsum": 'y = Einsum <equation = "ij,jk->k"> (x, z)',
    "sums along axes": "a = ReduceSum <keepdims = 0> (x) b = ReduceMean (x, axes) y = Mul (a, b)",
    "extremes": "a = ReduceMax (x, axes) b = ReduceMin <keepdims = 0> (x) y = Mul (a, b)",
    "products of elements": "y = ReduceProd (x, axes)",
    "a normalisation": "a = LayerNormalization (x, w) y = LogSoftmax (a)",
    "shapes": "a = Transpose (x) b = Unsqueeze (a, axes) c = Squeeze (b, axes) y = Flatten (c)",
    "parts": "a, b = Split <axis = 0, num_outputs = 2> (x) y = Mul (a, b)",
    "joined": "a = Concat <axis = 0> (x, x) b = Slice (a, one, two, axis) y = Exp (b)",
    "padded": "a = Pad (x, pads) y = Exp (a)",
    "repeated": "a = Expand (w, shape) y = Mul (a, x)",
    "rows": "a = Gather <axis = 1> (x, picks) y = Exp (a)",
}
CONSTANTS = """
    axes = Constant <value = int64[1] {1}> () one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {3}> () axis = Constant <value = int64[1] {0}> ()
    pads = Constant <value = int64[4] {1, 0, 2, 1}> () shape = Constant <value = int64[2] {2, 3}> ()
    picks = Constant <value = int64[2, 2] {0, -1, 2, 0}> ()"""


def graph_of(formula, wanted):
    """The graph of y, or of its gradient by x and w."""
    gradient = 'dx, dw = ai.onnx.preview.training.Gradient <xs = ["x", "w"], y = "y"> (x, w)'
    outputs = "double[a,b] dx, double[c] dw" if wanted == "gradient" else "double[d,e] y"
    text = f"""<ir_version: 10, opset_import: ["" : 21, {TRAINING}]>
        g (double[2,3] x, double[3] w, double[3,4] z) => ({outputs}) {{
            {CONSTANTS} {formula} {gradient if wanted == "gradient" else ""} }}"""
    return import_model(onnx.parser.parse_model(text)).graph


def numerical(run, values, place, step=1e-6):
    """What the sum of run's result changes with each element of one of its values."""
    found = np.zeros_like(values[place])
    for at in np.ndindex(found.shape):
        sides = []
        for sign in (step, -step):
            moved = [v.copy() for v in values]
            moved[place][at] += sign
            sides.append(run(moved).sum())
        found[at] = (sides[0] - sides[1]) / (2 * step)
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_are_those_of_finite_differences(name):
    random = np.random.default_rng(5)
    values = [random.uniform(0.2, 0.9, shape) for shape in ((2, 3), (3,), (3, 4))]
    graph = graph_of(FORMULAS[name], "value")
    found = run_graph(graph_of(FORMULAS[name], "gradient"), values)
    for place, got in enumerate(found):
        expected = numerical(lambda given: run_graph(graph, given)[0], values, place)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_sizes_may_be_for_the_run_to_tell():
    text = f"""<ir_version: 10, opset_import: ["" : 21, {TRAINING}]>
        g (double[N,M] x, double[M,K] w) => (double[N,M] dx) {{
            a = MatMul (x, w) y = Softmax (a)
            b = Mul (y, y)
            dx = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["w"], y = "b"> (x, w) }}"""
    random = np.random.default_rng(5)
    values = [random.standard_normal(shape) for shape in ((2, 3), (3, 4))]

    def value(given):
        e = np.exp(given[0] @ given[1])
        return (e / e.sum(-1, keepdims=True)) ** 2

    (got,) = run_graph(import_model(onnx.parser.parse_model(text)).graph, values)
    np.testing.assert_allclose(got, numerical(value, values, 0), rtol=1e-5, atol=1e-7)


def test_an_op_without_a_rule_is_named():
    with pytest.raises(ModelErrors, match="the gradient of Cumulate"):
        graph_of("y = CumSum (x, one)", "gradient")
