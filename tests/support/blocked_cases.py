"""Cases for kernels over blocked channels: a node, its arrays, and a check of every choice against
the interpreter."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from support import harness

from onnxc.codegen.kernel import choices_of
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, Derivation, Node, TensorType, Value, make_node
from onnxc.ir.interpret import run_op
from onnxc.ir.ops import Conv, Map, Op
from onnxc.target import LEVELS, Ability


@dataclass
class Case:
    """An op over arrays. Operands in `constant` are known at compile time; `shapes` overrides the
    shapes that the compiler sees, with symbols in them."""

    op: Op
    arrays: list
    constant: tuple = ()
    shapes: dict | None = None

    def node(self):
        values = []
        for index, array in enumerate(self.arrays):
            shape = (self.shapes or {}).get(index, array.shape)
            type_ = TensorType(dtypes.from_numpy(array.dtype), tuple(shape))
            constant = Constant.of(array) if index in self.constant else None
            values.append(Value(type_, f"v{index}", constant))
        return make_node(self.op, values)

    def expected(self, env=None):
        return run_op(self.op, self.arrays, env or {})[0]


def laid_out(node, choice, wider=0, output_halo=0, parts=False):
    """node with the layouts of choice on its types, halos `wider` than asked for; of more than two axes the
    last one alone has any. parts: images are parts of wider ones."""

    def stored(type_, layout, more, beyond):
        if not layout:
            return replace(type_, layout=layout)
        axes = len(layout.halo)
        layout = replace(
            layout, halo=tuple(h + more * (axes < 3 or a == axes - 1) for a, h in enumerate(layout.halo))
        )
        blocks = dims.ceil_divide(type_.shape[1], layout.block)
        return replace(type_, layout=replace(layout, pitch=blocks + beyond if parts else 0))

    inputs = tuple(
        v if v.constant is not None else Value(stored(v.type, layout, wider, 1 + index), v.name)
        for index, (v, layout) in enumerate(zip(node.inputs, choice.inputs or [None] * len(node.inputs)))
    )
    outputs = (Value(stored(node.outputs[0].type, choice.output, output_halo, 2)),)
    return Node(node.op, inputs, outputs, node.origin, choice)


def choices(case, kernel, target, every=False):
    """The node, and what the kernel offers for it: unless it is to be every offer, the first of those that
    differ in tiles or groups alone (of Winograd's one for each size of a piece). What cuts few pixels
    otherwise is followed by the same without that."""
    node = case.node()
    offered = [c for choice in choices_of(kernel, node, target) for c in _with_and_without_few(choice)]
    if every:
        return node, offered
    first = {(*_points(c.tiling), c.inputs, c.output): c for c in reversed(offered)}
    return node, list(reversed(first.values()))


def _with_and_without_few(choice):
    yield choice
    if getattr(choice.tiling, "few", None) is not None:
        yield replace(choice, tiling=replace(choice.tiling, few=None, most=None))


def _points(tiling):
    """The sizes of pieces of many and of few pixels."""
    return [getattr(part, "points", None) for part in (tiling, getattr(tiling, "few", None))]


def check(case, kernel, target, wider=0, output_halo=0, tolerance=2e-5, every=False):
    """The choices that the kernel offers give the interpreter's result and clear its border; the first also
    over images that are parts of wider ones, if there are several."""
    node, offered = choices(case, kernel, target, every)
    assert offered, f"{kernel.__name__} offers nothing for {case.op}"
    for choice in offered:
        check_choice(case, node, choice, target, wider, output_halo, tolerance)
    if case.arrays[0].shape[0] > 1:
        check_choice(case, node, offered[0], target, wider, output_halo, tolerance, parts=True)


def check_choice(case, node, choice, target, wider=0, output_halo=0, tolerance=2e-5, parts=False):
    """The same of one choice; `parts`: where images are parts of wider ones."""
    env = harness.bind(node, case.arrays)
    expected, chosen = case.expected(env), laid_out(node, choice, wider, output_halo, parts)
    ((got, border_clear),) = harness.run_choice(chosen, choice, case.arrays, target, env)
    assert got.shape == expected.shape
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    worst = float(np.max(np.abs(got.astype(np.float64) - expected), initial=0))
    assert worst <= tolerance * scale, f"{choice}: off by {worst}"
    assert border_clear, f"{choice}: halo or padding lanes are not zero, or what is between images changed"


#: How weights are fetched; images come into the first level of the cache.
INTO_SECOND_LEVEL = "i32 0, i32 2, i32 1)"


def behind_the_first(weights, choice, depth):
    """The lines of packed weights of float32 that are behind those of the first panel, of so many terms."""
    panel = 4 * depth * choice.tiling.vectors * choice.block
    return range((weights.ctypes.data + panel) // 64, (weights.ctypes.data + weights.nbytes) // 64)


def of_halves(case, dtype):
    """(node, node): the case with weights that are 16-bit floats, as a cast of these and by themselves."""
    halves = case.arrays[1].astype(dtypes.numpy_dtype(dtype))
    case.arrays[1] = halves.astype(np.float32)
    plain, node = case.node(), case.node()
    stored = node.inputs[1].constant
    stored.derivation = Derivation(Map(expr.input_(0, dtype).cast("float32")), (Constant.of(halves),))
    return node, plain


def check_halves(case, kernel, target, dtype):
    """Every choice packs the weights as they are stored, where the target converts such numbers, and gives
    the bits that it gives of float32."""
    node, plain = of_halves(case, dtype)
    env = harness.bind(node, case.arrays)
    offered = [choices_of(kernel, n, target) for n in (node, plain)]
    assert offered[0]
    for choice, other in zip(*offered, strict=True):
        packed, wide = choice.kernel.pack(node, choice, 1), other.kernel.pack(plain, other, 1)
        if dtype == "bfloat16" or Ability.CONVERT_HALF in target.abilities:
            assert (packed.dtype, 2 * packed.nbytes) == (dtype, wide.nbytes)
        else:
            assert packed.dtype == "float32"
        got, expected = (
            harness.run_choice(laid_out(n, c), c, case.arrays, target, env)[0][0]
            for n, c in ((node, choice), (plain, other))
        )
        np.testing.assert_array_equal(got, expected)


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def convolution(
    x_shape,
    w_shape,
    strides=1,
    pads=0,
    dilations=1,
    groups=1,
    epilogue=None,
    extra=(),
    symbolic=None,
    dtype=np.float32,
    transposed=False,
    output_padding=(),
):
    """A Conv with constant weights. Numbers stand for all axes; `pads` may give (before...,
    after...). `extra` are (array, whether it is constant)."""
    rank = len(x_shape) - 2

    def every(value, count):
        return tuple(value) if isinstance(value, (tuple, list)) else (value,) * count

    op = Conv(
        every(strides, rank),
        every(pads, 2 * rank),
        every(dilations, rank),
        groups,
        transposed,
        output_padding,
        str(np.dtype(dtype)),
        epilogue,
    )
    arrays = [
        random(*x_shape, dtype=dtype),
        random(*w_shape, seed=1, dtype=dtype) / np.float32(np.prod(w_shape[1:]) ** 0.5),
    ]
    arrays[1] = arrays[1].astype(dtype)
    constant = [1] + [2 + i for i, (_, known) in enumerate(extra) if known]
    return Case(op, arrays + [a for a, _ in extra], tuple(constant), {0: symbolic} if symbolic else None)


def relu_of_bias(dtype="float32"):
    return (expr.input_(0, dtype) + expr.input_(1, dtype)).maximum(0.0)


def symbols(*names):
    return tuple(dims.symbol(n, 1) if isinstance(n, str) else n for n in names)


def bias(channels, seed=7):
    """An operand of the epilogue: (array, whether it is constant)."""
    return random(channels, 1, 1, seed=seed), True


def transposed(x_shape, w_shape, strides, pads=0, dilations=1, output_padding=(), **options):
    return convolution(
        x_shape, w_shape, strides, pads, dilations, transposed=True, output_padding=output_padding, **options
    )


DOTS = [*filter(harness.runs, LEVELS.values()), *harness.with_dots()]
WITH_DOTS = pytest.mark.parametrize("target", DOTS, ids=str)


def integers(
    x_shape,
    w_shape,
    strides=1,
    pads=0,
    zero=0,
    epilogue=None,
    extra=(),
    symbolic=None,
    full=False,
    groups=1,
    dilations=1,
    words=False,
):
    """A Conv of uint8 and constant int8, drawn from their whole range; `full`: from the ends of it alone;
    `words`: of int16, and weights of as many bits."""
    rank, draw = len(x_shape) - 2, np.random.default_rng([*x_shape, *w_shape])
    low, high, stored = (-(1 << 15), 1 << 15, np.int16) if words else (0, 256, np.uint8)
    x = draw.integers(low, high, x_shape).astype(stored)
    w = draw.integers(-128, 128, w_shape).astype(np.int16 if words else np.int8)
    if full:
        x, w = np.where(x > 127, 255, 0).astype(np.uint8), np.where(w > 0, 127, -128).astype(np.int8)
    pads = tuple(pads) if isinstance(pads, tuple) else (pads,) * 2 * rank
    op = Conv(
        (strides,) * rank, pads, (dilations,) * rank, groups, accumulate="int32", epilogue=epilogue, zero=zero
    )
    constant = (1, *range(2, 2 + len(extra)))
    return Case(op, [x, w, *extra], constant, {0: symbolic} if symbolic else None)


def same_bits_in_any_cut(case, kernel, target):
    """Asserts that every choice has parts, and gives the same however these are cut over threads."""
    node, offered = choices(case, kernel, target)
    for choice in offered:
        prepared = harness.Prepared(laid_out(node, choice, output_halo=1), choice, case.arrays, target)
        assert prepared.run(1) is None
        whole, parts = prepared.outputs[0].tobytes(), prepared.calls[0].parts
        assert parts >= 2
        for split in (2, 5, parts):
            prepared.outputs[0][:] = 255
            assert prepared.run(split) is None
            assert prepared.outputs[0].tobytes() == whole
