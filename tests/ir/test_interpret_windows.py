"""The interpreter: convolution, pooling, attention and recurrence against ONNX Runtime."""

import numpy as np
import pytest
from support.interpreting import close, fails, integers, normal, run, runtime, same

from onnxc.ir import dims, ops
from onnxc.ir.expr import input_
from onnxc.ir.interpret import run_op

x32 = input_(0, "float32")

# Conv and Pool -----------------------------------------------------------------------------------

CONVOLUTIONS = [
    # image, weights, strides, pads, dilations, groups
    ((1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((2, 3, 9, 7), (4, 3, 3, 2), (2, 3), (0, 1, 2, 1), (1, 1), 1),
    ((1, 4, 9, 9), (4, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 4),
    ((1, 4, 9, 9), (8, 1, 3, 3), (1, 1), (1, 1, 1, 1), (2, 2), 4),
    ((2, 6, 5, 5), (9, 2, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 3),
    ((1, 2, 11), (3, 2, 4), (3,), (2, 1), (2,), 1),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), (1, 0, 0, 0, 1, 1), (1, 1, 2), 1),
    ((0, 3, 4, 4), (2, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize(("image", "weights", "strides", "pads", "dilations", "groups"), CONVOLUTIONS)
def test_convolutions_are_those_of_onnxruntime(image, weights, strides, pads, dilations, groups):
    x, w = normal(*image), normal(*weights)
    expected = runtime("Conv", [x, w], strides=strides, pads=pads, dilations=dilations, group=groups)[0]
    close(run(ops.Conv(strides, pads, dilations, groups), x, w), expected)


@pytest.mark.parametrize(
    ("image", "weights", "strides", "pads", "dilations", "groups", "extra"),
    [
        ((1, 3, 4, 4), (3, 2, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1, (0, 0)),
        ((2, 3, 4, 5), (3, 2, 3, 2), (2, 3), (1, 0, 1, 1), (1, 1), 1, (1, 2)),
        ((1, 4, 5, 5), (4, 2, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 2, (1, 1)),
        ((1, 4, 5, 5), (4, 1, 3, 3), (1, 1), (0, 0, 0, 0), (2, 2), 4, (0, 0)),
        ((1, 2, 7), (2, 3, 4), (2,), (1, 2), (1,), 1, (0,)),
    ],
)
def test_transposed_convolutions_are_those_of_onnxruntime(
    image, weights, strides, pads, dilations, groups, extra
):
    x, w = normal(*image), normal(*weights)
    expected = runtime(
        "ConvTranspose",
        [x, w],
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=groups,
        output_padding=extra,
    )[0]
    close(run(ops.Conv(strides, pads, dilations, groups, True, extra), x, w), expected)


def test_negative_pads_cut_away():
    x, w = normal(1, 2, 8, 8), normal(3, 2, 3, 3)
    close(
        run(ops.Conv((1, 1), (-1, 0, 0, -2), (1, 1)), x, w),
        run(ops.Conv((1, 1), (0, 0, 0, 0), (1, 1)), x[:, :, 1:, :-2], w),
    )


def test_negative_pads_grow_a_transposed_conv():
    x, w = normal(1, 2, 4), normal(2, 3, 3)
    whole = run(ops.Conv((1,), (0, 0), (1,), transposed=True), x, w)
    close(run(ops.Conv((1,), (-2, -1), (1,), transposed=True), x, w), np.pad(whole, ((0, 0), (0, 0), (2, 1))))


def test_pads_may_be_sizes_of_the_run():
    p = dims.symbol("p")
    x, w = normal(1, 2, 8, 8), normal(3, 2, 3, 3)
    close(
        run(ops.Conv((1, 1), (p, p, p, p), (1, 1)), x, w, p=1),
        run(ops.Conv((1, 1), (1, 1, 1, 1), (1, 1)), x, w),
    )


def test_conv_of_bytes_in_int32():
    x, w = (
        integers(1, 3, 6, 6, dtype="uint8", low=0, high=256),
        integers(4, 3, 3, 3, dtype="int8", low=-128, high=128),
    )
    expected = runtime("ConvInteger", [x, w], pads=(1, 1, 1, 1))[0]
    same(run(ops.Conv((1, 1), (1, 1, 1, 1), (1, 1), accumulate="int32"), x, w), expected)


def test_conv_applies_its_epilogue():
    x, w, bias = normal(1, 2, 5, 5), normal(3, 2, 3, 3), normal(3, 1, 1)
    op = ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), epilogue=(x32 + input_(1, "float32")).maximum(0))
    close(run(op, x, w, bias), np.maximum(runtime("Conv", [x, w])[0] + bias, 0))


def test_a_window_larger_than_the_image_fails():
    fails("invalid_value", ops.Conv((1, 1), (0, 0, 0, 0), (1, 1)), normal(1, 1, 1, 1), normal(1, 1, 3, 3))


POOLS = [
    # image, kernel, strides, pads, dilations
    ((1, 2, 8, 8), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((2, 3, 9, 7), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1)),
    ((1, 1, 9, 9), (3, 3), (1, 1), (1, 1, 1, 1), (2, 2)),
    ((1, 2, 13), (4,), (3,), (1, 2), (1,)),
    ((1, 2, 4, 5, 6), (2, 3, 2), (1, 2, 1), (1, 0, 0, 0, 1, 1), (1, 1, 1)),
    ((0, 2, 4, 4), (2, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
]


def pooled(kind, image, kernel, strides, pads, dilations, column_major=False):
    rank = len(kernel)
    sizes = tuple(
        (image[a + 2] + pads[a] + pads[a + rank] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in range(rank)
    )
    return ops.Pool(kind, kernel, strides, pads, dilations, sizes, column_major)


@pytest.mark.parametrize(("image", "kernel", "strides", "pads", "dilations"), POOLS)
def test_maximum_pool_and_its_indices(image, kernel, strides, pads, dilations):
    x = normal(*image) - 5  # all below 0, so that padding with 0 would show
    for order in (0, 1):
        expected = runtime(
            "MaxPool",
            [x],
            2,
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            dilations=dilations,
            storage_order=order,
        )
        same(run(pooled("max", image, kernel, strides, pads, dilations), x), expected[0])
        places = run(pooled("argmax", image, kernel, strides, pads, dilations, bool(order)), x)
        size = int(np.prod(image[2:]))
        planes = (
            np.arange(image[0] * image[1]).reshape(image[:2] + (1,) * len(kernel)) * size
        )  # ONNX counts planes too
        same(places + planes, expected[1])


@pytest.mark.parametrize(("image", "kernel", "strides", "pads", "dilations"), POOLS)
def test_mean_pool_counts_the_image_alone(image, kernel, strides, pads, dilations):
    x = normal(*image)
    given = dict(kernel_shape=kernel, strides=strides, pads=pads, dilations=dilations)
    close(
        run(pooled("mean", image, kernel, strides, pads, dilations), x),
        runtime("AveragePool", [x], **given)[0],
    )
    whole = runtime("AveragePool", [x], count_include_pad=1, **given)[0]
    close(
        run(pooled("sum", image, kernel, strides, pads, dilations), x),
        whole * np.float32(np.prod(kernel)),
        1e-4,
    )


def test_padding_is_never_the_maximum():
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    same(
        run(ops.Pool("argmax", (2, 2), (1, 1), (1, 1, 0, 0), (1, 1), (2, 2)), x),
        np.array([[[[0, 0], [0, 0]]]]),
    )
    same(
        run(ops.Pool("max", (2,), (1,), (1, 0), (1,), (2,)), np.array([[[-128, -5]]], np.int8)),
        np.array([[[-128, -5]]], np.int8),
    )


def test_a_pool_may_reach_beyond_the_end():
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    same(run(ops.Pool("max", (2,), (2,), (0, 0), (1,), (3,)), x), np.array([[[1, 3, 4]]], np.float32))
    same(run(ops.Pool("mean", (2,), (2,), (0, 0), (1,), (3,)), x), np.array([[[0.5, 2.5, 4]]], np.float32))


# Attention ---------------------------------------------------------------------------------------


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_attention_is_what_its_products_and_softmax_are():
    q, k, v, bias = normal(2, 3, 5, 4), normal(2, 3, 7, 4), normal(2, 3, 7, 6), normal(1, 5, 7)
    expected = softmax(0.5 * np.einsum("bhqd,bhkd->bhqk", q, k) + bias) @ v
    close(run(ops.Attention(0.5), q, k, v, bias), expected)


def test_attention_with_axes_in_other_orders():
    q, k, v = normal(2, 5, 3, 4), normal(2, 7, 3, 4), normal(2, 7, 3, 6)
    expected = np.einsum("bhqk,bkhe->bqhe", softmax(np.einsum("bqhd,bkhd->bhqk", q, k)), v)
    close(run(ops.Attention(1.0, "bqhd", "bkhd", "bkhe", "bqhe"), q, k, v), expected)


def test_attention_in_half_precision_computes_in_float32():
    q, k, v = (normal(1, 1, 4, 8, dtype="float16") for _ in range(3))
    wide = run(ops.Attention(1.0), *(a.astype(np.float32) for a in (q, k, v)))
    same(run(ops.Attention(1.0), q, k, v), wide.astype(np.float16))


# Recurrent ---------------------------------------------------------------------------------------

DEFAULTS = {
    "lstm": [("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0), ("Tanh", 0.0, 0.0)],
    "gru": [("Sigmoid", 0.0, 0.0), ("Tanh", 0.0, 0.0)],
    "rnn": [("Tanh", 0.0, 0.0)],
}


def recurrence(
    kind,
    direction="forward",
    optional=(),
    steps=5,
    batch=3,
    width=4,
    hidden=6,
    lengths=(5, 1, 3),
    activations=None,
    **extra,
):
    """(interpreter's outputs, ONNX Runtime's outputs)"""
    directions = ("forward", "reverse") if direction == "bidirectional" else (direction,)
    d, gates = len(directions), {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    x, w, r = (
        normal(steps, batch, width),
        normal(d, gates * hidden, width),
        normal(d, gates * hidden, hidden),
    )
    known = {
        "b": normal(d, 2 * gates * hidden),
        "lengths": np.array(lengths, np.int32),
        "h": normal(d, batch, hidden),
        "c": normal(d, batch, hidden),
        "p": normal(d, 3 * hidden),
    }
    order = ["b", "lengths", "h"] + (["c", "p"] if kind == "lstm" else [])
    functions = activations or DEFAULTS[kind]
    attributes = {k: v for k, v in extra.items() if k != "input_forget" or v}
    if activations:
        attributes["activations"] = [name for name, _, _ in functions] * d
        attributes["activation_alpha"] = [a for _, a, _ in functions] * d
        attributes["activation_beta"] = [b for _, _, b in functions] * d
    given = [known[name] if name in optional else None for name in order]
    expected = runtime(
        kind.upper(),
        [x, w, r, *given],
        3 if kind == "lstm" else 2,
        hidden_size=hidden,
        direction=direction,
        **attributes,
    )
    before_reset = bool(extra.get("linear_before_reset"))
    inputs = np.einsum("tbi,dgi->tbdg", x, w)
    columns = gates * hidden
    if "b" in optional:  # all of it enters the gates but what a GRU adds before its reset
        of_input, of_state = known["b"][:, :columns], known["b"][:, columns:].copy()
        if before_reset:
            known["b"] = of_state[:, 2 * hidden :].copy()
            of_state[:, 2 * hidden :] = 0
        inputs = inputs + of_input + of_state
    names = tuple(n for n in order if n in optional and (n != "b" or before_reset))
    op = ops.Recurrent(
        kind,
        hidden,
        directions,
        tuple(functions) * d,
        names,
        extra.get("clip"),
        before_reset,
        bool(extra.get("input_forget")),
    )
    return run_op(op, [inputs, r, *(known[n] for n in names)], {}), expected


def agree(pair):
    actual, expected = pair
    for a, e in zip(actual, expected, strict=True):
        close(a, e)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_recurrence_in_each_direction(kind, direction):
    agree(recurrence(kind, direction))
    agree(
        recurrence(kind, direction, ("b", "lengths", "h", "c") if kind == "lstm" else ("b", "lengths", "h"))
    )


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_recurrence_clips_what_enters_a_gate(kind):
    agree(recurrence(kind, optional=("b",), clip=0.3))


def test_lstm_with_peepholes():
    agree(recurrence("lstm", "bidirectional", ("b", "p")))


def test_gru_that_multiplies_before_it_resets():
    agree(recurrence("gru", "bidirectional", ("b", "h"), linear_before_reset=1))


@pytest.mark.parametrize(
    "activation",
    [
        ("Relu", 0.0, 0.0),
        ("Affine", 0.7, 0.2),
        ("LeakyRelu", 0.1, 0.0),
        ("ThresholdedRelu", 0.4, 0.0),
        ("ScaledTanh", 0.6, 1.2),
        ("HardSigmoid", 0.3, 0.4),
        ("Elu", 0.8, 0.0),
        ("Softsign", 0.0, 0.0),
        ("Softplus", 0.0, 0.0),
        ("Sigmoid", 0.0, 0.0),
        ("Tanh", 0.0, 0.0),
    ],
)
def test_every_activation_is_that_of_onnxruntime(activation):
    agree(recurrence("rnn", optional=("b",), steps=2, lengths=(2, 1, 2), activations=[activation]))


def test_an_input_gate_may_stand_for_the_forget_gate():
    op = ops.Recurrent("lstm", 2, ("forward",), tuple(DEFAULTS["lstm"]), input_forget=True)
    gates, r = normal(1, 1, 1, 8), normal(1, 8, 2)
    i, o, _, g = np.split(gates[0, 0, 0], 4)
    cell = 1 / (1 + np.exp(-i)) * np.tanh(g)
    close(run_op(op, [gates, r], {})[0][0, 0, 0], 1 / (1 + np.exp(-o)) * np.tanh(cell))


def test_no_steps_leave_the_state_alone():
    op = ops.Recurrent("gru", 2, ("forward",), tuple(DEFAULTS["gru"]), ("h",))
    h = normal(1, 3, 2)
    y, last = run_op(op, [normal(0, 3, 1, 6), normal(1, 6, 2), h], {})
    assert y.shape == (0, 1, 3, 2)
    same(last, h)


def test_a_length_beyond_the_steps_fails():
    op = ops.Recurrent("rnn", 2, ("forward",), tuple(DEFAULTS["rnn"]), ("lengths",))
    fails("index_out_of_range", op, normal(2, 1, 1, 2), normal(1, 2, 2), np.array([3], np.int32))
