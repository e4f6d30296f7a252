"""Draws of com.microsoft's operators: sizes, types, attributes and which inputs are there. A schema of ONNX
Runtime says less than those of onnx (no defaults, few types), so each operator has a function of its own."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.random import Generator

from .contrib import Case, floats

SIZES = (1, 2, 3, 5, 8, 17)


def maybe(rng: Generator, value: np.ndarray) -> np.ndarray | None:
    return value if rng.random() < 0.5 else None


def visible(rng: Generator, *shape: int) -> np.ndarray:
    """A mask of ones and zeros; who sees nothing adds -10000 to all scores, which takes their last digits."""
    mask = (rng.random(shape) < 0.7).astype(np.int32)
    mask[..., 0] = 1
    return mask


def trimmed(*inputs: np.ndarray | None) -> list[np.ndarray | None]:
    """The inputs without absent ones at the end."""
    found = list(inputs)
    while found[-1] is None:
        found.pop()
    return found


def sizes(rng: Generator, count: int) -> list[int]:
    return [int(n) for n in rng.choice(SIZES, count)]


def half(rng: Generator, case: Case) -> Case:
    """The case, or the same over float16."""
    if rng.random() < 0.7:
        return case
    narrow = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in case.inputs]
    return Case(case.op, narrow, case.attributes, case.outputs, tolerance=4e-3)


def skip_layer(rng: Generator) -> Case:
    batch, length, width = sizes(rng, 3)
    skip = [(batch, length, width), (length, width), (1, length, width)][rng.integers(3)]
    optional = maybe(rng, floats(rng, width)), maybe(rng, floats(rng, width))
    inputs = trimmed(floats(rng, batch, length, width), floats(rng, *skip), floats(rng, width), *optional)
    return half(rng, Case("SkipLayerNormalization", inputs, {"epsilon": 1e-3}, (0, 3)))


def skip_simplified(rng: Generator) -> Case:
    shape = sizes(rng, int(rng.integers(2, 4)))
    optional = maybe(rng, floats(rng, shape[-1]))
    inputs = trimmed(floats(rng, *shape), floats(rng, *shape), floats(rng, shape[-1]), optional)
    return half(rng, Case("SkipSimplifiedLayerNormalization", inputs, {"epsilon": 1e-3}, (0, 3)))


def fused_product(rng: Generator) -> Case:
    turned = [int(n) for n in rng.integers(0, 2, 2)]
    m, k, n, *batch = sizes(rng, int(rng.integers(3, 6)))
    left, right = ([m, k], [k, n])
    shapes = [batch + (s[::-1] if t else s) for s, t in zip((left, right), turned, strict=True)]
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": float(rng.normal())}
    return half(rng, Case("FusedMatMul", [floats(rng, *s) for s in shapes], attributes, tolerance=1e-4))


def gelu(rng: Generator) -> Case:
    shape = sizes(rng, int(rng.integers(1, 4)))
    name = rng.choice(["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
    more = [floats(rng, shape[-1])] if name in ("BiasGelu", "FastGelu") else []
    return half(rng, Case(str(name), [floats(rng, *shape), *more]))


def attention(rng: Generator) -> Case:
    batch, length, heads, size, width = sizes(rng, 5)
    before = int(rng.integers(0, 4))
    past = None if not before else floats(rng, 2, batch, heads, before, size)
    keys = length + before
    lengths = rng.integers(1, keys + 1, batch).astype(np.int32)
    mask = [None, lengths, visible(rng, batch, keys), visible(rng, batch, length, keys)][rng.integers(4)]
    added = maybe(rng, floats(rng, batch if rng.random() < 0.5 else 1, heads, length, keys))
    added = added if past is None else None  # ONNX Runtime does not take both
    wide = 3 * heads * size
    inputs = [floats(rng, batch, length, width), floats(rng, width, wide), floats(rng, wide)]
    attributes = {"num_heads": heads, "unidirectional": int(rng.integers(2)), "scale": 0.4}
    return Case(
        "Attention",
        trimmed(*inputs, mask, past, added),
        attributes,
        (0,) if past is None else (0, 1),
        stored=(1, 2) if rng.random() < 0.5 else (),
        tolerance=1e-4,
    )


def several_heads(rng: Generator) -> Case:
    batch, queries, keys, heads, size = sizes(rng, 5)
    other = int(rng.choice([size, 3]))
    widths = [heads * size, heads * size, heads * other]
    counts = (queries, keys, keys)
    q, k, v = (floats(rng, batch, n, w) for n, w in zip(counts, widths, strict=True))
    mask = maybe(rng, visible(rng, batch, keys))
    added = maybe(rng, floats(rng, 1, heads, queries, keys))
    inputs = trimmed(q, k, v, maybe(rng, floats(rng, sum(widths))), mask, added)
    return Case("MultiHeadAttention", inputs, {"num_heads": heads}, tolerance=1e-4)


def grouped(rng: Generator) -> Case:
    """A prompt, or a step of decoding with sequences of several lengths."""
    groups, each = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, size = groups * each, 16 * int(rng.integers(1, 3))
    prompt = rng.random() < 0.5
    batch, total = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    queries = total if prompt else 1
    lengths = np.full(batch, total) if prompt else rng.integers(1, total + 1, batch)
    lengths[0] = total
    past = [np.zeros((batch, groups, 0 if prompt else total - 1, size), np.float32) for _ in range(2)]
    for row, length in enumerate(lengths):
        for cache in past:
            kept = 0 if prompt else length - 1
            cache[row, :, :kept] = floats(rng, groups, kept, size)
    q, k, v = (floats(rng, batch, queries, n * size) for n in (heads, groups, groups))
    tables = [floats(rng, 20, size // 2) for _ in range(2)] if (turned := rng.random() < 0.5) else []
    first = [np.concatenate([q, k, v], -1), None, None] if rng.random() < 0.5 else [q, k, v]
    attributes = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": int(turned)}
    attributes |= {"rotary_interleaved": int(rng.integers(2))}
    attributes |= {"local_window_size": int(rng.integers(1, 5))} if rng.random() < 0.3 else {}
    attributes |= {"softcap": 2.0} if rng.random() < 0.3 else {}
    inputs = [*first, *past, (lengths - 1).astype(np.int32), np.array([total], np.int32), *tables]
    return Case("GroupQueryAttention", inputs, attributes, (0, 1, 2), tolerance=1e-4)


def few_bits(rng: Generator) -> Case:
    bits, block = int(rng.choice([4, 8])), int(rng.choice([16, 32, 64]))
    rows, n = sizes(rng, 2)
    k = int(rng.integers(1, 100))
    blocks = -(-k // block)
    weights = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    zero = maybe(rng, rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8))
    inputs = trimmed(floats(rng, rows, k), weights, np.abs(floats(rng, n, blocks)) / 8, zero)
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    attributes["accuracy_level"] = int(rng.choice([0, 4]))
    return Case("MatMulNBits", inputs, attributes, stored=range(1, len(inputs)), tolerance=1e-4)


def quantised_pair(rng: Generator) -> Case:
    dtype = rng.choice([np.uint8, np.int8])
    info, shape = np.iinfo(dtype), sizes(rng, int(rng.integers(1, 4)))
    other = [n if rng.random() < 0.7 else 1 for n in shape]
    inputs: list[np.ndarray | None] = []
    for part in (shape, other, None):
        data = [] if part is None else [rng.integers(info.min, info.max + 1, part).astype(dtype)]
        step = np.array(rng.uniform(0.01, 0.05) * (4 if part is None else 1), np.float32)
        inputs += [*data, step, np.array(rng.integers(info.min, info.max), dtype)]
    return Case(str(rng.choice(["QLinearAdd", "QLinearMul"])), inputs, tolerance=1)


def distances(rng: Generator) -> Case:
    m, n, k = sizes(rng, 3)
    dtype, metric = rng.choice([np.float32, np.float64]), str(rng.choice(["euclidean", "sqeuclidean"]))
    points = [floats(rng, rows, k).astype(dtype) for rows in (m, n)]
    return Case("CDist", points, {"metric": metric}, tolerance=1e-4)


# Quantised numbers -------------------------------------------------------------------------------

BYTES = (np.uint8, np.int8)


def codes(rng: Generator, dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def step(rng: Generator, least: float = 0.01) -> np.ndarray:
    return np.array(least * rng.integers(1, 6), np.float32)


def quantised(rng: Generator, dtype: type, *shape: int, least: float = 0.01) -> list[np.ndarray | None]:
    """Codes, their step and their zero point."""
    return [codes(rng, dtype, *shape), step(rng, least), codes(rng, dtype)]


def q_unary(rng: Generator) -> Case:
    dtype = BYTES[rng.integers(2)]
    name = str(rng.choice(["QLinearSigmoid", "QLinearLeakyRelu"]))
    result = [np.float32(1 / 256), dtype(np.iinfo(dtype).min)]
    inputs = [*quantised(rng, dtype, *sizes(rng, int(rng.integers(1, 4)))), *result]
    return Case(name, inputs, {"alpha": 0.2} if name.endswith("Relu") else {}, tolerance=1)


def q_softmax(rng: Generator) -> Case:
    dtype, shape = BYTES[rng.integers(2)], sizes(rng, int(rng.integers(2, 4)))
    result = [np.float32(1 / 256), dtype(np.iinfo(dtype).min)]
    attributes = {"axis": int(rng.integers(len(shape))), "opset": int(rng.choice([11, 13]))}
    return Case("QLinearSoftmax", [*quantised(rng, dtype, *shape), *result], attributes, tolerance=1)


def q_where(rng: Generator) -> Case:
    dtype, shape = BYTES[rng.integers(2)], sizes(rng, int(rng.integers(1, 4)))
    parts = [quantised(rng, dtype, *shape), quantised(rng, dtype, *shape[1:])]
    condition = rng.random(shape if rng.random() < 0.5 else (1,)) < 0.5
    return Case("QLinearWhere", [condition, *parts[0], *parts[1], *quantised(rng, dtype)[1:]], tolerance=1)


def q_concat(rng: Generator) -> Case:
    dtype, shape = BYTES[rng.integers(2)], sizes(rng, int(rng.integers(1, 4)))
    axis, inputs = int(rng.integers(len(shape))), quantised(rng, dtype)[1:]
    for size in sizes(rng, int(rng.integers(1, 4))):
        inputs += quantised(rng, dtype, *shape[:axis], size, *shape[axis + 1 :])
    return Case("QLinearConcat", inputs, {"axis": axis - len(shape) * int(rng.integers(2))}, tolerance=1)


def q_pool(rng: Generator) -> Case:
    dtype, last = BYTES[rng.integers(2)], int(rng.integers(2))
    batch, channels = sizes(rng, 2)
    image = [int(n) for n in rng.choice([3, 4, 7, 9], 2)]
    shape = [batch, *image, channels] if last else [batch, channels, *image]
    inputs = [*quantised(rng, dtype, *shape), *quantised(rng, dtype)[1:]]
    if rng.random() < 0.3:
        return Case("QLinearGlobalAveragePool", inputs, {"channels_last": last}, tolerance=1)
    attributes = {"kernel_shape": [int(n) for n in rng.integers(1, 4, 2)], "channels_last": last}
    attributes |= {"strides": [int(n) for n in rng.integers(1, 3, 2)], "ceil_mode": int(rng.integers(2))}
    return Case("QLinearAveragePool", inputs, attributes, tolerance=1)


def integer_product(rng: Generator) -> Case:
    first, second = (BYTES[n] for n in rng.integers(0, 2, 2))
    second = np.int8 if first == np.int8 else second  # ONNX Runtime has no kernel of int8 and uint8
    m, k, n = sizes(rng, 3)
    batch = sizes(rng, int(rng.integers(0, 3)))
    columns = rng.random() < 0.5
    scale_b = np.abs(floats(rng, n)) * np.float32(0.02) + np.float32(0.01) if columns else step(rng)
    zero_b = maybe(rng, codes(rng, second, n) if columns else codes(rng, second))
    bias = maybe(rng, floats(rng, n))
    b = codes(rng, second, k, n)
    if rng.random() < 0.5:
        inputs = [floats(rng, *batch, m, k), b, scale_b, zero_b, bias]
        return Case("DynamicQuantizeMatMul", trimmed(*inputs), tolerance=1e-4)
    zero_a = maybe(rng, codes(rng, first))
    inputs = [codes(rng, first, *batch, m, k), b, step(rng), scale_b, zero_a, zero_b, bias]
    return Case("MatMulIntegerToFloat", trimmed(*inputs), tolerance=1e-4)


def q_gemm(rng: Generator) -> Case:
    first = BYTES[rng.integers(2)]
    second = np.int8 if first == np.int8 else BYTES[rng.integers(2)]
    m, k, n = sizes(rng, 3)
    turned = [int(t) for t in rng.integers(0, 2, 2)]
    shapes = [s[::-1] if t else s for s, t in zip(((m, k), (k, n)), turned)]
    a, b = quantised(rng, first, *shapes[0]), quantised(rng, second, *shapes[1])
    c = rng.integers(-99, 99, (n,)).astype(np.int32) if rng.random() < 0.5 else None
    result = quantised(rng, first, least=0.5)[1:] if rng.random() < 0.5 else []
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": float(rng.choice([1.0, 0.5]))}
    return Case("QGemm", trimmed(*a, *b, c, *result), attributes, tolerance=1 if result else 1e-4)


def q_attention(rng: Generator) -> Case:
    batch, length, heads, size, width = sizes(rng, 5)
    wide, weights = 3 * heads * size, BYTES[rng.integers(2)]
    inputs = [codes(rng, np.uint8, batch, length, width), codes(rng, weights, width, wide), floats(rng, wide)]
    mask = [None, visible(rng, batch, length)][rng.integers(2)]
    inputs += [np.float32(0.02), np.float32(0.01), mask, np.uint8(3), weights(5)]
    attributes = {"num_heads": heads, "unidirectional": int(rng.integers(2))}
    return Case("QAttention", inputs, attributes, stored=(1, 2, 3, 4, 6, 7), tolerance=1e-4)


def conversion(rng: Generator) -> Case:
    dtype = (np.uint8, np.int8, np.int16, np.uint16)[rng.integers(4)]
    shape = sizes(rng, int(rng.integers(1, 4)))
    axis = int(rng.integers(len(shape)))
    by_axis = [shape[axis]] if rng.random() < 0.5 else []
    steps = np.abs(floats(rng, *by_axis)) * np.float32(0.02) + np.float32(0.01)
    zero, attributes = codes(rng, dtype, *by_axis), {"axis": axis}
    if rng.random() < 0.5:
        return Case("QuantizeLinear", [floats(rng, *shape), steps, zero], attributes, tolerance=1)
    return Case("DequantizeLinear", [codes(rng, dtype, *shape), steps, zero], attributes, tolerance=1e-4)


def q_embedding(rng: Generator) -> Case:
    batch, length, width = sizes(rng, 3)
    ids = [rng.integers(0, n, (batch, length)).astype(np.int32) for n in (11, 2)]
    tables = [quantised(rng, np.uint8, n, width) for n in (11, max(length, 7), 2)]
    tables += [quantised(rng, np.uint8, width) for _ in range(2)]
    parts = [list(part) for part in zip(*tables)]
    mask = maybe(rng, visible(rng, batch, length))
    return Case(
        "QEmbedLayerNormalization", [*ids, *parts[0], mask, *parts[1], *parts[2]], {}, (0, 1), tolerance=1e-3
    )


def q_recurrent(rng: Generator) -> Case:
    """Of one sequence: of several, what ONNX Runtime rounds together depends on its threads."""
    ways, hidden, (steps, width) = int(rng.integers(1, 3)), int(rng.choice([4, 1, 8])), sizes(rng, 2)
    inputs = [floats(rng, steps, 1, width), codes(rng, np.int8, ways, width, 4 * hidden)]
    inputs += [codes(rng, np.int8, ways, hidden, 4 * hidden), maybe(rng, floats(rng, ways, 8 * hidden)), None]
    inputs += [maybe(rng, floats(rng, ways, 1, hidden) / 9), None, None]
    for _ in range(2):
        inputs += [np.full(ways, 0.004, np.float32), np.zeros(ways, np.int8)]
    attributes = {"hidden_size": hidden, "direction": "bidirectional" if ways == 2 else "forward"}
    return Case("DynamicQuantizeLSTM", inputs, attributes, (0, 1, 2), tolerance=1e-4)


# Others ------------------------------------------------------------------------------------------

ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid")


def fused_convolution(rng: Generator) -> Case:
    batch, per, out = sizes(rng, 3)
    group, kernel = int(rng.integers(1, 3)), [int(n) for n in rng.integers(1, 4, 2)]
    image = [int(n) for n in rng.choice([3, 5, 8, 9], 2)]
    inputs = [floats(rng, batch, group * per, *image), floats(rng, group * out, per, *kernel)]
    result = [n - k + 1 for n, k in zip(image, kernel)]
    bias, added = maybe(rng, floats(rng, group * out)), maybe(rng, floats(rng, batch, group * out, *result))
    name = str(rng.choice(ACTIVATIONS))
    parameters = {"LeakyRelu": [0.2], "HardSigmoid": [0.3, 0.4]}.get(name)
    attributes = {"group": group, "activation": name}
    attributes |= {"activation_params": parameters} if parameters else {}
    return Case("FusedConv", trimmed(*inputs, bias, added), attributes, tolerance=1e-4)


def fused_gemm(rng: Generator) -> Case:
    m, k, n = sizes(rng, 3)
    turned = [int(t) for t in rng.integers(0, 2, 2)]
    shapes = [s[::-1] if t else s for s, t in zip(((m, k), (k, n)), turned)]
    c = maybe(rng, floats(rng, *[(n,), (m, n), (m, 1)][rng.integers(3)]))
    attributes = {
        "transA": turned[0],
        "transB": turned[1],
        "alpha": 0.5,
        "activation": str(rng.choice(ACTIVATIONS)),
    }
    if attributes["activation"] in ("LeakyRelu", "HardSigmoid"):
        attributes["activation_alpha"] = 0.3
    if attributes["activation"] == "HardSigmoid":
        attributes["activation_beta"] = 0.4  # ONNX Runtime has no default
    return Case("FusedGemm", trimmed(*(floats(rng, *s) for s in shapes), c), attributes, tolerance=1e-4)


def simplified(rng: Generator) -> Case:
    shape = sizes(rng, int(rng.integers(1, 4)))
    axis = int(rng.integers(len(shape)))
    attributes = {"axis": axis - len(shape), "epsilon": 1e-3}
    inputs = [floats(rng, *shape), floats(rng, *shape[axis:])]
    return Case("SimplifiedLayerNormalization", inputs, attributes, domain="", tolerance=1e-4)


def embedding(rng: Generator) -> Case:
    batch, length, width = sizes(rng, 3)
    words, segments = (rng.integers(0, n, (batch, length)).astype(np.int32) for n in (11, 2))
    tables = [floats(rng, 11, width), floats(rng, max(length, 7), width), floats(rng, 2, width)]
    tables += [floats(rng, width), floats(rng, width)]
    mask = maybe(rng, visible(rng, batch, length))
    inputs = trimmed(words, segments, *tables, mask)
    return Case("EmbedLayerNormalization", inputs, {"epsilon": 1e-3}, (0, 1), tolerance=1e-4)


def rotary(rng: Generator) -> Case:
    batch, length, heads = sizes(rng, 3)
    half = int(rng.choice([1, 2, 8]))
    shape = [(batch, length, heads * 2 * half), (batch, heads, length, 2 * half)][rng.integers(2)]
    places = rng.integers(0, 20, (batch, length)) if rng.random() < 0.5 else np.array([3])
    inputs = [floats(rng, *shape), places, floats(rng, 40, half), floats(rng, 40, half)]
    return Case("RotaryEmbedding", inputs, {"interleaved": int(rng.integers(2))})


def mixture(rng: Generator) -> Case:
    experts, width, inner, rows = int(rng.choice([2, 4])), 8, 16, int(rng.choice([1, 3, 5]))
    kind = str(rng.choice(["relu", "gelu", "silu", "identity"]))
    inputs = [floats(rng, rows, width), floats(rng, rows, experts) * 4, floats(rng, experts, inner, width)]
    inputs += [maybe(rng, floats(rng, experts, inner)), floats(rng, experts, width, inner)]
    inputs += [maybe(rng, floats(rng, experts, width))]
    attributes = {"k": int(rng.integers(1, experts + 1)), "activation_type": kind}
    attributes |= {"normalize_routing_weights": int(rng.integers(2))}
    return Case("MoE", trimmed(*inputs), attributes, tolerance=1e-3)


def q_mixture(rng: Generator) -> Case:
    experts, width, inner, rows = int(rng.choice([2, 4])), 32, 64, int(rng.choice([1, 3, 5]))
    bits = int(rng.choice([4, 8]))
    inputs = [floats(rng, rows, width), floats(rng, rows, experts) * 4]
    for out, columns in ((inner, width), (width, inner)):
        inputs += [codes(rng, np.uint8, experts, out, columns * bits // 8)]
        inputs += [np.abs(floats(rng, experts, out)) / np.float32(4 << bits), floats(rng, experts, out)]
    attributes = {"k": int(rng.integers(1, 3)), "expert_weight_bits": bits}
    attributes["activation_type"] = str(rng.choice(["relu", "silu", "gelu"]))
    return Case("QMoE", inputs, attributes, stored=range(2, len(inputs)), tolerance=1e-3)


def bits_and_bytes(rng: Generator) -> Case:
    block, kind, (rows, n) = int(rng.choice([16, 32, 64])), int(rng.integers(2)), sizes(rng, 2)
    k = int(rng.integers(1, 70))
    inputs = [floats(rng, rows, k), codes(rng, np.uint8, (n * k + 1) // 2)]
    inputs += [np.abs(floats(rng, -(-n * k // block)))]
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": kind}
    return Case("MatMulBnb4", inputs, attributes, stored=(1, 2), tolerance=1e-3)


def gathered(rng: Generator) -> Case:
    block, rows = int(rng.choice([16, 32])), int(rng.choice([1, 5, 17]))
    width = block * int(rng.integers(1, 4))
    data = rng.integers(0, 16, (rows, width)).astype(ml_dtypes.uint4)
    scales = np.abs(floats(rng, rows, width // block))
    zero = maybe(rng, rng.integers(0, 16, scales.shape).astype(ml_dtypes.uint4))
    places = rng.integers(-rows - 1, rows + 1, sizes(rng, int(rng.integers(1, 3))))
    inputs = trimmed(data, places, scales, zero)
    return Case("GatherBlockQuantized", inputs, {"block_size": block, "quantize_axis": 1}, stored=(0, 3))


def small(rng: Generator) -> Case:
    """Of operators that ONNX has too, as they were before."""
    shape, n = sizes(rng, int(rng.integers(2, 4))), int(rng.choice([1, 2, 3, 5]))
    x = floats(rng, *shape)
    pads = rng.integers(0, 3, 2 * len(shape))
    value = maybe(rng, np.float32([7]))
    square = floats(rng, *shape[2:], n, n) + 4 * np.eye(n, dtype=np.float32)
    return [
        Case("ExpandDims", [x, np.int32(rng.integers(-len(shape) - 1, len(shape) + 1))], stored=(1,)),
        Case("Inverse", [square], tolerance=1e-3),
        Case("Trilu", trimmed(x, maybe(rng, np.array(rng.integers(-2, 3)))), {"upper": int(rng.integers(2))}),
        Case("Unique", [np.round(x.reshape(-1))], outputs=(0, 1, 2)),
        Case("Pad", trimmed(x, pads, value)),
    ][rng.integers(5)]


DRAWS: dict[str, Callable[[Generator], Case]] = {
    **{"SkipLayerNormalization": skip_layer, "SkipSimplifiedLayerNormalization": skip_simplified},
    **dict.fromkeys(("Gelu", "BiasGelu", "FastGelu", "QuickGelu"), gelu),
    **{"FusedMatMul": fused_product, "Attention": attention, "MultiHeadAttention": several_heads},
    **{"GroupQueryAttention": grouped, "MatMulNBits": few_bits, "CDist": distances},
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), quantised_pair),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu"), q_unary),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), q_pool),
    **{"QLinearSoftmax": q_softmax, "QLinearWhere": q_where, "QLinearConcat": q_concat, "QGemm": q_gemm},
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), integer_product),
    **{
        "QAttention": q_attention,
        "QEmbedLayerNormalization": q_embedding,
        "DynamicQuantizeLSTM": q_recurrent,
    },
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), conversion),
    **{"FusedConv": fused_convolution, "FusedGemm": fused_gemm, "SimplifiedLayerNormalization": simplified},
    **{"EmbedLayerNormalization": embedding, "RotaryEmbedding": rotary},
    **{"MoE": mixture, "QMoE": q_mixture, "MatMulBnb4": bits_and_bytes, "GatherBlockQuantized": gathered},
    **dict.fromkeys(("ExpandDims", "Inverse", "Trilu", "Unique", "Pad"), small),
}
