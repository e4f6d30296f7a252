"""The architectures that people export, with few layers and seeded random weights, written as exporters write
them. `python tests/support/architectures.py FOLDER` saves them all.

An architecture is a function from an `Exporter` and the sizes of its dimensions, numbers or names, to the
names of its outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

sys.path.append(str(Path(__file__).parents[1]))
from support.exporter import Exporter

Sizes = Mapping[str, "int | str"]


@dataclass(frozen=True)
class Architecture:
    """How a model is written, and the sizes at which it is run: of each dimension one for each run."""

    write: Callable[[Exporter, Sizes], Sequence[str]]
    dims: Mapping[str, tuple[int, ...]]
    opset: int = 17

    def _written(self, sizes: Sizes) -> tuple[Exporter, Sequence[str]]:
        exporter = Exporter(0, self.opset)
        return exporter, self.write(exporter, sizes)

    def runs(self) -> list[dict[str, int]]:
        return [dict(zip(self.dims, sizes)) for sizes in zip(*self.dims.values(), strict=True)]

    def model(self, sizes: Sizes | None = None) -> onnx.ModelProto:
        """The model at these sizes; without them every dimension is symbolic."""
        exporter, outputs = self._written(sizes or {name: name for name in self.dims})
        return exporter.model(*outputs)

    def feeds(self, run: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
        """Seeded inputs at the sizes of a run."""
        rng, (exporter, _) = np.random.default_rng(seed), self._written(run)
        shapes = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in exporter.inputs}
        return {name: exporter.draws[name](rng, shape) for name, shape in shapes.items()}


def image(e: Exporter, d: Sizes) -> str:
    return e.input("image", d["batch"], 3, d["height"], d["width"])


def pooled(e: Exporter, x: str, channels: int) -> list[str]:
    """Global pooling and a layer of ten classes."""
    flat = e.op("Flatten", e.op("GlobalAveragePool", x), axis=1)
    return [e.gemm(flat, channels, 10)]


def maximum(e: Exporter, x: str, kernel: int = 3, stride: int = 2, **more) -> str:
    settings = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, **more}
    return e.op("MaxPool", x, **settings)


def upsampled(e: Exporter, x: str, *scales_or_sizes: str) -> str:
    """Each element repeated: by scales, or after an empty name to sizes."""
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return e.op("Resize", x, "", *scales_or_sizes, mode="nearest", **settings)


# Classifiers of images ---------------------------------------------------------------------------


def resnet_basic(e, d):
    x = maximum(e, e.op("Relu", e.conv(image(e, d), (3, 16), 7, 2)))
    for inside, out, stride in ((16, 16, 1), (16, 32, 2)):
        y = e.conv(e.op("Relu", e.conv(x, (inside, out), 3, stride)), (out, out), 3)
        x = x if stride == 1 else e.conv(x, (inside, out), 1, stride)
        x = e.op("Relu", e.op("Add", y, x))
    return pooled(e, x, 32)


def resnet_bottleneck(e, d):
    x = maximum(e, e.op("Relu", e.conv(image(e, d), (3, 16), 7, 2)))
    for inside, out, stride in ((16, 64, 1), (64, 64, 1), (64, 128, 2)):
        middle = out // 4
        y = e.op("Relu", e.conv(x, (inside, middle), 1))
        y = e.op("Relu", e.conv(y, (middle, middle), 3, stride))
        y = e.conv(y, (middle, out), 1)
        x = x if inside == out else e.conv(x, (inside, out), 1, stride)
        x = e.op("Relu", e.op("Add", y, x))
    return pooled(e, x, 128)


def mobilenetv2(e, d):
    """Depthwise layers padded by a node of their own, as TensorFlow's padding is exported."""

    def clipped(x, channels):
        return e.op("Clip", e.batch_norm(x, channels), e.number(0), e.number(6))

    def padded(x):
        pads = e.constant([0, 0, 0, 0, 0, 0, 1, 1])
        return e.op("Pad", x, pads, e.number(0), mode="constant")

    x = clipped(e.conv(padded(image(e, d)), (3, 16), 3, 2, pads=[0] * 4), 16)
    for inside, out, stride in ((16, 16, 1), (16, 24, 2), (24, 24, 1)):
        wide = 4 * inside
        y = clipped(e.conv(x, (inside, wide), 1), wide)
        pads = {"pads": [0] * 4} if stride == 2 else {}
        y = clipped(e.conv(padded(y) if pads else y, (wide, wide), 3, stride, wide, **pads), wide)
        y = e.batch_norm(e.conv(y, (wide, out), 1), out)
        x = e.op("Add", x, y) if inside == out else y
    return pooled(e, x, 24)


