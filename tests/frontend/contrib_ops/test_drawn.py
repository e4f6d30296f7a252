"""Operators of com.microsoft over drawn sizes, types and attributes mean what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from support.contrib import Case, check

SIZES = (1, 2, 3, 5, 8, 17)


def floats(rng: Generator, *shape: int) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)


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


DRAWN: list[Callable[[Generator], Case]] = [
    *(skip_layer, skip_simplified, fused_product, gelu, attention, several_heads),
    *(grouped, few_bits, quantised_pair, distances),
]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("draw", DRAWN, ids=lambda f: f.__name__)
def test_a_drawn_case_gives_what_onnxruntime_does(draw, seed):
    rng = np.random.default_rng(seed)
    check(draw(rng), symbolic=bool(rng.integers(2)) and draw is not few_bits)
