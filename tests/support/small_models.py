"""Small whole models with seeded weights, every kind of layer that matters in them: a network for images,
one for text, and one whose runs can fail or last."""

import numpy as np
import onnx.parser
from onnx import numpy_helper


class Weights:
    """Initializers drawn one after the other."""

    def __init__(self, seed):
        self.rng, self.tensors = np.random.default_rng(seed), []

    def add(self, name, *shape, scale=None, around=0.0):
        scale = scale if scale is not None else (2 / max(1, np.prod(shape[1:]))) ** 0.5
        data = (around + scale * self.rng.standard_normal(shape)).astype(np.float32)
        self.tensors.append(numpy_helper.from_array(data, name))


def parsed(text, weights=None, opset=21):
    """The model of ONNX's text form with the weights; nodes are named after their first outputs."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    for node in model.graph.node:
        node.name = node.output[0]
    model.graph.initializer.extend(weights.tensors if weights else [])
    onnx.checker.check_model(model)
    return model


def images():
    """[batch, 3, height, width] → probabilities [batch, 10]: a stem with stride, a residual block, a
    depthwise and a pointwise convolution, pooling, a dense layer."""
    w = Weights(1)
    w.add("stem", 16, 3, 3, 3)
    w.add("scale", 16, scale=0.1, around=1.0)
    w.add("shift", 16, scale=0.1)
    w.add("block_1", 16, 16, 3, 3)
    w.add("block_2", 16, 16, 3, 3)
    w.add("bias", 16, scale=0.1)
    w.add("depth", 16, 1, 3, 3)
    w.add("point", 40, 16, 1, 1)
    w.add("dense", 10, 40)
    w.add("dense_bias", 10, scale=0.1)
    return parsed(
        """
        images (float[batch, 3, height, width] image) => (float[batch, 10] probabilities) {
            a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (image, stem)
            b = BatchNormalization (a, scale, shift, shift, scale)
            c = Relu (b)
            pooled = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (c)
            d = Conv <pads = [1, 1, 1, 1]> (pooled, block_1, bias)
            e = Relu (d)
            f = Conv <pads = [1, 1, 1, 1]> (e, block_2, bias)
            g = Add (f, pooled)
            h = Relu (g)
            i = Conv <group = 16, pads = [1, 1, 1, 1]> (h, depth)
            j = Sigmoid (i)
            k = Conv (j, point)
            average = GlobalAveragePool (k)
            flat = Flatten (average)
            logits = Gemm <transB = 1> (flat, dense, dense_bias)
            probabilities = Softmax <axis = -1> (logits)
        }""",
        w,
    )


WORDS, WIDTH, HEADS = 101, 32, 4


def text():
    """Token ids [batch, length] and a mask → logits [batch, length, 101]: embeddings, two layers of
    attention and feed forward."""
    w = Weights(2)
    w.add("words", WORDS, WIDTH, scale=0.5)
    w.add("places", 64, WIDTH, scale=0.1)
    layers = []
    for n in range(2):
        for name in "qkvo":
            w.add(f"{name}_{n}", WIDTH, WIDTH, scale=WIDTH**-0.5)
        w.add(f"up_{n}", WIDTH, 4 * WIDTH, scale=WIDTH**-0.5)
        w.add(f"down_{n}", 4 * WIDTH, WIDTH, scale=(4 * WIDTH) ** -0.5)
        for name in ("norm_1", "norm_2"):
            w.add(f"{name}_{n}", WIDTH, scale=0.1, around=1.0)
            w.add(f"{name}_bias_{n}", WIDTH, scale=0.1)
        layers.append(_layer(n))
    w.add("unembed", WIDTH, WORDS, scale=WIDTH**-0.5)
    return parsed(
        f"""
        text (int64[batch, length] ids, int64[batch, length] mask)
            => (float[batch, length, {WORDS}] logits) {{
            axes = Constant <value = int64[2] {{1, 2}}> ()
            zero = Constant <value = int64[1] {{0}}> ()
            one = Constant <value = float {{1.0}}> ()
            far = Constant <value = float {{10000.0}}> ()
            heads = Constant <value = int64[4] {{0, 0, {HEADS}, {WIDTH // HEADS}}}> ()
            merged = Constant <value = int64[3] {{0, 0, {WIDTH}}}> ()
            root = Constant <value = float {{{(WIDTH // HEADS) ** 0.5}}}> ()
            half = Constant <value = float {{0.5}}> ()
            root_2 = Constant <value = float {{1.4142135}}> ()
            known = Cast <to = 1> (mask)
            unknown = Sub (known, one)
            wide = Unsqueeze (unknown, axes)
            bias = Mul (wide, far)
            length = Shape <start = 1, end = 2> (ids)
            here = Slice (places, zero, length, zero)
            embedded = Gather (words, ids)
            x_0 = Add (embedded, here)
            {"".join(layers)}
            logits = MatMul (x_2, unembed)
        }}""",
        w,
    )


def _layer(n):
    projections = "".join(
        f"""
            {p}_flat_{n} = MatMul (normed_{n}, {p}_{n})
            {p}_apart_{n} = Reshape ({p}_flat_{n}, heads)
            {p}_heads_{n} = Transpose <perm = [0, 2, {"3, 1" if p == "k" else "1, 3"}]> ({p}_apart_{n})"""
        for p in "qkv"
    )
    return f"""
            normed_{n} = LayerNormalization (x_{n}, norm_1_{n}, norm_1_bias_{n}){projections}
            products_{n} = MatMul (q_heads_{n}, k_heads_{n})
            scaled_{n} = Div (products_{n}, root)
            masked_{n} = Add (scaled_{n}, bias)
            weights_{n} = Softmax <axis = -1> (masked_{n})
            seen_{n} = MatMul (weights_{n}, v_heads_{n})
            turned_{n} = Transpose <perm = [0, 2, 1, 3]> (seen_{n})
            together_{n} = Reshape (turned_{n}, merged)
            attended_{n} = MatMul (together_{n}, o_{n})
            middle_{n} = Add (x_{n}, attended_{n})
            again_{n} = LayerNormalization (middle_{n}, norm_2_{n}, norm_2_bias_{n})
            wider_{n} = MatMul (again_{n}, up_{n})
            over_{n} = Div (wider_{n}, root_2)
            erf_{n} = Erf (over_{n})
            plus_{n} = Add (erf_{n}, one)
            gate_{n} = Mul (wider_{n}, plus_{n})
            gelu_{n} = Mul (gate_{n}, half)
            narrow_{n} = MatMul (gelu_{n}, down_{n})
            x_{n + 1} = Add (middle_{n}, narrow_{n})"""


def fragile():
    """x / d, the elements of it that `at` names, and what is left after `rounds` halvings: runs that fail,
    and runs that last."""
    return parsed("""
        fragile (int32[n] x, int32[n] d, int64[k] at, int64 rounds) => (int32[k] picked, float left) {
            quotient = Div (x, d)
            picked = Gather (quotient, at)
            go = Constant <value = bool {1}> ()
            start = Constant <value = float {1.0}> ()
            left = Loop (rounds, go, start) <body = halve (int64 i, bool c, float before)
                => (bool c_out, float after) {
                half = Constant <value = float {0.5}> ()
                after = Mul (before, half)
                c_out = Identity (c)
            }>
        }""")
