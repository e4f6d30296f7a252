"""Draws of operators that sum: products, reductions, normalisations, attention, recurrences, signals."""

from __future__ import annotations

import numpy as np

from .drawn import BOOL, Draw, Unfit
from .drawn_elementwise import broadcast

WIDE = (np.float32, np.float64)


def wide(dtype: np.dtype) -> bool:
    return dtype in WIDE


def matmul(d: Draw) -> None:
    a, b = d.schema.inputs[0].name, "B" if d.is_input("B") else "b"
    m, k, n = (d.size() for _ in range(3))
    batch = d.shape(d.choice((0, 1, 2)))[:2]
    batch = [min(size, 5) for size in batch]
    k = max(k, 1) if d.schema.name != "MatMul" else k  # of no product ONNX Runtime gives anything
    left, right = [*batch, min(m, 33), min(k, 33)], [*broadcast(d, batch), min(k, 33), min(n, 33)]
    left, right = (left[-1:] if d.chance(6) else left), (right[-2:-1] if d.chance(6) else right)
    for name, shape in ((a, left), (b, right)):
        d.take(name, shape, among=lambda t: "float8" not in t.name)
    d.atol = 1e-1 if d.dtype(a).itemsize < 4 else 1e-4
    if d.schema.name == "MatMulInteger":
        d.optional("a_zero_point", (), 0, 3)
        d.optional("b_zero_point", (), 0, 3)
    if d.schema.name == "QLinearMatMul":
        if len(left) < 2 or len(right) < 2:
            raise Unfit
        for name in "aby":
            scale = d.dtype(f"{name}_scale", lambda t: t == np.float32)
            d.inputs[f"{name}_scale"] = np.asarray(0.5 if name == "y" else 0.25, scale)
            d.inputs[f"{name}_zero_point"] = d.array(d.dtype(f"{name}_zero_point"), (), 0, 3)
        d.atol = 1.01


def gemm(d: Draw) -> None:
    m, n = (d.choice((1, 3, 17, 8, 0, 33)) for _ in range(2))
    k = d.choice((1, 3, 17, 8, 33))  # where there are no products ONNX Runtime forgets beta
    if "broadcast" in d.schema.attributes:
        m, n = max(m, 1), max(n, 1)
    for name, shape in (("A", [m, k]), ("B", [k, n])):
        turned = d.chance()
        d.attributes[f"trans{name}"] = int(turned)
        d.take(name, shape[::-1] if turned else shape)
    d.maybe("alpha", 0.5)
    d.maybe("beta", 0.25)
    if d.version < 11 or d.chance():
        old = "broadcast" in d.schema.attributes
        shape = d.choice(([m, n], [n])) if old else d.choice(([m, n], [n], [1], [m, 1], []))
        d.take("C", shape)
        d.attributes |= {"broadcast": 1} if old and len(shape) < 2 else {}
    if d.dtype("A").kind in "iu":
        for name in ("alpha", "beta"):
            d.attributes.pop(name, None)
    d.atol = 1e-1 if d.dtype("A").itemsize < 4 else 1e-4


def einsum(d: Draw) -> None:
    i, j, k = (d.choice((3, 1, 5, 2)) for _ in range(3))
    shapes = {"i": i, "j": j, "k": k}
    equation = d.choice(("ij,jk->ik", "ij->ji", "ij,ij->i", "ii->i", "ij,k->ijk", "...j,jk->...k", "ij->"))
    dtype = d.dtype("Inputs", lambda t: t in (np.float32, np.float64, np.int32, np.int64))
    for part in equation.split("->")[0].split(","):
        d.variadic.append(d.array(dtype, [shapes[c] for c in part.replace("...", "i")]))
    d.attributes["equation"] = equation
    d.atol = 1e-4


