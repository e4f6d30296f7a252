"""Gradients of every op with a rule are those that finite differences in float64 give."""

import re

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from onnxc.diagnostics import ModelErrors
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
    "steps": "a = Slice (x, two, zero, one, back) y = Exp (a)",
    "mirrored": """t = Transpose (x) a = Pad <mode = "reflect"> (t, pads) b = Pad <mode = "edge"> (a, pads)
        y = Exp (b)""",
    "wrapped around": 'a = Pad <mode = "wrap"> (x, pads) y = Exp (a)',
    "elements": """a = GatherElements <axis = 1> (x, picks) b = GatherND (x, twice)
        c = MatMul (a, b) y = Exp (c)""",
    "written": """a = ScatterElements <axis = 1> (x, picks, square) b = Exp (a)
        c = ScatterND (b, twice, x) y = Mul (c, c)""",
    "added": """a = ScatterElements <axis = 1, reduction = "add"> (x, picks, square)
        b = ScatterND <reduction = "mul"> (a, twice, x) y = Mul (b, b)""",
    "least and greatest": """a = ScatterElements <axis = 1, reduction = "max"> (x, picks, square)
        b = ScatterND <reduction = "min"> (a, twice, x) y = Mul (b, b)""",
    "running sums": """a = CumSum (x, one) b = CumSum <exclusive = 1> (a, one)
        c = CumSum <reverse = 1> (b, zero) y = Mul (c, a)""",
    "running products": """n = Sub (x, x) p = CumProd (x, one) q = CumProd <exclusive = 1> (x, one)
        r = CumProd <reverse = 1> (n, one) s = CumProd <reverse = 1, exclusive = 1> (w, zero)
        y = Sum (p, q, r, s)""",
    "sorted": "a, i = TopK (x, two) b, j = TopK <largest = 0> (w, two) c = Mul (a, b) y = Mul (c, c)",
    "convolutions": """a = Conv <pads = [1, 2], strides = [2], dilations = [2]> (image, kernels, w)
        b = Conv <group = 3, pads = [1, 0]> (image, apart) c = ReduceSum <keepdims = 0> (b) y = Mul (a, c)""",
    "convolutions backwards": """a = ConvTranspose <strides = [2], pads = [1, 0], output_padding = [1]>
        (image, kernels)
        b = ConvTranspose <group = 3, dilations = [2]> (image, apart) c = ReduceSum <keepdims = 0> (b)
        d = Mul (a, c) y = Sin (d)""",
    "convolutions of float16": """a = Cast <to = 10> (image) b = Cast <to = 10> (kernels) c = Conv (a, b)
        d = Cast <to = 11> (c) e = Sub (d, d) f = Conv (image, kernels) y = Add (e, f)""",
    "pools": """a = MaxPool <kernel_shape = [2], pads = [1, 0]> (image)
        b = AveragePool <kernel_shape = [3], pads = [1, 1], strides = [2], ceil_mode = 1> (image)
        c = AveragePool <kernel_shape = [2], count_include_pad = 1, pads = [1, 0]> (image)
        d = LpPool <kernel_shape = [2]> (image) e = ReduceSum <keepdims = 0> (b)
        f = Concat <axis = 2> (a, c, d) y = Mul (f, e)""",
    "columns": """size = Constant <value = int64[1] {6}> () a = Col2Im <pads = [1, 1]> (image, size, two)
        y = Mul (a, a)""",
    "attention": "y = Attention <is_causal = 1, q_num_heads = 3, kv_num_heads = 1> (image, keys, keys)",
    "a hidden query": "y = Attention <q_num_heads = 1, kv_num_heads = 1> (keys, keys, keys, hides)",
    "an LSTM": """y, h, c = LSTM <hidden_size = 1, direction = "bidirectional">
        (image, gates, gates_h, , lengths, , , gates_p)""",
    "a GRU": """a = GRU <hidden_size = 2, direction = "reverse"> (image, gru, gru_h)
        b = GRU <hidden_size = 2, linear_before_reset = 1> (image, gru, gru_h, gru_b) y = Mul (a, b)""",
    "an RNN": "y, h = RNN <hidden_size = 3, clip = 0.9> (image, rnn, rnn_h, , , state)",
    "a branch": """s = ReduceSum <keepdims = 0> (x) c = Less (s, s) y = If (c) <
        then_branch = f () => (double[2, 3] o) { o = Exp (x) },
        else_branch = g () => (double[2, 3] o) { t = Mul (x, w) u = If (c) <
            then_branch = h () => (double[2, 3] p) { p = Exp (t) },
            else_branch = i () => (double[2, 3] p) { p = Mul (t, w) }> o = Mul (t, u) }>""",
    "a loop": """n = Constant <value = int64 {3}> () a, each = Loop (n, , x) <body = step
            (int64 i, bool c, double[2, 3] v) => (bool c_out, double[2, 3] v_out, double[3] seen) {
            t = Mul (v, w) f = Cast <to = 11> (i) u = Add (t, f) v_out = Tanh (u)
            seen = ReduceSum <keepdims = 0> (v_out, zero) c_out = Identity (c) }>
        b = ReduceSum <keepdims = 0> (each) y = Mul (a, b)""",
    "a loop that its condition ends": """a = Loop (, go, x) <body = step
            (int64 i, bool c, double[2, 3] v) => (bool c_out, double[2, 3] v_out) {
            v_out = Mul (v, x) s = ReduceSum <keepdims = 0> (v_out) c_out = Less (least, s) }>
        y = Mul (a, w)""",
    "a scan": """a, each = Scan <num_scan_inputs = 1, body = step (double[3] s, double[3] r)
            => (double[3] s_out, double[3] o) { t = Mul (s, r) s_out = Add (t, w) o = Exp (t) }> (w, x)
        y = Mul (each, a)""",
}
CONSTANTS = """
    axes = Constant <value = int64[1] {1}> () one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {3}> () axis = Constant <value = int64[1] {0}> ()
    zero = Constant <value = int64[1] {0}> () back = Constant <value = int64[1] {-2}> ()
    pads = Constant <value = int64[4] {1, 0, 2, 1}> () shape = Constant <value = int64[2] {2, 3}> ()
    picks = Constant <value = int64[2, 2] {0, -1, 2, 0}> () twice = Constant <value = int64[2, 1] {1, 1}> ()
    lengths = Constant <value = int32[3] {2, 0, 1}> () go = Constant <value = bool {1}> ()
    least = Constant <value = double {0.05}> ()
    hides = Constant <value = bool[3, 3] {1, 0, 1, 0, 0, 0, 1, 1, 0}> ()"""