def squeezenet(e, d):
    x = maximum(e, e.op("Relu", e.conv(image(e, d), (3, 16), 3, 2)), pads=[0] * 4, ceil_mode=1)
    for inside, few, out in ((16, 8, 32), (32, 8, 32)):
        small = e.op("Relu", e.conv(x, (inside, few), 1))
        one = e.op("Relu", e.conv(small, (few, out // 2), 1))
        three = e.op("Relu", e.conv(small, (few, out // 2), 3))
        x = e.op("Concat", one, three, axis=1)
    x = e.op("Dropout", e.op("Relu", e.conv(x, (32, 10), 1)))
    return [e.op("Softmax", e.op("Flatten", e.op("GlobalAveragePool", x), axis=1), axis=-1)]


def shufflenet(e, d):
    """Half of the channels goes through a unit, then channels are shuffled."""

    def shuffled(x, channels):
        n, height, width = (e.size(x, axis) for axis in (0, 2, 3))
        apart = e.transpose(e.reshape(x, n, 2, channels // 2, height, width), 0, 2, 1, 3, 4)
        return e.reshape(apart, n, -1, height, width)

    def unit(x, inside, channels, stride):
        y = e.op("Relu", e.batch_norm(e.conv(x, (inside, channels), 1), channels))
        y = e.batch_norm(e.conv(y, (channels, channels), 3, stride, channels), channels)
        return e.op("Relu", e.batch_norm(e.conv(y, (channels, channels), 1), channels))

    x = maximum(e, e.op("Relu", e.batch_norm(e.conv(image(e, d), (3, 16), 3, 2), 16)))
    other = e.batch_norm(e.conv(x, (16, 16), 3, 2, 16), 16)
    other = e.op("Relu", e.batch_norm(e.conv(other, (16, 16), 1), 16))
    x = shuffled(e.op("Concat", other, unit(x, 16, 16, 2), axis=1), 32)
    for _ in range(2):
        kept, changed = e.slice(x, 1, 0, 16), e.slice(x, 1, 16, 32)
        x = shuffled(e.op("Concat", kept, unit(changed, 16, 16, 1), axis=1), 32)
    return pooled(e, x, 32)


def alexnet(e, d):
    x = e.op("Relu", e.conv(e.input("image", d["batch"], 3, 63, 63), (3, 16), 11, 4, pads=[2] * 4))
    x = e.op("LRN", x, alpha=1e-4, beta=0.75, bias=1.0, size=5)
    x = maximum(e, x, pads=[0] * 4)
    x = e.op("Relu", e.conv(x, (16, 32), 5, groups=2))
    x = maximum(e, x, pads=[0] * 4)
    x = e.op("Dropout", e.op("Flatten", x, axis=1))
    x = e.op("Dropout", e.op("Relu", e.gemm(x, 32 * 3 * 3, 40)))
    return [e.gemm(x, 40, 10)]


def vgg(e, d):
    x, inside = e.input("image", d["batch"], 3, 32, 32), 3
    for out in (16, 32):
        for _ in range(2):
            x, inside = e.op("Relu", e.conv(x, (inside, out), 3)), out
        x = maximum(e, x, 2, 2, pads=[0] * 4)
    x = e.reshape(x, e.size(x, 0), -1)
    return [e.gemm(e.op("Relu", e.gemm(x, 32 * 8 * 8, 48)), 48, 10)]


# Detectors and segmenters ------------------------------------------------------------------------


def detector(e, d):
    """SiLU, a split block, spatial pooling, upsampling into an earlier map, two heads decoded and joined."""

    def silu(x):
        return e.op("Mul", x, e.op("Sigmoid", x))

    def split_block(x, channels):
        half = channels // 2
        sizes = e.constant([half, half])
        one, two = e.op("Split", silu(e.conv(x, (channels, channels), 1)), sizes, axis=1, results=2)
        three = e.op("Add", two, silu(e.conv(silu(e.conv(two, (half, half), 3)), (half, half), 3)))
        joined = e.op("Concat", one, two, three, axis=1)
        return silu(e.conv(joined, (3 * half, channels), 1))

    def head(x, channels):
        y = e.conv(x, (channels, 7), 1)
        n = e.size(y, 0)
        return e.reshape(y, n, 7, -1)

    x = silu(e.conv(image(e, d), (3, 16), 3, 2))
    fine = split_block(silu(e.conv(x, (16, 32), 3, 2)), 32)
    coarse = silu(e.conv(fine, (32, 32), 3, 2))
    again = maximum(e, coarse, 5, 1)
    coarse = silu(e.conv(e.op("Concat", coarse, again, maximum(e, again, 5, 1), axis=1), (96, 32), 1))
    scales = e.constant([1, 1, 2, 2], np.float32)
    up = e.op(
        "Resize",
        coarse,
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    fine = silu(e.conv(e.op("Concat", up, fine, axis=1), (64, 32), 3))
    rows = e.op("Concat", head(fine, 32), head(coarse, 32), axis=2)
    boxes, scores = e.slice(rows, 1, 0, 4), e.slice(rows, 1, 4, 7)
    centre, reach = e.slice(boxes, 1, 0, 2), e.slice(boxes, 1, 2, 4)
    corners = e.op("Concat", e.op("Sub", centre, reach), e.op("Add", centre, reach), axis=1)
    return [e.op("Concat", e.op("Mul", corners, e.number(8)), e.op("Sigmoid", scores), axis=1)]


def unet(e, d):
    def twice(x, inside, out):
        for channels in ((inside, out), (out, out)):
            scale, shift = e.weight(out, around=1.0, scale=0.1), e.weight(out, scale=0.1)
            y = e.op("InstanceNormalization", e.conv(x, channels, 3), scale, shift)
            x = e.op("Relu", y)
        return x

    first = twice(image(e, d), 3, 16)
    second = twice(maximum(e, first, 2, 2, pads=[0] * 4), 16, 32)
    weights, bias = e.weight(32, 16, 2, 2), e.weight(16, scale=0.1)
    up = e.op("ConvTranspose", second, weights, bias, kernel_shape=[2, 2], strides=[2, 2])
    x = twice(e.op("Concat", first, up, axis=1), 32, 16)
    return [e.op("Sigmoid", e.conv(x, (16, 1), 1))]


def text_detector(e, d):
    """A backbone with gates over channels, a pyramid, and transposed convolutions up to the image's size."""

    def gated(x, channels):
        y = e.op("GlobalAveragePool", x)
        y = e.conv(e.op("Relu", e.conv(y, (channels, channels // 4), 1)), (channels // 4, channels), 1)
        return e.op("Mul", x, e.op("HardSigmoid", y, alpha=0.2, beta=0.5))

    def swished(x):
        return e.op("HardSwish", x)

    def enlarged(x, other):
        outer = e.op("Slice", e.op("Shape", x), e.constant([0]), e.constant([2]))
        inner = e.op("Slice", e.op("Shape", other), e.constant([2]), e.constant([4]))
        return upsampled(e, x, "", e.op("Concat", outer, inner, axis=0))

    def transposed(x, inside, out):
        weights, bias = e.weight(inside, out, 2, 2), e.weight(out, scale=0.1)
        return e.op("ConvTranspose", x, weights, bias, strides=[2, 2], kernel_shape=[2, 2])

    x = swished(e.batch_norm(e.conv(image(e, d), (3, 16), 3, 2), 16))
    fine = gated(swished(e.conv(e.conv(x, (16, 16), 3, 2, 16), (16, 24), 1)), 24)
    coarse = gated(swished(e.conv(e.conv(fine, (24, 24), 5, 2, 24), (24, 32), 1)), 32)
    low, high = e.conv(fine, (24, 16), 1), e.conv(coarse, (32, 16), 1)
    low = e.op("Add", low, enlarged(high, low))
    x = e.op("Concat", e.conv(low, (16, 8), 3), enlarged(e.conv(high, (16, 8), 3), low), axis=1)
    x = e.op("Relu", e.batch_norm(transposed(x, 16, 8), 8))
    return [e.op("Sigmoid", transposed(x, 8, 1))]


# Recognisers of text -----------------------------------------------------------------------------


def _recogniser(kind, gates):
    def write(e, d):
        hidden = 16
        x = e.input("image", d["batch"], 1, 16, d["width"])
        x = maximum(e, e.op("Relu", e.conv(x, (1, 16), 3)), 2, 2, pads=[0] * 4)
        x = e.op("Relu", e.conv(x, (16, 24), 3))
        x = e.op("MaxPool", x, kernel_shape=[8, 1], strides=[8, 1])
        x = e.transpose(e.op("Squeeze", x, e.constant([2])), 2, 0, 1)
        zeros = e.op("Expand", e.number(0), e.sizes([2, e.size(x, 1), hidden]))
        w = e.weight(2, gates * hidden, 24, scale=0.2)
        r, b = e.weight(2, gates * hidden, hidden, scale=0.2), e.weight(2, 2 * gates * hidden, scale=0.1)
        states = [zeros] * (2 if kind == "LSTM" else 1)
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        more |= {"hidden_size": hidden, "direction": "bidirectional"}
        y, *_ = e.op(kind, x, w, r, b, "", *states, results=2, **more)
        steps = e.transpose(y, 0, 2, 1, 3)
        flat = e.reshape(steps, e.size(x, 0), e.size(x, 1), 2 * hidden)
        return [e.op("LogSoftmax", e.linear(flat, 2 * hidden, 30), axis=2)]

    return write


# Transformers ------------------------------------------------------------------------------------

WORDS, WIDTH, HEADS = 61, 32, 4


def ids(rng, shape):
    return rng.integers(0, WORDS, shape)


def mask(rng, shape):
    """Ones, with zeros at the end of all but the first."""
    kept = np.maximum(1, shape[1] - np.arange(shape[0])[:, None])
    return (np.arange(shape[1])[None] < kept).astype(np.int64)


def tokens(e, d):
    shape = d["batch"], d["seq"]
    named = e.input("input_ids", *shape, dtype=TensorProto.INT64, draw=ids)
    return named, e.input("attention_mask", *shape, dtype=TensorProto.INT64, draw=mask)


def heads_of(e, x, like):
    """[batch, seq, width] → [batch, heads, seq, depth]"""
    apart = e.reshape(x, e.size(like, 0), e.size(like, 1), HEADS, WIDTH // HEADS)
    return e.transpose(apart, 0, 2, 1, 3)


def together(e, x):
    x = e.transpose(x, 0, 2, 1, 3)
    return e.reshape(x, e.size(x, 0), e.size(x, 1), WIDTH)


def attention(e, x, bias, scale_first=False):
    """Self-attention over x with what is added to the products, if anything is."""
    q, k, v = (heads_of(e, e.linear(x, WIDTH, WIDTH), x) for _ in range(3))
    root = e.number((WIDTH // HEADS) ** 0.5)
    q = e.op("Div", q, root) if scale_first else q
    products = e.op("MatMul", q, e.transpose(k, 0, 1, 3, 2))
    products = products if scale_first else e.op("Div", products, root)
    products = bias(products) if bias else products
    return e.linear(together(e, e.op("MatMul", e.op("Softmax", products, axis=-1), v)), WIDTH, WIDTH)


def layer_after(e, x, bias, scale_first=False):
    """A layer whose norms come after the sums, as BERT has them."""
    x = e.layer_norm(e.op("Add", attention(e, x, bias, scale_first), x), WIDTH)
    y = e.linear(e.gelu(e.linear(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
    return e.layer_norm(e.op("Add", y, x), WIDTH)


def embedded(e, named):
    words = e.op("Gather", e.weight(WORDS, WIDTH, scale=0.5), named)
    positions = e.slice(e.store(np.arange(64)[None]), 1, 0, e.size(named, 1))
    return e.op("Add", words, e.op("Gather", e.weight(64, WIDTH, scale=0.2), positions))


def bert(e, d):
    """The mask as a large negative bias; token types expanded to the ids' shape; the first token pooled."""
    named, known = tokens(e, d)
    x = embedded(e, named)
    types = e.op("Expand", e.constant([[0]]), e.op("Shape", named))
    x = e.layer_norm(e.op("Add", x, e.op("Gather", e.weight(2, WIDTH), types)), WIDTH)
    wide = e.op("Unsqueeze", e.op("Unsqueeze", known, e.constant([1])), e.constant([2]))
    unknown = e.op("Sub", e.number(1), e.op("Cast", wide, to=TensorProto.FLOAT))
    bias = e.op("Mul", unknown, e.number(-3.4028235e38))
    for _ in range(2):
        x = layer_after(e, x, lambda products: e.op("Add", products, bias))
    first = e.op("Gather", x, e.constant(0), axis=1)
    return [x, e.op("Tanh", e.gemm(first, WIDTH, WIDTH))]


def distilbert(e, d):
    """The mask as a choice, expanded to the products' shape by a comparison."""
    named, known = tokens(e, d)
    x = e.layer_norm(embedded(e, named), WIDTH)

    def masked(products):
        absent = e.op("Equal", known, e.constant(0))
        absent = e.reshape(absent, e.size(named, 0), 1, 1, e.size(named, 1))
        spread = e.op("Expand", absent, e.op("Shape", products))
        return e.op("Where", spread, e.number(-3.4028235e38), products)

    for _ in range(2):
        x = layer_after(e, x, masked, scale_first=True)
    return [x]


def minilm(e, d):
    """Norms in parts, and the mean of the known tokens, normalised."""
    named, known = tokens(e, d)
    x = e.layer_norm(embedded(e, named), WIDTH)
    wide = e.op("Cast", e.op("Unsqueeze", known, e.constant([1, 2])), to=TensorProto.FLOAT)
    bias = e.op("Mul", e.op("Sub", e.number(1), wide), e.number(-10000))
    for _ in range(2):
        x = layer_after(e, x, lambda products: e.op("Add", products, bias))
    weights = e.op("Cast", e.op("Unsqueeze", known, e.constant([2])), to=TensorProto.FLOAT)
    weights = e.op("Expand", weights, e.op("Shape", x))
    total = e.op("ReduceSum", e.op("Mul", x, weights), e.constant([1]), keepdims=0)
    count = e.op("Clip", e.op("ReduceSum", weights, e.constant([1]), keepdims=0), e.number(1e-9))
    mean = e.op("Div", total, count)
    length = e.op("ReduceL2", mean, axes=[1], keepdims=1)
    return [e.op("Div", mean, e.op("Expand", e.op("Clip", length, e.number(1e-12)), e.op("Shape", mean)))]


def gpt2_decode(e, d):
    """One token after a past that each layer appends to; products of flattened rows, as Conv1D exports."""

    def projected(x, inside, out):
        flat = e.op("Reshape", x, e.constant([-1, inside]))
        y = e.op("Gemm", flat, e.weight(inside, out, scale=inside**-0.5), e.weight(out, scale=0.1))
        return e.reshape(y, e.size(x, 0), e.size(x, 1), out)

    def gelu(x):
        cube = e.op("Mul", e.op("Pow", x, e.number(3)), e.number(0.044715))
        inner = e.op("Tanh", e.op("Mul", e.op("Add", x, cube), e.number((2 / np.pi) ** 0.5)))
        return e.op("Mul", e.op("Mul", x, e.number(0.5)), e.op("Add", inner, e.number(1)))

    def integers(rng, shape):
        return np.full(shape, 5)

    one, depth = d["batch"], WIDTH // HEADS
    named = e.input("input_ids", one, 1, dtype=TensorProto.INT64, draw=ids)
    place = e.input("position_ids", one, 1, dtype=TensorProto.INT64, draw=integers)
    pasts = [e.input(f"past_{n}_{s}", one, HEADS, d["past"], depth) for n in range(2) for s in "kv"]
    words = e.weight(WORDS, WIDTH, scale=0.5)
    x = e.op("Add", e.op("Gather", words, named), e.op("Gather", e.weight(64, WIDTH, scale=0.2), place))
    presents = []
    for n in range(2):
        y = projected(e.layer_norm(x, WIDTH), WIDTH, 3 * WIDTH)
        parts = e.op("Split", y, e.constant([WIDTH] * 3), axis=2, results=3)
        q, k, v = (heads_of(e, part, x) for part in parts)
        k, v = (e.op("Concat", past, new, axis=2) for past, new in zip(pasts[2 * n : 2 * n + 2], (k, v)))
        presents += [k, v]
        products = e.op("MatMul", q, e.transpose(k, 0, 1, 3, 2))
        root = e.op("Sqrt", e.op("Cast", e.size(v, 3), to=TensorProto.FLOAT))
        weights = e.op("Softmax", e.op("Div", products, root), axis=-1)
        x = e.op("Add", projected(together(e, e.op("MatMul", weights, v)), WIDTH, WIDTH), x)
        y = gelu(projected(e.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
        x = e.op("Add", x, projected(y, 4 * WIDTH, WIDTH))
    return [e.op("MatMul", e.layer_norm(x, WIDTH), e.transpose(words, 1, 0)), *presents]


def vit(e, d):
    """Patches by a convolution, a class token before them, norms before the sums."""
    x = e.input("image", d["batch"], 3, 32, 32)
    weights, bias = e.weight(WIDTH, 3, 8, 8), e.weight(WIDTH, scale=0.1)
    patches = e.op("Conv", x, weights, bias, kernel_shape=[8, 8], strides=[8, 8])
    n = e.size(patches, 0)
    patches = e.transpose(e.reshape(patches, n, WIDTH, -1), 0, 2, 1)
    token = e.op("Expand", e.weight(1, 1, WIDTH), e.sizes([n, 1, WIDTH]))
    x = e.op("Add", e.op("Concat", token, patches, axis=1), e.weight(1, 17, WIDTH, scale=0.2))
    for _ in range(2):
        x = e.op("Add", attention(e, e.layer_norm(x, WIDTH), None), x)
        y = e.linear(e.gelu(e.linear(e.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)
        x = e.op("Add", y, x)
    return [e.gemm(e.op("Gather", e.layer_norm(x, WIDTH), e.constant(0), axis=1), WIDTH, 10)]


GROUPS = 2  # heads of keys and values in `experts_decode`
EXPERTS = 4


def experts_decode(e, d):
    """Tokens behind a past whose keys and values are repeated for the heads of queries, and of each token
    two experts, picked from the weights of all, as torch.export writes both."""
    b, s, depth = d["batch"], d["seq"], WIDTH // HEADS
    named = e.input("input_ids", b, s, dtype=TensorProto.INT64, draw=ids)
    past = [e.input(f"past_{kind}", b, GROUPS, d["past"], depth) for kind in "kv"]
    x = e.op("Gather", e.weight(WORDS, WIDTH, scale=0.5), named)

    def heads(count):
        y = e.reshape(e.linear(x, WIDTH, count * depth), e.size(x, 0), e.size(x, 1), count, depth)
        return e.transpose(y, 0, 2, 1, 3)

    def repeated(y):
        each = [e.size(y, 0), GROUPS, HEADS // GROUPS, e.size(y, 2), depth]
        many = e.op("Expand", e.op("Unsqueeze", y, e.constant([2])), e.sizes(each))
        return e.reshape(many, e.size(y, 0), HEADS, e.size(y, 2), depth)

    q, *new = heads(HEADS), heads(GROUPS), heads(GROUPS)
    presents = [e.op("Concat", old, y, axis=2) for old, y in zip(past, new)]
    k, v = map(repeated, presents)
    root = e.number(depth**-0.25)
    scores = e.op("MatMul", e.op("Mul", q, root), e.op("Mul", e.transpose(k, 0, 1, 3, 2), root))
    weights = e.op("Softmax", scores, axis=-1)
    weights = e.op("Where", e.op("IsNaN", weights), e.number(0), weights)
    x = e.op("Add", x, e.linear(together(e, e.op("MatMul", weights, v)), WIDTH, WIDTH))

    rows = e.op("Reshape", e.layer_norm(x, WIDTH), e.constant([-1, WIDTH]))
    routes = e.op("Softmax", e.op("MatMul", rows, e.weight(WIDTH, EXPERTS, scale=1.0)), axis=-1)
    shares, chosen = e.op("TopK", routes, e.constant([2]), axis=-1, results=2)
    twice = e.op("Expand", e.op("Unsqueeze", rows, e.constant([1])), e.sizes([e.size(rows, 0), 2, WIDTH]))
    y = e.op("Reshape", twice, e.constant([-1, WIDTH, 1]))
    picks = e.op("Reshape", chosen, e.constant([-1, 1]))

    def expert(y, inside, out):
        stacked = e.op("GatherND", e.weight(EXPERTS, out, inside, scale=inside**-0.5), picks)
        return e.op("MatMul", stacked, y)

    gate, up = e.op("Split", expert(y, WIDTH, 4 * WIDTH), e.constant([2 * WIDTH] * 2), axis=1, results=2)
    y = expert(e.op("Mul", e.op("Mul", gate, e.op("Sigmoid", gate)), up), 2 * WIDTH, WIDTH)
    y = e.op(
        "Mul", e.op("Reshape", y, e.constant([-1, 2, WIDTH])), e.op("Unsqueeze", shares, e.constant([2]))
    )
    y = e.op("ReduceSum", y, e.constant([1]), keepdims=0)
    return [e.op("Add", x, e.reshape(y, e.size(x, 0), e.size(x, 1), WIDTH)), *presents]


IMAGES = {"batch": (1, 2, 1), "height": (32, 40, 64), "width": (32, 24, 48)}
TEXTS = {"batch": (1, 3, 2), "seq": (16, 7, 33)}
BATCHES = {"batch": (1, 3)}

ARCHITECTURES = {
    "resnet_basic": Architecture(resnet_basic, IMAGES),
    "resnet_bottleneck": Architecture(resnet_bottleneck, IMAGES),
    "mobilenetv2": Architecture(mobilenetv2, IMAGES),
    "squeezenet": Architecture(squeezenet, IMAGES),
    "shufflenet": Architecture(shufflenet, IMAGES),
    "alexnet": Architecture(alexnet, BATCHES),
    "vgg": Architecture(vgg, BATCHES),
    "detector": Architecture(detector, IMAGES),
    "unet": Architecture(unet, IMAGES),
    "text_detector": Architecture(text_detector, IMAGES),
    "lstm_recogniser": Architecture(_recogniser("LSTM", 4), {"batch": (1, 3), "width": (40, 27)}),
    "gru_recogniser": Architecture(_recogniser("GRU", 3), {"batch": (1, 3), "width": (40, 27)}),
    "bert": Architecture(bert, TEXTS),
    "distilbert": Architecture(distilbert, TEXTS),
    "minilm": Architecture(minilm, TEXTS, opset=14),
    "gpt2_decode": Architecture(gpt2_decode, {"batch": (1, 2, 1), "past": (7, 1, 40)}),
    "experts_decode": Architecture(
        experts_decode, {"batch": (1, 2, 1), "seq": (1, 5, 3), "past": (9, 1, 40)}
    ),
    "vit": Architecture(vit, BATCHES),
}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, architecture in ARCHITECTURES.items():
        onnx.save(architecture.model(), folder / f"{name}.onnx")
