"""integer_products: what is stored in bytes is multiplied as bytes, where the target can."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir.ops import Contract, Conv, Pad, Pool, Reduce
from onnxc.ir.quantised import weights
from onnxc.ir.text_parser import parse
from onnxc.passes import integer_products as passes
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.widen import widen
from onnxc.target import TARGETS

WEIGHTS = {"w": np.random.default_rng(0).integers(-128, 128, (8, 6, 3, 3)).astype(np.int8)}
MATRIX = {"w": np.random.default_rng(1).integers(-128, 128, (6, 8)).astype(np.int8)}


def integer_products(graph):
    return passes.integer_products(graph, TARGETS["cascadelake"])


def test_a_convolution_of_centred_bytes_has_a_zero_point():
    becomes(
        integer_products,
        """graph g(%x: uint8[1, 6, 5, 5]) {
        %w = constant int8[8, 6, 3, 3] #w
        %0 = map(%x) { sub(cast($0, int32), 7) }
        %1 = conv(%0, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) accumulate=int32
        return %1
    }""",
        """graph g(%x: uint8[1, 6, 5, 5]) {
        %0 = map(%x) { sub(cast($0, int32), 7) }
        %w = constant int8[8, 6, 3, 3] #w
        %1 = conv(%x, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) accumulate=int32 zero=7
        return %1
    }""",
        WEIGHTS,
    )


def test_a_sum_of_numbers_is_that_of_their_bytes():
    becomes(
        clean(integer_products),
        """graph g(%x: uint8[2, 6, 5, 5]) {
        %0 = map(%x) { mul(cast(sub(cast($0, int32), 7), float32), 0.5) }
        %1 = reduce(%0) kind=sum axes=(2, 3)
        return %1
    }""",
        """graph g(%x: uint8[2, 6, 5, 5]) {
        %0 = reduce(%x) kind=sum axes=(2, 3) body={ cast($0, int32) }
        %1 = map(%0) { mul(cast(sub($0, 175), float32), 0.5) }
        return %1
    }""",
    )


def test_a_sum_of_squares_is_that_of_bytes_less_their_zero_point():
    becomes(
        clean(integer_products),
        """graph g(%x: uint8[2, 6, 5, 5]) {
        %0 = map(%x) { mul(cast(sub(cast($0, int32), 7), float32), 0.5) }
        %1 = reduce(%0) kind=sum axes=(2, 3) body={ mul($0, $0) }
        return %1
    }""",
        """graph g(%x: uint8[2, 6, 5, 5]) {
        %0 = reduce(%x) kind=sum axes=(2, 3) body={ t0 = sub(cast($0, int32), 7); mul(t0, t0) }
        %1 = map(%0) { mul(cast($0, float32), 0.25) }
        return %1
    }""",
    )


def test_squares_that_may_overflow_stay_numbers():
    stays(
        integer_products,
        """graph g(%x: uint8[2, 33100]) {
        %0 = map(%x) { mul(cast(sub(cast($0, int32), 7), float32), 0.5) }
        %1 = reduce(%0) kind=sum axes=(1) body={ mul($0, $0) }
        return %1
    }""",
    )


@pytest.mark.parametrize("shape, returned", [("n, 100", "%1"), ("2, 9000000", "%1"), ("2, 6", "%1, %0")])
def test_sums_that_may_overflow_and_numbers_that_are_there_anyway_stay(shape, returned):
    stays(
        integer_products,
        f"""graph g(%x: int8[{shape}]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), 0.5) }}
        %1 = reduce(%0) kind=sum axes=(0, 1)
        return {returned}
    }}""",
    )


def product(op, text, **sizes):
    """The product of integers that becomes of a graph, which gives the same numbers as before."""
    (node,) = [n for n in agrees(integer_products, text, MATRIX, **sizes).nodes if isinstance(n.op, op)]
    return node


def test_a_zero_point_that_the_run_tells_is_taken_off_behind_the_sum():
    node = product(
        Contract,
        """graph g(%x: uint8[n, 6], %z: uint8[]) {
        %w = constant int8[6, 8] #w
        %0 = map(%x, %z) { sub(cast($0, int32), cast($1, int32)) }
        %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=int32
        return %1
    }""",
        n=3,
    )
    assert [v.dtype for v in node.inputs] == ["uint8", "int8"]


def test_constant_weights_may_be_the_first_operand():
    node = product(
        Contract,
        """graph g(%x: uint8[8, n]) {
        %w = constant int8[6, 8] #w
        %0 = map(%x) { sub(cast($0, int32), 9) }
        %1 = contract(%w, %0) lhs=mk rhs=kn out=mn accumulate=int32
        return %1
    }""",
        n=3,
    )
    assert (node.op.lhs, node.op.rhs, node.inputs[0].dtype) == ("kn", "mk", "uint8")


@pytest.mark.parametrize("target", ["x86-64-v2", "cascadelake", "aarch64"])
def test_every_target_multiplies_bytes(target):
    text = """graph g(%x: int8[1, 6, 5, 5]) {
        %w = constant int8[8, 6, 3, 3] #w
        %0 = map(%x) { sub(cast($0, int32), 7) }
        %1 = conv(%0, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) accumulate=int32
        return %1
    }"""
    found = agrees(lambda graph: passes.integer_products(graph, TARGETS[target]), text, WEIGHTS)
    assert found.nodes[-1].op.zero == 7


@pytest.mark.parametrize("target", ["x86-64-v2", "cascadelake"])
@pytest.mark.parametrize(("groups", "integers"), [(1, True), (2, True), (4, False)])
def test_bytes_are_multiplied_over_three_axes_where_these_become_two(target, groups, integers):
    text = f"""graph g(%x: uint8[1, 4, 3, 4, 5]) {{
        %w = constant int8[4, {4 // groups}, 2, 3, 3] #w
        %0 = map(%x) {{ sub(cast($0, int32), 7) }}
        %1 = conv(%0, %w) strides=(1, 2, 1) pads=(1, 1, 0, 1, 0, 1) dilations=(1, 1, 1) groups={groups} \
accumulate=int32
        return %1
    }}"""
    weights = {"w": np.random.default_rng(0).integers(-9, 9, (4, 4 // groups, 2, 3, 3)).astype(np.int8)}

    def prepared(graph):
        return widen(passes.integer_products(graph, TARGETS[target]), TARGETS[target])

    (conv,) = (n for n in agrees(prepared, text, weights).nodes if isinstance(n.op, Conv))
    assert (conv.op.accumulate, conv.inputs[0].dtype) == (
        ("int32", "uint8") if integers else ("float32",) * 2
    )


WORDS = """graph g(%x: int16[n, 600]) {
    %w = constant int8[600, 4] #w
    %0 = map(%x) { mul(cast(sub(cast($0, int32), {zero}), float32), 0.5) }
    %1 = map(%w) { mul(cast(cast($0, int32), float32), 0.25) }
    %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=float32
    return %2
}"""


@pytest.mark.parametrize(
    ("weight", "zero", "integers"),
    [(9, 0, True), (-9, -(1 << 15), True), (109, 0, True), (110, 0, False), (109, 100, False)],
)
def test_words_are_multiplied_where_no_sum_leaves_int32(weight, zero, integers):
    stored = {"w": np.full((600, 4), weight, np.int8)}
    x = np.full((2, 600), -(1 << 15), np.int16)
    text = WORDS.replace("{zero}", str(zero))
    found = agrees(lambda graph: integer_products(fold_constants(graph)), text, stored, [x])
    (node,) = [n for n in found.nodes if isinstance(n.op, Contract)]
    types = [v.dtype for v in node.inputs]
    assert types == (["int16", "int16"] if integers else ["float32", "float32"])


def test_words_stay_numbers_where_the_target_has_no_products_of_them():
    stored, target = {"w": np.full((600, 4), 9, np.int8)}, TARGETS["x86-64-v2"]
    text = WORDS.replace("{zero}", "0")
    found = agrees(lambda graph: passes.integer_products(fold_constants(graph), target), text, stored, n=2)
    assert {v.dtype for n in found.nodes if isinstance(n.op, Contract) for v in n.inputs} == {"float32"}


@pytest.mark.parametrize(
    ("shape", "stride", "multiplied"),
    [
        ((16, 16, 1, 1), 1, "int16"),
        ((16, 16, 3, 3), 2, "int16"),
        ((16, 1, 3, 3), 1, "int16"),
        ((16, 16, 3, 3), 1, "float32"),
    ],
    ids=str,
)
def test_words_in_windows_stay_numbers_where_transforms_save_more(shape, stride, multiplied):
    weights = {"w": np.random.default_rng(0).integers(-9, 10, shape).astype(np.int8)}
    text = f"""graph g(%x: int16[1, 16, 6, 7]) {{
        %w = constant int8[{", ".join(map(str, shape))}] #w
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), 0.5) }}
        %1 = map(%w) {{ mul(cast(cast($0, int32), float32), 0.25) }}
        %2 = conv(%0, %1) strides=({stride}, {stride}) pads=(0, 0, 0, 0) dilations=(1, 1) \