def reduce(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    name = d.schema.name
    if name != "ReduceSum" or d.version < 13:
        shape = [max(n, 1) for n in shape]  # the others of ONNX Runtime give what is empty in other shapes
    low, high = (0.5, 2) if "Log" in name or name == "ReduceProd" else (-4, 4)
    d.take("data", shape, low, high, lambda t: t.kind == "f" or not ("Log" in name or "Prod" in name))
    if d.chance():
        d.give(
            "axes",
            [a % len(shape) for a in d.axes(len(shape), 1)] if d.version < 11 else d.axes(len(shape), 1),
        )
    d.maybe("keepdims", 0, 1)
    d.maybe("noop_with_empty_axes", 0, 1)
    small = d.dtype("data").itemsize < 4 and d.dtype("data").kind not in "iu"
    d.rtol, d.atol = (2e-2, 1e-1) if small else (1e-3, 1e-3)


def arg_extreme(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4), least=1)
    x = d.take("data", shape)
    if x.dtype.kind == "f":
        d.inputs["data"] = (d.data.permutation(x.size).reshape(shape) / 8).astype(x.dtype)
    d.attributes["axis"] = d.axis(len(shape))
    d.maybe("keepdims", 0, 1)
    if d.inputs["data"].dtype.kind == "f" and d.inputs["data"].dtype.itemsize > 2:
        d.maybe("select_last_index", 0, 1)


def softmax(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))  # of old versions the onnx package has the new axis
    d.take("input", shape, among=lambda t: t == np.float32 or d.version >= 13)
    d.attributes["axis"] = d.axis(len(shape))
    d.atol = 1e-2 if d.dtype("input").itemsize < 4 else 1e-5


