"""Weights of a few bits mean what ONNX Runtime makes of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from support import contrib
from support.contrib import Case, as_model, check, check_compiled, interpreted, same

import onnxc
from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.ops import Gather, Map
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.gather_stored import gather_stored

rng = np.random.default_rng(7)
floats = partial(contrib.floats, rng)


def bytes_(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def product(k: int, n: int, block: int, *, bits: int = 4, zero: str = "", **more: object) -> Case:
    """3 rows times n x k weights. zero: "packed" or "float" zero points."""
    blocks = -(-k // block)
    weights = bytes_(n, blocks, block * bits // 8)
    points = {"": None, "packed": bytes_(n, -(-blocks * bits // 8)), "float": np.abs(floats(n, blocks)) * 3}[
        zero
    ]
    inputs = [floats(2, 3, k), weights, np.abs(floats(n, blocks)) / 8, points]
    if more.get("grouped"):
        inputs += [rng.permutation(np.arange(blocks * block) // block)[:k].astype(np.int32)]
    if more.get("bias"):
        inputs += [None] * (5 - len(inputs)) + [floats(n)]
    while inputs[-1] is None:
        inputs.pop()
    stored = range(1, len(inputs)) if more.get("stored") else ()
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": more.get("level", 0)}
    return Case("MatMulNBits", inputs, attributes, stored=stored, tolerance=1e-4)


PRODUCTS = [
    product(32, 6, 16),
    product(64, 5, 32, stored=True),
    product(48, 5, 32, stored=True, zero="packed"),
    product(48, 5, 16, zero="packed", bias=True),
    product(64, 3, 16, zero="float", stored=True),
    product(64, 8, 32, bits=8, stored=True),
    product(40, 8, 16, bits=8, zero="packed", stored=True),
    product(64, 8, 32, bits=2, zero="packed", stored=True),
    product(64, 8, 32, stored=True, bias=True),
    product(64, 4, 16, stored=True, grouped=True),
    product(1, 1, 16, stored=True),
    product(48, 8, 32, stored=True, level=4),
    product(64, 8, 32, stored=True, level=4, zero="packed", bits=8),
    product(64, 8, 16, stored=True, level=4, zero="float"),
    product(64, 8, 32, stored=True, level=4, grouped=True),
    product(48, 0, 16, stored=True, zero="packed", bias=True),
    product(48, 0, 16, stored=True, bits=2, level=4),
    product(48, 0, 16, bits=8, zero="packed"),
]


def zeros(case: Case) -> Case:
    """The product where some weights are nothing but zeros, to which quantisers give the scale 0."""
    scales = case.inputs[2].copy()
    scales[0], scales[-1, -1] = 0, 0
    return replace(case, inputs=[*case.inputs[:2], scales, *case.inputs[3:]])


PRODUCTS += [
    zeros(product(64, 5, 32, stored=True)),
    zeros(product(64, 8, 32, stored=True, bits=8, zero="packed")),
    zeros(product(64, 8, 32, stored=True, level=4)),
]


def omitted(*shape: int, zero: bool = False, **more: object) -> Case:
    """A product of 32 x 8 weights that are not there: their bytes are of this shape, and what scales them may
    have no elements either. A is not looked at."""
    inputs = [np.full((2, 32), np.nan, np.float32), np.zeros(shape, np.uint8), floats(*shape[:2])]
    inputs += [np.zeros((shape[0], 1), np.uint8) if zero else None, None, floats(8)]
    attributes = {"K": 32, "N": 8, "block_size": 32, **more}
    return Case("MatMulNBits", inputs, attributes, stored=(1, 2, 3, 5))


OMITTED = [
    omitted(0, 1, 16),
    omitted(8, 0, 16, zero=True),
    omitted(8, 1, 0, accuracy_level=4),
    omitted(0, 0, 0),
]
OMITTED += [replace(case, inputs=case.inputs[:3], stored=(1, 2)) for case in OMITTED]

BITSANDBYTES = [
    Case(
        "MatMulBnb4",
        [floats(3, k), bytes_((n * k + 1) // 2), np.abs(floats(-(-n * k // block)))],
        {"K": k, "N": n, "block_size": block, "quant_type": kind},
        stored=(1, 2) if kind else (),
        tolerance=1e-4,
    )
    for k, n, block, kind in ((32, 6, 16, 0), (32, 6, 16, 1), (30, 5, 64, 1), (7, 3, 16, 0))
]


def table(
    data: np.ndarray,
    block: int,
    axis: int,
    zero: bool,
    places: object = ((1, 0), (-1, 2)),
    **attributes: object,
) -> Case:
    wide = data.shape[-1] * (8 // attributes.get("bits", 4) if data.dtype == np.uint8 else 1)
    shape = [*data.shape[:-1], wide]
    shape[axis] = -(-shape[axis] // block)
    scales = np.abs(floats(*shape))
    points = None
    if zero and data.dtype == np.uint8:
        points = bytes_(*shape[:-1], -(-shape[-1] * attributes.get("bits", 4) // 8))
    elif zero:
        points = rng.integers(0, 8, shape).astype(data.dtype)
    inputs = [data, np.array(places), scales, points]
    attributes |= {"block_size": block, "quantize_axis": axis}
    return Case("GatherBlockQuantized", inputs[: 4 if zero else 3], attributes, stored=(0, 3))


TABLES = [
    table(rng.integers(0, 16, (5, 32)).astype(ml_dtypes.uint4), 16, 1, True),
    table(rng.integers(0, 16, (5, 32)).astype(ml_dtypes.uint4), 16, 1, False),
    table(rng.integers(-8, 8, (5, 3, 32)).astype(ml_dtypes.int4), 16, 2, False, gather_axis=1),
    table(rng.integers(-8, 8, (32, 5)).astype(ml_dtypes.int4), 16, 0, True, gather_axis=1),
    table(bytes_(5, 16), 16, 1, False),
    table(bytes_(5, 24), 32, 1, True),
    table(bytes_(5, 32), 16, 1, True, bits=8),
    table(bytes_(5, 32), 16, 1, False, bits=8),
]

OUTSIDE = [0, 5, -5, -6, 4, 99, -(2**63)]
#: Of tables of 5 entries: where an index is outside, there are zeros.
OUTSIDE_OF_TABLES = [
    table(rng.integers(0, 16, (5, 32)).astype(ml_dtypes.uint4), 16, 1, True, OUTSIDE),
    table(rng.integers(-8, 8, (4, 5, 32)).astype(ml_dtypes.int4), 16, 2, False, [OUTSIDE], gather_axis=1),
    table(rng.integers(-8, 8, (32, 5)).astype(ml_dtypes.int4), 16, 0, True, OUTSIDE, gather_axis=1),
    table(rng.integers(-8, 8, (5, 3)).astype(ml_dtypes.int4), 16, 0, True, [OUTSIDE], gather_axis=0),
    table(bytes_(5, 24), 32, 1, True, np.array(OUTSIDE[:-1], np.int32)),
    table(bytes_(5, 32), 16, 1, False, 5, bits=8),
    table(bytes_(0, 16), 16, 1, False, OUTSIDE),
]


def float_table(
    dtype: type, block: int, axis: int, scales: tuple[int, ...], shape=(5, 40), **more: int
) -> Case:
    inputs = [floats(*shape).astype(dtype), np.array(OUTSIDE), np.abs(floats(*scales))]
    attributes = {"block_size": block, "quantize_axis": axis, **more}
    return Case("GatherBlockQuantized", inputs, attributes, stored=(0,), opset=23)


FLOAT_TABLES = [
    float_table(ml_dtypes.float8_e4m3fn, 16, 1, (5, 3)),
    float_table(ml_dtypes.float8_e4m3fnuz, 32, 1, (5, 2), (5, 64)),
    float_table(ml_dtypes.float8_e5m2, 0, 1, (5, 1)),
    float_table(ml_dtypes.float8_e5m2fnuz, 16, 1, (1, 3)),
    float_table(ml_dtypes.float4_e2m1fn, 64, 1, (1, 1), (5, 33)),
    float_table(ml_dtypes.float4_e2m1fn, 16, 2, (5, 1, 2), (5, 3, 32), gather_axis=1),
    float_table(ml_dtypes.float8_e5m2, 16, 0, (2, 1), (32, 5), gather_axis=1),
    float_table(ml_dtypes.float8_e4m3fn, 0, 0, (1, 3), (5, 3), gather_axis=0),
]

TABLES += OUTSIDE_OF_TABLES + FLOAT_TABLES

ALL = PRODUCTS + OMITTED + BITSANDBYTES + TABLES


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


@pytest.mark.parametrize("case", OMITTED, ids=str)
def test_weights_may_turn_out_to_be_omitted_when_they_come(case):
    check(replace(case, stored=()), symbolic=True)


def test_weights_that_one_run_omits_another_may_give(tmp_path):
    given = replace(product(32, 8, 32, zero="packed", bias=True), tolerance=1e-5)
    proto, feeds = as_model([given], symbolic=True)
    for k, name in enumerate(("rows", "blocks", "size")):
        proto.graph.input[1].type.tensor_type.shape.dim[k].dim_param = name
    model = onnxc.load(onnxc.compile(proto, tmp_path / "nodes.so"))
    (y,) = model.run(None, feeds)
    same(y, interpreted(given)[0], given.tolerance)
    (y,) = model.run(None, {**feeds, "x0_1": np.zeros((8, 0, 16), np.uint8)})
    same(y, np.broadcast_to(feeds["x0_5"], y.shape), 0)


@pytest.mark.parametrize(("n", "k"), [(6, 32), (32, 6), (16, 16)])
def test_weights_that_are_not_transposed_are_those_of_the_way_back(n, k):
    """By definition, for ONNX Runtime transposes them on processors all the same."""
    stored = [bytes_(n * k // 2), np.abs(floats(n * k // 16))]
    attributes = {"K": k, "N": n, "block_size": 16, "quant_type": 1}
    (weights,) = interpreted(Case("MatMulBnb4", [np.eye(k, dtype=np.float32), *stored], attributes))
    x = floats(3, n)
    (found,) = interpreted(Case("MatMulBnb4", [x, *stored], {**attributes, "transB": 0}))
    same(found, x @ weights.T, 1e-5)


#: What a block of each of GGML's formats is: numbers, bytes, and where those of its float16 scales are.
GGML = {
    **{0: (1, 4, ()), 1: (1, 2, ()), 30: (1, 2, ()), 2: (32, 18, (0,)), 6: (32, 22, (0,)), 8: (32, 34, (0,))},
    **{13: (256, 176, (0, 2)), 14: (256, 210, (208,)), 20: (32, 18, (0,)), 23: (256, 136, (0,))},
    42: (64, 18, (0,)),
}


def packed_rows(form: int) -> Case:
    numbers, size, scales = GGML[form]
    depth = numbers * 2 if numbers > 1 else 5
    table = bytes_(4, depth // numbers, size)
    for at in scales:
        table[..., at : at + 2] = floats(4, depth // numbers, 1).astype(np.float16).view(np.uint8)
    if not scales:  # any bits but those of NaNs and infinities
        table[..., -1] &= 63
    half = form in (6, 14)
    attributes = {"K": depth, "packed_type": form, "output_dtype": 10 if half else 1}
    indices = np.array([[3, -1, 9], [2, 1, 0]])
    return Case("GatherPacked", [table.reshape(4, -1), indices], attributes, typed=() if half else (0,))


def blob(k: int, n: int, kind: int, rows: int) -> Case:
    blocks = bytes_(n, -(-k // 32), 20 + (kind > 0))
    blocks[..., :4] = np.abs(floats(*blocks.shape[:2], 1)).view(np.uint8)
    blocks[..., 4] &= 15
    weights = blocks.reshape(-1)
    return Case(
        "MatMulFpQ4",
        [floats(2, rows, k), weights, np.array([k, n])],
        {"blk_quant_type": kind},
        stored=(1, 2),
        tolerance=1e-4,
    )


ROWS = [*map(packed_rows, GGML)]
BLOBS = [blob(100, 7, 0, 1), blob(64, 5, 1, 3), blob(70, 3, 2, 2)]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_blocks_of_bytes_are_what_onnxruntime_reads_of_them(case):
    check(case)


def test_a_blob_without_two_sizes_is_refused():
    x, weights, shape = BLOBS[0].inputs
    with pytest.raises(ModelErrors, match="the shape of the weights has 3 sizes, not 2"):
        interpreted(replace(BLOBS[0], inputs=[x, weights, np.append(shape, 1)]))


@pytest.mark.parametrize("case", BLOBS, ids=str)
def test_blobs_are_columns_of_blocks_of_a_scale_and_numbers(case):
    """By definition, for ONNX Runtime has them on some processors alone; there the same is read of them."""
    x, weights, (depth, columns) = case.inputs
    blocks = weights.reshape(columns, -1, 20 + (case.attributes["blk_quant_type"] > 0))
    numbers = np.concatenate([blocks[..., -16:] & 15, blocks[..., -16:] >> 4], axis=2).astype(np.float64)
    zero = blocks[..., 4:5] if case.attributes["blk_quant_type"] else 8
    matrix = (numbers - zero) * blocks[..., :4].copy().view(np.float32)
    (found,) = interpreted(case)
    same(found, (x @ matrix.reshape(columns, -1)[:, :depth].T).astype(np.float32), case.tolerance)
    try:
        check(case)
    except Fail as error:
        assert "not yet supported on this hardware platform" in str(error)


def test_a_library_reads_blocks_of_bytes_as_the_interpreter_does(tmp_path):
    check_compiled([*ROWS, *BLOBS], tmp_path)


def test_a_library_of_some_of_each_computes_what_the_interpreter_does(tmp_path):
    check_compiled(
        [*PRODUCTS[1:4], PRODUCTS[11], OMITTED[1], *BITSANDBYTES[1:3], TABLES[0], TABLES[5]], tmp_path
    )


def test_a_library_gathers_of_every_table_what_the_interpreter_does(tmp_path):
    check_compiled([*OUTSIDE_OF_TABLES, *FLOAT_TABLES], tmp_path)


@pytest.mark.parametrize(("places", "nodes"), [([0, -5, 4], 2), ([0, 5], 3)])
def test_only_indices_that_may_be_outside_are_compared_with_the_size_of_the_table(places, nodes):
    """They are widened, gathered and, in one Map more, compared."""
    case = table(rng.integers(0, 16, (5, 32)).astype(ml_dtypes.uint4), 16, 1, True, places)
    imported = import_model(as_model([replace(case, stored=(0, 1, 3))])[0]).graph
    assert sum(isinstance(node.op, Map | Gather) for node in imported.nodes) == nodes


def test_numbers_of_three_bits_are_a_stream():
    """ONNX Runtime has no kernel for them: the reference is written out."""
    n, k, block = 6, 40, 16
    codes = rng.integers(0, 8, (n, 3 * block))
    stream = np.unpackbits(codes[..., None].astype(np.uint8), axis=-1, bitorder="little")[..., :3]
    packed = np.packbits(stream.reshape(n, 3, 3 * block), axis=-1, bitorder="little")
    scales, x = np.abs(floats(n, 3)), floats(2, k)
    attributes = {"K": k, "N": n, "bits": 3, "block_size": block}
    case = Case("MatMulNBits", [x, packed, scales], attributes, stored=(1, 2), tolerance=1e-4)
    weights = ((codes - 4) * np.repeat(scales, block, axis=1))[:, :k]
    np.testing.assert_allclose(interpreted(case)[0], x @ weights.T, rtol=1e-4, atol=1e-4)


def test_a_table_that_is_the_weights_of_a_product_in_another_shape_is_gathered_as_it_is_stored():
    n, blocks, block = 96, 8, 32
    packed = rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8)
    node = helper.make_node(
        "GatherBlockQuantized", ["table", "i", "scales"], ["y"], domain="com.microsoft", block_size=block
    )
    reshape = helper.make_node("Reshape", ["weights", "shape"], ["table"])
    stored = {"weights": packed, "shape": np.array([n, -1]), "scales": floats(n, blocks)}
    graph = helper.make_graph(
        [reshape, node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["rows"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    imported = import_model(helper.make_model(graph, opset_imports=opsets)).graph
    gathers = [node for node in gather_stored(fold_constants(imported)).nodes if isinstance(node.op, Gather)]
    assert {node.inputs[0].dtype for node in gathers} == {"uint4", "float32"}