#: Values made of x and w by products with numbers, where formulas name them.
MADE = {
    "square": ("x", (2, 2)),
    "image": ("x", (2, 3, 6)),
    "keys": ("x", (2, 3, 2)),
    "kernels": ("w", (3, 3, 2)),
    "apart": ("w", (3, 1, 3)),
    "gates": ("w", (2, 4, 6)),
    "gates_h": ("w", (2, 4, 1)),
    "gates_p": ("w", (2, 3)),
    "gru": ("w", (1, 6, 6)),
    "gru_h": ("w", (1, 6, 2)),
    "gru_b": ("w", (1, 12)),
    "rnn": ("w", (1, 3, 6)),
    "rnn_h": ("w", (1, 3, 3)),
    "state": ("w", (1, 3, 3)),
}


def made(formula):
    """What makes the values that the formula names, and the numbers for that."""
    random, text, tensors = np.random.default_rng(3), "", []
    for name, (source, shape) in MADE.items():
        if re.search(rf"\b{name}\b", formula):
            width = int(np.prod(shape)) // (2 if source == "x" else 1)
            numbers = random.uniform(-0.9, 0.9, (3, width))
            tensors.append(onnx.numpy_helper.from_array(numbers, f"{name}_by"))
            tensors.append(onnx.numpy_helper.from_array(np.array(shape), f"{name}_to"))
            text += f"{name}_flat = MatMul ({source}, {name}_by) {name} = Reshape ({name}_flat, {name}_to) "
    return text, tensors


def graph_of(formula, wanted):
    """The graph of y, or of its gradient by x and w."""
    gradient = 'dx, dw = ai.onnx.preview.training.Gradient <xs = ["x", "w"], y = "y"> (x, w)'
    outputs = "double[a,b] dx, double[c] dw" if wanted == "gradient" else "double[d,e] y"
    before, tensors = made(formula)
    text = f"""<ir_version: 10, opset_import: ["" : 26, {TRAINING}]>
        g (double[2,3] x, double[3] w, double[3,4] z) => ({outputs}) {{
            {CONSTANTS} {before} {formula} {gradient if wanted == "gradient" else ""} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(tensors)
    return import_model(model).graph


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
    with pytest.raises(ModelErrors, match="the gradient of RuntimeCall"):
        graph_of("y, i = Unique (x)", "gradient")