def lp_norm(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    d.take("input", shape, 0.5, 4)
    d.attributes["axis"] = d.axis(len(shape))
    d.maybe("p", 1, 2)
    d.atol = 1e-2 if d.dtype("input").itemsize < 4 else 1e-5


def batch_norm(d: Draw) -> None:
    shape = d.shape(d.choice((4, 3, 2)), least=1)
    d.take("X", shape)
    if "spatial" in d.schema.attributes:
        d.attributes |= {"is_test": 1} if "is_test" in d.schema.attributes else {}
    if d.version == 1:
        d.attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    for formal in d.schema.inputs[1:]:
        d.take(formal.name, shape[1:2], 0.5, 2)
    d.maybe("epsilon", 1e-3)
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-4


def instance_norm(d: Draw) -> None:
    x = d.schema.inputs[0].name
    shape = [d.choice((1, 2)), d.choice((1, 4, 6)), *(d.choice((2, 3, 9)) for _ in range(d.choice((2, 1))))]
    d.take(x, shape)
    channels = shape[1]
    if d.schema.name == "GroupNormalization":
        d.attributes["num_groups"] = groups = 2 if channels % 2 == 0 else 1
        channels = groups if d.version < 21 else channels
    for name in ("scale", "B", "bias"):
        if d.is_input(name):
            d.take(name, [channels])
    d.maybe("epsilon", 1e-3)
    d.atol = 1e-1 if d.dtype(x).itemsize < 4 else 1e-3


def layer_norm(d: Draw) -> None:
    shape = [max(n, 1) for n in d.shape(d.integer(1, 3))]
    shape[-1] = max(shape[-1], 2)
    axis = d.integer(0, len(shape) - 1)
    d.take("X", shape)
    d.take("Scale" if d.is_input("Scale") else "scale", shape[axis:])
    d.optional("B", shape[axis:])
    d.attributes["axis"] = axis - len(shape)
    d.maybe("epsilon", 1e-3)
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-3


def mean_variance(d: Draw) -> None:
    d.take("X", [d.choice((2, 3)), d.choice((1, 3)), 5, d.choice((4, 7))])
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-3


def lrn(d: Draw) -> None:
    shape = [d.choice((1, 2)), d.choice((1, 3, 9)), 3, d.choice((2, 5))]
    d.take("X", shape, among=lambda t: t == np.float32)  # the onnx package sums up to the fifth channel
    d.attributes["size"] = d.choice((3, 1, 5))
    d.maybe("alpha", 0.01)
    d.maybe("bias", 2.0)
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-4


def det(d: Draw) -> None:
    n = d.choice((2, 1, 3, 5))
    d.take("X", [*d.shape(most_rank=1, least=1)[:1], n, n], -2, 2)
    d.rtol, d.atol = (5e-2, 5e-1) if d.dtype("X").itemsize < 4 else (1e-3, 1e-3)


def loss(d: Draw) -> None:
    scores, labels, weights = (i.name for i in d.schema.inputs)
    rows, classes, rest = d.size(1), d.choice((2, 5, 1)), d.choice(([], [3], [2, 2]))
    d.take(scores, [rows, classes, *rest])
    d.take(labels, [rows, *rest], 0, classes - 1)
    d.optional(weights, [classes], 0.5, 2)
    d.maybe("reduction", "none", "mean", "sum")
    if d.chance() and classes > 1:
        d.attributes["ignore_index"] = 0
        d.inputs[labels].flat[0] = classes - 1
    d.outputs = d.integer(1, 2) if d.schema.name == "SoftmaxCrossEntropyLoss" else 1
    d.rtol, d.atol = (2e-2, 1e-1) if d.dtype(scores).itemsize < 4 else (1e-3, 1e-3)


def attention(d: Draw) -> None:
    batch, each, groups = d.choice((1, 2)), d.choice((1, 2)), d.choice((1, 3))
    heads, size, other = each * groups, d.choice((4, 1, 8)), d.choice((4, 3))
    queries, keys = d.choice((3, 1, 17)), d.choice((3, 1, 9))
    flat = d.chance()
    for name, count, heads_, width in (
        ("Q", queries, heads, size),
        ("K", keys, groups, size),
        ("V", keys, groups, other),
    ):
        shape = [batch, count, heads_ * width] if flat else [batch, heads_, count, width]
        d.take(name, shape, -2, 2, wide)
    d.attributes |= {"q_num_heads": heads, "kv_num_heads": groups} if flat else {}
    d.maybe("is_causal", 0, 1)
    d.maybe("scale", 0.5)
    d.maybe("softcap", 2.0)
    # Where the queries are not the new keys' own, ONNX Runtime's causal mask is not the specification's
    if (queries == keys or not d.attributes.get("is_causal")) and d.chance():
        past = d.choice((2, 1))
        d.take("past_key", [batch, groups, past, size], -2, 2)
        d.take("past_value", [batch, groups, past, other], -2, 2)
        keys, d.outputs = keys + past, 3
    if d.chance():
        mask_type = d.dtype("attn_mask", lambda t: t == BOOL or t in WIDE)
        mask = d.array(
            mask_type, d.choice(([queries, keys], [batch, 1, queries, keys], [1, heads, queries, keys]))
        )
        if mask_type == BOOL:
            mask[..., 0] = True
        d.inputs["attn_mask"] = mask
    d.atol = 1e-3


def linear_attention(d: Draw) -> None:
    batch, steps, heads, width, out = (
        d.choice((1, 2)),
        d.choice((3, 1, 5)),
        d.choice((1, 2)),
        d.choice((2, 4)),
        d.choice((2, 3)),
    )
    for name, size in (("query", width), ("key", width), ("value", out)):
        d.take(name, [batch, steps, heads * size], -1, 1, wide)
    d.attributes |= {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear"}
    d.outputs, d.atol = 2, 1e-3


def causal_convolution(d: Draw) -> None:
    batch, channels, steps, kernel = (
        d.choice((1, 2)),
        d.choice((1, 3)),
        d.choice((3, 1, 9)),
        d.choice((2, 3, 4)),
    )
    d.take("input", [batch, channels, steps], among=wide)
    d.take("weight", [channels, 1, kernel])
    d.optional("bias", [channels])
    d.optional("past_state", [batch, channels, kernel - 1])
    d.maybe("activation", "none", "silu")
    d.outputs, d.atol = 2, 1e-3


def rotary(d: Draw) -> None:
    batch, heads, steps, width = d.choice((1, 2)), d.choice((1, 3)), d.choice((1, 5)), d.choice((4, 8))
    d.take("X", [batch, heads, steps, width], among=wide)
    d.maybe("interleaved", 0, 1)
    d.maybe("rotary_embedding_dim", 0, 4)
    half = (d.attributes.get("rotary_embedding_dim") or width) // 2
    if d.chance():
        d.take("cos_cache", [9, half])
        d.take("sin_cache", [9, half])
        d.inputs["position_ids"] = d.data.integers(0, 9, (batch, steps))
    else:
        d.take("cos_cache", [batch, steps, half])
        d.take("sin_cache", [batch, steps, half])


def recurrent(d: Draw) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[d.schema.name]
    steps, batch, width, hidden = (
        d.choice((3, 1, 5)),
        d.choice((1, 2, 3)),
        d.choice((2, 1, 5)),
        d.choice((3, 1, 8)),
    )
    direction = d.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    d.attributes |= {"hidden_size": hidden, "direction": direction}
    lengths = d.chance()  # which the onnx package does not read: ONNX Runtime has one layout and type
    rows_first = "layout" in d.schema.attributes and not lengths and d.chance()
    d.attributes |= {"layout": 1} if rows_first else {}
    d.take(
        "X",
        [batch, steps, width] if rows_first else [steps, batch, width],
        -1,
        1,
        lambda t: t in WIDE[: 1 if lengths else 2],
    )
    d.take("W", [ways, gates * hidden, width], -1, 1)
    d.take("R", [ways, gates * hidden, hidden], -1, 1)
    d.optional("B", [ways, 2 * gates * hidden], -1, 1)
    if lengths:
        d.inputs["sequence_lens"] = d.data.integers(1, steps + 1, batch).astype(np.int32)
    d.optional("initial_h", [batch, ways, hidden] if rows_first else [ways, batch, hidden], -1, 1)
    d.maybe("linear_before_reset", 0, 1)
    d.maybe("output_sequence", 1)
    d.outputs, d.atol = 3 if d.schema.name == "LSTM" else 2, 1e-3


def dft(d: Draw) -> None:
    batch, n, parts = d.choice((1, 2)), d.choice((4, 1, 7, 16)), d.choice((1, 2))
    d.take("input", [batch, n, parts], among=wide)
    onesided = parts == 1 and d.chance()
    d.attributes |= {"onesided": 1} if onesided else {}
    if not onesided:
        d.maybe("inverse", 0, 1)
    d.give("axis", 1 if "axis" in d.schema.attributes else np.asarray(1, np.int64))
    d.atol = 1e-3


def stft(d: Draw) -> None:
    batch, length, frame = d.choice((1, 2)), d.choice((32, 20, 33)), d.choice((8, 16))
    d.take("signal", [batch, length, 1], among=wide)
    d.give("frame_step", np.asarray(d.choice((4, 8, 3)), d.dtype("frame_step")))
    d.give("frame_length", np.asarray(frame, d.dtype("frame_length")))
    if d.chance():
        d.take("window", [frame])
    d.maybe("onesided", 0, 1)
    d.atol = 1e-3


REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
DRAWS = {
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), matmul),
    **{f"Reduce{kind}": reduce for kind in REDUCTIONS.split()},
    **dict.fromkeys(("ArgMax", "ArgMin"), arg_extreme),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), instance_norm),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_norm),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), loss),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
    **{"Gemm": gemm, "Einsum": einsum, "LpNormalization": lp_norm, "BatchNormalization": batch_norm},
    **{"MeanVarianceNormalization": mean_variance, "LRN": lrn, "Det": det, "Attention": attention},
    **{
        "LinearAttention": linear_attention,
        "CausalConvWithState": causal_convolution,
        "RotaryEmbedding": rotary,
    },
    **{"DFT": dft, "STFT": stft},
}
