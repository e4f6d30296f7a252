"""Products of integers that end in numbers, those that round their operand first, and an LSTM of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ...ir import ops
from ...ir.builder import Builder
from ...ir.graph import Value
from ..onnx_ops.common import fitted, require, scalar, with_length
from ..onnx_ops.linear import MatMulInteger, of_product, product
from ..onnx_ops.quantization import DequantizeLinear, DynamicQuantizeLinear, centred, quantised
from ..onnx_ops.recurrent import lstm
from ..rules import Types
from .schema import BYTES, contrib_op

Left = Annotated[Value, Types.of("T1", *BYTES)]
Right = Annotated[Value, Types.of("T2", *BYTES)]
Real = Annotated[Value, Types.of("T3", "float", "float16")]
Float = Annotated[Value, Types.of("T1", "float")]

#: Of products of which the right operand is quantised by columns, or as a whole.
_RANKS: dict[str, int | str] = {"A": "a", "B": "b", "b_scale": "<=b", "b_zero_point": "<=b", "bias": 1}


def _scaled(b: Builder, total: Value, left: Value, right: Value, bias: Value | None) -> Value:
    """total * left * right + bias; the right scale may be one for each column, in the shape `of_product`."""
    factor = b.map(scalar(b, left, "a_scale"), right, lambda p, q: p.cast("float32") * q.cast("float32"))
    y = b.map(total, factor, lambda t, f: t.cast("float32") * f)
    if bias is not None:
        bias = with_length(b, bias, y.shape[-1] if y.rank else 1, "the bias")
        y = b.map(y, bias, lambda e, c: e + c.cast("float32"))
    return b.cast(y, left.dtype)


@contrib_op(outputs="Y", ranks={**_RANKS, "a_scale": "<=1", "a_zero_point": "<=a rows"})
def MatMulIntegerToFloat(
    b,
    A: Left,
    B: Right,
    a_scale: Real,
    b_scale: Real,
    a_zero_point: Left | None = None,
    b_zero_point: Right | None = None,
    bias: Real | None = None,
):
    total = MatMulInteger(b, A, B, a_zero_point, b_zero_point)
    return _scaled(b, total, a_scale, of_product(b, b_scale, A, B, False, "b_scale"), bias)


@contrib_op(outputs="Y", ranks=_RANKS)
def DynamicQuantizeMatMul(
    b, A: Float, B: Right, b_scale: Float, b_zero_point: Right | None = None, bias: Float | None = None
):
    """A is rounded to bytes over its whole range."""
    q, scale, zero = DynamicQuantizeLinear(b, A)
    total = MatMulInteger(b, q, B, zero, b_zero_point)
    return _scaled(b, total, scale, of_product(b, b_scale, A, B, False, "b_scale"), bias)


Wide = Annotated[Value, Types.of("T1", "int16", "uint16")]
WideRight = Annotated[Value, Types.of("T2", "int16", "uint16")]


@contrib_op(outputs="Y")
def MatMulInteger16(b, A: Wide, B: WideRight):
    total = product(b, A, B, "int32")
    return b.cast(total, "uint32" if A.dtype == B.dtype == "uint16" else "int32")


QA = Annotated[Value, Types.of("TA", *BYTES)]
QB = Annotated[Value, Types.of("TB", *BYTES)]
Scale = Annotated[Value, Types.of("T", "float")]
Bias = Annotated[Value, Types.of("TC", "int32")]
Zero = Annotated[Value, Types.of("TYZ", *BYTES)]


@contrib_op(outputs="Y", ranks={"A": 2, "B": 2, "C": "<=2", "*": "<=1"})
def QGemm(
    b,
    A: QA,
    a_scale: Scale,
    a_zero_point: QA,
    B: QB,
    b_scale: Scale,
    b_zero_point: QB,
    C: Bias | None = None,
    y_scale: Scale | None = None,
    y_zero_point: Zero | None = None,
    *,
    alpha=1.0,
    transA=0,
    transB=0,
):
    """alpha * (A B + C) of integers, C in the steps of the product; without a y_scale it stays a number."""
    if A.rank != 2 or B.rank != 2:
        raise ops.TypeMismatch(f"{A.type} and {B.type} are no matrices")
    x, y = (b.transpose(v, (1, 0)) if turned else v for v, turned in ((A, transA), (B, transB)))
    total = MatMulInteger(b, x, y, scalar(b, a_zero_point, "a_zero_point"), b_zero_point)
    require(b, [(b_zero_point.tensor.count, b_scale.tensor.count)], "b_zero_point")
    if C is not None:
        total = b.map(*fitted(b, total, C, "C"), lambda t, c: t + c)
    step = b.map(scalar(b, a_scale, "a_scale"), lambda s: s * alpha)
    found = _scaled(b, total, step, of_product(b, b_scale, x, y, False, "b_scale"), None)
    if y_scale is None or y_zero_point is None:
        return found
    zero, dtype = scalar(b, y_zero_point, "y_zero_point"), y_zero_point.dtype
    return b.map(found, scalar(b, y_scale, "y_scale"), zero, lambda e, s, z: quantised(e / s, z, dtype))


# Recurrent ---------------------------------------------------------------------------------------

Input = Annotated[Value, Types.of("T", "float")]
Lengths = Annotated[Value, Types.of("T1", "int32")]


@contrib_op(
    outputs="Y? Y_h? Y_c?",
    ranks={
        "X": 3,
        "W": 3,
        "R": 3,
        "B": 2,
        "sequence_lens": 1,
        "initial_h": 3,
        "initial_c": 3,
        "P": 2,
        "W_scale": "w",
        "W_zero_point": "w",
        "R_scale": "r",
        "R_zero_point": "r",
    },
)
def DynamicQuantizeLSTM(
    b,
    X: Input,
    W: Right,
    R: Right,
    B: Input | None,
    sequence_lens: Lengths | None,
    initial_h: Input | None,
    initial_c: Input | None,
    P: Input | None,
    W_scale: Input,
    W_zero_point: Right,
    R_scale: Input,
    R_zero_point: Right,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    input_forget=0,
):
    """X is rounded to bytes over its whole range, and in each step so is the state of all sequences: ONNX
    Runtime takes the range of as many as a thread has. Weights are [directions, inputs, gates]."""
    x = DequantizeLinear(b, *DynamicQuantizeLinear(b, X))
    weights, recurrence = _gates(b, W, W_scale, W_zero_point), _gates(b, R, R_scale, R_zero_point)
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h, "c": initial_c, "p": P}
    alphas, betas = activation_alpha, activation_beta
    return lstm(
        *(b, x, weights, recurrence, optional, activations, alphas, betas, direction, hidden_size, 0, clip),
        input_forget=bool(input_forget),
        rounded=True,
    )


def _gates(b: Builder, q: Value, scale: Value, zero: Value) -> Value:
    """Numbers [directions, gates, inputs] of bytes with a scale for each direction or each of its gates."""
    step, shift = (b.reshape(v, (q.shape[0], 1, v.shape[1] if v.rank == 2 else 1)) for v in (scale, zero))
    wide = b.map(q, step, shift, lambda e, s, z: centred(e, z).cast("float32") * s)
    return b.transpose(wide, (0, 2, 1))