groups={16 // shape[1]} accumulate=float32
        return %2
    }}"""
    found = agrees(lambda graph: integer_products(fold_constants(graph)), text, weights)
    (conv,) = [n for n in found.nodes if isinstance(n.op, Conv)]
    assert conv.inputs[0].dtype == multiplied


def test_words_that_are_moved_or_become_the_same_stay_words():
    found = agrees(
        clean(integer_products),
        """graph g(%x: int16[4, 6]) {
        %0 = map(%x) { mul(cast(sub(cast($0, int32), 7), float32), 0.25) }
        %1 = transpose(%0) perm=(1, 0)
        %2 = map(%1) { cast(min(max(add(round(div($0, 0.25)), 7.0), -32768.0), 32767.0), int16) }
        return %2
    }""",
    )
    assert ops(found) == ["Transpose"]


QUANTISED = """%4 = map(%3) { cast(min(max(add(round(mul($0, 0.02)), 99.0), 0.0), 255.0), uint8) }
    return %4"""


def of_two(other="uint8", zeros=(7, 130), rhs="bhkn", k=4, last=QUANTISED, target="cascadelake", **sizes):
    """The types of what is multiplied in a product of two operands that the run computes."""
    sizes_of = {"b": 2, "h": 3, "k": k, "n": 6}
    shape = ", ".join(str(sizes_of[label]) for label in rhs)
    text = f"""graph g(%x: uint8[2, 3, 5, {k}], %y: {other}[{shape}]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), {zeros[0]}), float32), 0.5) }}
        %1 = map(%y) {{ mul(cast(sub(cast($0, int32), {zeros[1]}), float32), 0.25) }}
        %2 = contract(%0, %1) lhs=bhmk rhs={rhs} out=bhmn accumulate=float32
        %3 = reshape(%2) shape=(6, 5, 6)
        {last}
    }}"""
    found = agrees(lambda graph: passes.integer_products(graph, TARGETS[target]), text, **sizes)
    (node,) = [n for n in found.nodes if isinstance(n.op, Contract)]
    return [v.dtype for v in node.inputs]


@pytest.mark.parametrize("zeros", [(0, 0), (0, 100), (100, 0), (3, 128), (255, 255)])
@pytest.mark.parametrize("rhs", ["bhkn", "bhnk", "hnbk"])
@pytest.mark.parametrize("other", ["uint8", "int8"])
def test_two_operands_that_the_run_computes_are_multiplied_as_bytes(zeros, rhs, other):
    assert of_two(other, zeros, rhs) == ["uint8", "int8"]


@pytest.mark.parametrize("last", ["return %3", "%4 = map(%3) { exp($0) }\n return %4"])
def test_two_operands_stay_numbers_where_nobody_makes_integers_of_their_product(last):
    assert of_two(last=last) == ["float32", "float32"]


def test_two_operands_stay_numbers_where_sums_may_leave_int32():
    assert of_two(k="s", s=3) == ["float32", "float32"]


def test_two_operands_stay_numbers_where_the_target_has_no_products_of_bytes():
    assert of_two(target="x86-64-v2") == ["float32", "float32"]


@pytest.mark.parametrize("other", ["uint8", "int8"])
def test_zero_points_of_two_operands_may_be_the_runs(other):
    text = f"""graph g(%x: uint8[5, k], %y: {other}[k, 6], %a: uint8[], %b: {other}[1]) {{
        %0 = map(%x, %a) {{ sub(cast($0, int32), cast($1, int32)) }}
        %1 = map(%y, %b) {{ sub(cast($0, int32), cast($1, int32)) }}
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=int32
        return %2
    }}"""
    draw = np.random.default_rng(0)
    low = 0 if other == "uint8" else -128
    x, y = (draw.integers(least, least + 256, n) for least, n in ((0, (5, 9)), (low, (9, 6))))
    arrays = [x.astype(np.uint8), y.astype(other), np.uint8(200), np.array([low + 3], other)]
    found = agrees(integer_products, text, inputs=arrays, k=9)
    (node,) = [n for n in found.nodes if isinstance(n.op, Contract)]
    assert [v.dtype for v in node.inputs] == ["uint8", "int8"]


def dequantised(stored, zero, scale):
    """A constant made of stored integers, as fold_constants leaves it."""
    graph = parse(
        f"""graph g() {{
        %w = constant {stored.dtype}[{", ".join(map(str, stored.shape))}] #w
        %z = constant {zero.dtype}[{", ".join(map(str, zero.shape))}] #z
        %s = constant float32[{", ".join(map(str, scale.shape))}] #s
        %0 = map(%w, %s, %z) {{ mul(cast(sub(cast($0, int32), cast($2, int32)), float32), $1) }}
        return %0
    }}""",
        {"w": stored, "z": zero, "s": scale},
    )
    return fold_constants(graph).outputs[0].constant


@pytest.mark.parametrize("side", [4, 64])
def test_weights_are_known_behind_a_dequantisation_of_any_size(side):
    stored = np.random.default_rng(0).integers(0, 256, (side, side)).astype(np.uint8)
    zero, scale = np.full((side, 1), 128, np.uint8), np.full((side, 1), 0.5, np.float32)
    found = weights(dequantised(stored, zero, scale))
    signed, rest = found.signed()
    assert (signed.array == stored.astype(np.int32) - 128).all()
    assert not rest.any()
    assert (found.scale == scale).all()


def test_weights_that_leave_int8_without_their_zero_point_keep_some_of_it():
    zero, scale = np.full((4, 1), 100, np.uint8), np.ones((4, 1), np.float32)
    signed, rest = weights(dequantised(np.full((4, 4), 255, np.uint8), zero, scale)).signed()
    assert (signed.array + rest == 155).all()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zero", [0, 100, 128, 255])
def test_unsigned_weights_of_any_zero_point_give_the_same_sums(zero, groups):
    stored = {"w": np.random.default_rng(0).integers(0, 256, (8, 6 // groups, 3, 3)).astype(np.uint8)}
    text = f"""graph g(%x: uint8[1, 6, 5, 5]) {{
        %w = constant uint8[8, {6 // groups}, 3, 3] #w
        %0 = map(%w) {{ sub(cast($0, int32), {zero}) }}
        %1 = map(%x) {{ sub(cast($0, int32), 7) }}
        %2 = conv(%1, %0) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups={groups} accumulate=int32
        return %2
    }}"""
    x = np.random.default_rng(1).integers(0, 256, (1, 6, 5, 5)).astype(np.uint8)
    found = agrees(lambda graph: integer_products(fold_constants(graph)), text, stored, [x])
    assert {n.inputs[1].dtype for n in found.nodes if isinstance(n.op, Conv)} == {"int8"}


def test_unsigned_weights_of_each_matrix_of_a_batch_give_the_same_sums():
    stored = {"w": np.random.default_rng(0).integers(0, 256, (2, 8, 6)).astype(np.uint8)}
    text = """graph g(%x: uint8[2, 5, 8]) {
        %w = constant uint8[2, 8, 6] #w
        %0 = map(%w) { sub(cast($0, int32), 3) }
        %1 = map(%x) { sub(cast($0, int32), 7) }
        %2 = contract(%1, %0) lhs=bmk rhs=bkn out=bmn accumulate=int32
        return %2
    }"""
    x = np.random.default_rng(1).integers(0, 256, (2, 5, 8)).astype(np.uint8)
    found = agrees(lambda graph: integer_products(fold_constants(graph)), text, stored, [x])
    assert {n.inputs[1].dtype for n in found.nodes if isinstance(n.op, Contract)} == {"int8"}


def test_a_maximum_of_numbers_is_that_of_the_bytes():
    text = """graph g(%x: uint8[1, 2, 4, 4]) {
        %0 = map(%x) { mul(cast(sub(cast($0, int32), 7), float32), 0.25) }
        %1 = pool(%0) kind=max kernel=(2, 2) strides=(2, 2) pads=(0, 0, 0, 0) dilations=(1, 1) sizes=(2, 2)
        return %1
    }"""
    found = agrees(integer_products, text)
    (pool,) = [n for n in found.nodes if isinstance(n.op, Pool)]
    assert pool.inputs[0].dtype == "uint8"


@pytest.mark.parametrize("kind", ["argmax", "argmin_last"])
def test_the_place_of_the_greatest_number_is_that_of_the_greatest_byte(kind):
    becomes(
        clean(integer_products),
        f"""graph g(%x: uint8[2, 6, 5]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), 0.25) }}
        %1 = reduce(%0) kind={kind} axes=(1)
        return %1
    }}""",
        f"""graph g(%x: uint8[2, 6, 5]) {{
        %1 = reduce(%x) kind={kind} axes=(1)
        return %1
    }}""",
    )


@pytest.mark.parametrize("scale", ["1e-45", "1e-40", "3e36", "-0.5"])
def test_numbers_that_may_be_equal_or_turned_round_are_compared_themselves(scale):
    stays(
        integer_products,
        f"""graph g(%x: uint8[2, 6]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), {scale}) }}
        %1 = reduce(%0) kind=argmax axes=(1)
        return %1
    }}""",
    )


DEQUANTISE = "{ mul(cast(sub(cast($0, int32), 7), float32), 0.25) }"


def quantise(x, scale, zero):
    return f"map({x}) {{ cast(min(max(add(round(div($0, {scale})), {zero}.0), 0.0), 255.0), uint8) }}"


@pytest.mark.parametrize(
    "move",
    [
        "pad(%0, %v) mode=constant before=(0, 0, 1, 2) after=(0, 0, 0, 1)",
        "pad(%0) mode=edge before=(0, 0, 1, 2) after=(0, 0, 0, 1)",
        "reshape(%0) shape=(8, 4)",
        "transpose(%0) perm=(0, 2, 3, 1)",
        "slice(%0) starts=(0, 1, 0, 0) sizes=(1, 1, 4, 2) steps=(1, 1, 1, 2)",
        "concat(%0, %1) axis=1",
        "gather(%0, %i) form=axis axis=3",
        "reduce(%0) kind=max axes=(2, 3) keepdims=true",
        "reduce(%0) kind=min axes=(3) keepdims=true",
    ],
)
def test_numbers_that_are_moved_or_compared_stay_bytes(move):
    text = f"""graph g(%x: uint8[1, 2, 4, 4], %y: uint8[1, 2, 4, 4]) {{
        %v = constant float32[] (-1.5)
        %i = constant int64[3] (2, 0, 2)
        %0 = map(%x) {DEQUANTISE}
        %1 = map(%y) {DEQUANTISE}
        %2 = {move}
        return %2
    }}"""
    found = agrees(clean(integer_products), text)
    assert [n.inputs[0].dtype for n in found.nodes] == ["uint8", "uint8"]


POOLED = (
    "pool(%0) kind=max kernel=({k}, {k}) strides=({s}, {s}) pads=({p}, {p}, {p}, {p}) dilations=({d}, {d})"
)


def extreme(line, x="uint8[1, 2, n, 4]", minimum=0, behind=""):
    return f"""graph g(%x: {x}) where n >= {minimum} {{
        %0 = map(%x) {DEQUANTISE}
        %1 = {line}
        {f"%2 = {behind}" if behind else ""}
        return %{2 if behind else 1}
    }}"""


@pytest.mark.parametrize(
    ("line", "x"),
    [
        ("reduce(%0) kind=max axes=(2, 3) keepdims=true", "uint8[1, 2, n, 4]"),
        ("reduce(%0) kind=min axes=(2)", "uint8[1, 2, n, 4]"),
        (POOLED.format(k=2, s=1, p=1, d=1) + " sizes=(n + 1, 5)", "uint8[1, 2, n, 4]"),
        (POOLED.format(k=3, s=1, p=2, d=2) + " sizes=(n, 4)", "uint8[1, 2, n, 4]"),
        (POOLED.format(k=2, s=2, p=1, d=2) + " sizes=(1, 1)", "uint8[1, n, 1, 1]"),
        (POOLED.format(k=2, s=1, p=2, d=1) + " sizes=(7, 7)", "uint8[1, n, 4, 4]"),
    ],
)
def test_the_extreme_of_nothing_is_no_byte(line, x):
    stays(integer_products, extreme(line, x))


@pytest.mark.parametrize(
    ("line", "minimum"),
    [
        ("reduce(%0) kind=max axes=(2, 3) keepdims=true", 1),
        ("reduce(%0) kind=min axes=(3)", 0),
        (POOLED.format(k=2, s=2, p=0, d=1) + " sizes=(n//2, 2)", 0),
        (POOLED.format(k=3, s=1, p=1, d=1) + " sizes=(n, 4)", 0),
        (POOLED.format(k=3, s=2, p=1, d=1) + " sizes=((n + 1)//2, 2)", 0),
        (POOLED.format(k=2, s=1, p=1, d=1) + " sizes=(n + 1, 5)", 1),
        (POOLED.format(k=3, s=1, p=2, d=2) + " sizes=(n, 4)", 2),
    ],
)
@pytest.mark.parametrize("n", [2, 5])
def test_extremes_of_some_elements_of_an_open_axis_are_those_of_the_bytes(line, minimum, n):
    found = agrees(integer_products, extreme(line, minimum=minimum), n=n)
    (compared,) = [node for node in found.nodes if isinstance(node.op, (Pool, Reduce))]
    assert compared.inputs[0].dtype == "uint8"


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("n", [0, 3])
def test_the_extreme_of_nothing_is_of_bytes_where_the_byte_made_of_it_is_the_same(kind, n):
    text = extreme(f"reduce(%0) kind={kind} axes=(2)", behind=quantise("%1", 0.125, 7))
    found = agrees(clean(integer_products), text, n=n)
    (compared,) = [node for node in found.nodes if isinstance(node.op, Reduce)]
    assert compared.inputs[0].dtype == "uint8"


@pytest.mark.parametrize(
    "behind", [quantise("%1", 0.5, 7), "reshape(%1) shape=(8)", "map(%1) { mul($0, 2.0) }"]
)
def test_the_extreme_of_nothing_is_no_byte_where_that_is_seen(behind):
    stays(integer_products, extreme("reduce(%0) kind=max axes=(2)", behind=behind))


def test_padding_that_no_byte_stands_for_is_padded_with_numbers():
    stays(
        integer_products,
        f"""graph g(%x: uint8[1, 2, 4, 4]) {{
        %v = constant float32[] (0.1)
        %0 = map(%x) {DEQUANTISE}
        %1 = pad(%0, %v) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        return %1
    }}""",
    )


def test_what_is_joined_and_quantised_is_joined_as_bytes():
    found = agrees(
        clean(integer_products),
        f"""graph g(%x: uint8[1, 2, 4, 4], %y: uint8[1, 3, 4, 4]) {{
        %0 = map(%x) {DEQUANTISE}
        %1 = map(%y) {DEQUANTISE.replace("0.25", "0.5")}
        %2 = concat(%0, %1) axis=1
        %3 = {quantise("%2", 0.25, 7)}
        return %3
    }}""",
    )
    joined = found.outputs[0].producer
    assert ops(found) == ["Map", "Map", "Concat"]
    assert joined.inputs[0] is found.inputs[0]


@pytest.mark.parametrize("shape", ["", "1"], ids=["scalar", "one element"])
def test_an_image_is_padded_with_the_zero_point_that_the_run_tells(shape):
    found = agrees(
        integer_products,
        f"""graph g(%x: uint8[1, 6, 5, w], %z: uint8[{shape}]) {{
        %w = constant int8[8, 6, 3, 3] #w
        %0 = map(%x, %z) {{ sub(cast($0, int32), cast($1, int32)) }}
        %1 = conv(%0, %w) strides=(2, 1) pads=(1, 0, 2, 1) dilations=(1, 1) accumulate=int32
        return %1
    }}""",
        WEIGHTS,
        w=7,
    )
    (conv,) = [node for node in found.nodes if isinstance(node.op, Conv)]
    assert [v.dtype for v in conv.inputs] == ["uint8", "int8"]
    assert isinstance(conv.inputs[0].node.op, Pad) and not any(conv.op.pads)


def test_bytes_that_become_the_same_bytes_stay_what_they_are():
    found = agrees(
        integer_products,
        f"""graph g(%x: uint8[300]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), 0.25) }}
        %1 = {quantise("%0", 0.25, 7)}
        return %1
    }}""",
        inputs=[(np.arange(300) % 256).astype(np.uint8)],
    )
    assert found.outputs[0] is found.inputs[0]


def test_bytes_of_another_scale_are_made_anew():
    text = f"""graph g(%x: uint8[300]) {{
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 7), float32), 0.25) }}
        %1 = {quantise("%0", 0.5, 7)}
        return %1
    }}"""
    assert ops(integer_products(parse(text))) == ["Map", "Map"]


def test_bytes_that_stay_in_some_places_alone_are_made_anew():
    agrees(
        integer_products,
        """graph g(%x: uint8[400], %y: uint8[20, 20]) {
        %0 = map(%x) { select(lt(index(0), 500), $0, 0) }
        %1 = map(%0) { select(lt(index(0), 300), $0, 0) }
        %2 = map(%y) { select(le(index(0), index(1)), $0, 0) }
        %3 = map(%2) { select(le(index(1), index(0)), $0, 0) }
        return %1, %3
    }""",
        inputs=[np.full(400, 7, np.uint8), np.full((20, 20), 7, np.uint8)],
    )


def test_bytes_made_of_bytes_are_left_alone_wherever_these_are_from():
    stays(
        integer_products,
        """graph g(%x: uint8[6, 4]) {
        %0 = map(%x) { and($0, 15) }
        %1 = reshape(%x) shape=(4, 6)
        %2 = map(%1) { shr($0, 4) }
        return %0, %2
    }""",
    )


LEAST = {"uint8": 0, "int8": -128}
CENTRED = "{ sub(cast($0, int32), cast($1, int32)) }"


def ends(dtype, *shape):
    """Integers most of which are the least and the greatest of their type."""
    low, draw = LEAST[dtype], np.random.default_rng(sum(shape))
    return draw.choice([low, low, low + 1, low + 200, low + 255, low + 255], shape).astype(dtype)


def multiplied(text, inputs, **stored):
    """The types of what is multiplied, of a graph that gives the same as before."""
    sizes = {"m": len(inputs[0])}
    found = agrees(integer_products, text, stored, inputs, **sizes)
    products = [n for n in found.nodes if isinstance(n.op, (Contract, Conv))]
    return {tuple(v.dtype for v in n.inputs) for n in products}


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("columns", [(), (1,), (8,)])
@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("right", LEAST)
@pytest.mark.parametrize("left", LEAST)
def test_zero_points_of_constant_weights_may_be_the_runs(left, right, of_rows, columns, rows):
    row = "m, 1" if of_rows else ""
    text = f"""graph g(%x: {left}[m, 300], %a: {left}[{row}], %b: {right}{[*columns]}) {{
        %w = constant {right}[300, 8] #w
        %0 = map(%x, %a) {CENTRED}
        %1 = map(%w, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=int32
        return %2
    }}"""
    zeros = ends(left, *((rows, 1) if of_rows else ())), ends(right, *columns)
    assert multiplied(text, [ends(left, rows, 300), *zeros], w=ends(right, 300, 8)) == {(left, "int8")}


@pytest.mark.parametrize(("zero", "labels"), [((2, 1, 8), "bkn"), ((2, 8, 1), "bnk"), ((8, 1, 1), "nbk")])
def test_weights_of_each_matrix_of_a_batch_may_have_zero_points_of_the_run(zero, labels):
    shape = [{"b": 2, "k": 9, "n": 8}[label] for label in labels]
    text = f"""graph g(%x: uint8[m, 2, 9], %b: uint8{[*zero]}) {{
        %w = constant uint8{shape} #w
        %0 = map(%x) {{ sub(cast($0, int32), 255) }}
        %1 = map(%w, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=mbk rhs={labels} out=mbn accumulate=int32
        return %2
    }}"""
    inputs = [ends("uint8", 3, 2, 9), ends("uint8", *zero)]
    assert multiplied(text, inputs, w=ends("uint8", *shape)) == {("uint8", "int8")}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zero", [(), (1,), (8, 1, 1, 1)])
@pytest.mark.parametrize("padding", ["7", "the run's"])
@pytest.mark.parametrize("right", LEAST)
def test_kernels_may_have_zero_points_of_the_run(right, padding, zero, groups):
    operands, zero_of_x = ("%x", "7") if padding == "7" else ("%x, %a", "cast($1, int32)")
    text = f"""graph g(%x: uint8[m, 6, 5, 5], %a: uint8[], %b: {right}{[*zero]}) {{
        %w = constant {right}[8, {6 // groups}, 3, 3] #w
        %0 = map({operands}) {{ sub(cast($0, int32), {zero_of_x}) }}
        %1 = map(%w, %b) {CENTRED}
        %2 = conv(%0, %1) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups={groups} accumulate=int32
        return %2
    }}"""
    inputs = [ends("uint8", 2, 6, 5, 5), np.uint8(200), ends(right, *zero)]
    assert multiplied(text, inputs, w=ends(right, 8, 6 // groups, 3, 3)) == {("uint8", "int8")}


def test_real_weights_may_have_zero_points_of_the_run():
    text = f"""graph g(%x: uint8[m, 30], %b: uint8[8]) {{
        %w = constant uint8[30, 8] #w
        %s = constant float32[8] #s
        %0 = map(%x) {{ mul(cast(sub(cast($0, int32), 3), float32), 0.5) }}
        %1 = map(%w, %b, %s) {{ mul(cast({CENTRED[2:-2]}, float32), $2) }}
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=float32
        return %2
    }}"""
    scales = np.exp2(np.arange(-4, 4)).astype(np.float32)
    inputs = [ends("uint8", 3, 30), ends("uint8", 8)]
    assert multiplied(text, inputs, w=ends("uint8", 30, 8), s=scales) == {("uint8", "int8")}


@pytest.mark.parametrize("kind", ["the sum", "words"])
def test_zero_points_of_the_run_that_cannot_be_taken_off_behind_sums_stay(kind):
    left, zero = ("uint8", "30, 1") if kind == "the sum" else ("int16", "")
    stays(
        integer_products,
        f"""graph g(%x: {left}[m, 30], %b: int8[{zero}]) {{
        %w = constant int8[30, 8] #w
        %0 = map(%x) {{ sub(cast($0, int32), 3) }}
        %1 = map(%w, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=int32
        return %2
    }}""",
        {"w": ends("int8", 30, 8)},
    )


@pytest.mark.parametrize(("labels", "zero"), [("kn", (8,)), ("nk", (8, 1)), ("kn", (1, 8))])
@pytest.mark.parametrize("right", LEAST)
@pytest.mark.parametrize("left", LEAST)
def test_rows_and_columns_of_two_operands_may_have_zero_points_of_their_own(left, right, labels, zero):
    columns = [{"k": 9, "n": 8}[label] for label in labels]
    text = f"""graph g(%x: {left}[m, 9], %y: {right}{columns}, %a: {left}[m, 1], %b: {right}{[*zero]}) {{
        %0 = map(%x, %a) {CENTRED}
        %1 = map(%y, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=mk rhs={labels} out=mn accumulate=int32
        return %2
    }}"""
    inputs = [ends(left, 3, 9), ends(right, *columns), ends(left, 3, 1), ends(right, *zero)]
    assert {*map(frozenset, multiplied(text, inputs))} == {frozenset({"uint8", "int8"})}


@pytest.mark.parametrize(("columns", "types"), [(288, ("uint8", "int8")), (289, ("int8", "uint8"))])
def test_of_two_operands_the_one_of_few_elements_gets_the_other_sign(columns, types):
    text = f"""graph g(%x: uint8[9, 9], %y: uint8[9, {columns}], %a: uint8[], %b: uint8[]) {{
        %0 = map(%x, %a) {CENTRED}
        %1 = map(%y, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=int32
        return %2
    }}"""
    inputs = [ends("uint8", 9, 9), ends("uint8", 9, columns), np.uint8(255), np.uint8(0)]
    assert multiplied(text, inputs) == {types}


@pytest.mark.parametrize("zero", ["255", "cast($1, int32)"])
@pytest.mark.parametrize(
    ("shape", "move"), [((1, 9, 8), "reshape(%1) shape=(9, 8)"), ((8, 9), "transpose(%1) perm=(1, 0)")]
)
def test_operands_are_moved_under_their_zero_points(shape, move, zero):
    text = f"""graph g(%x: uint8[m, 1, 9], %a: uint8[], %b: uint8{[1] * len(shape)}) {{
        %w = constant uint8{[*shape]} #w
        %0 = map({"%x" if zero == "255" else "%x, %a"}) {{ sub(cast($0, int32), {zero}) }}
        %1 = map(%w, %b) {CENTRED}
        %2 = {move}
        %3 = reshape(%0) shape=(m, 9)
        %4 = contract(%3, %2) lhs=mk rhs=kn out=mn accumulate=int32
        return %4
    }}"""
    inputs = [ends("uint8", 5, 1, 9), np.uint8(200), np.full([1] * len(shape), 100, np.uint8)]
    assert multiplied(text, inputs, w=ends("uint8", *shape)) == {("uint8", "int8")}


def test_a_zero_point_may_have_more_axes_than_the_result():
    text = f"""graph g(%x: uint8[m], %a: uint8[1], %b: uint8[1, 1]) {{
        %w = constant uint8[9, 8] #w
        %0 = map(%x, %a) {CENTRED}
        %1 = map(%w, %b) {CENTRED}
        %2 = contract(%0, %1) lhs=k rhs=kn out=n accumulate=int32
        return %2
    }}"""
    inputs = [ends("uint8", 9), np.array([200], np.uint8), np.array([[100]], np.uint8)]
    assert multiplied(text, inputs, w=ends("uint8", 9, 8)) == {("uint8", "int8")}


def test_weights_in_a_shape_that_only_the_run_knows_stay():
    stays(
        integer_products,
        f"""graph g(%x: uint8[m, n], %b: uint8[]) {{
        %w = constant uint8[9, 8] #w
        %0 = map(%w, %b) {CENTRED}
        %1 = reshape(%0) shape=(n, 8)
        %2 = contract(%x, %1) lhs=mk rhs=kn out=mn accumulate=int32
        return %2
    }}""",
        {"w": ends("uint8", 9, 8)},
    )
