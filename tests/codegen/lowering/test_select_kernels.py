"""select_kernels: every node that computes gets a kernel, blocked values flow between those that read them,
and results are dense."""

from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from support.pass_text import operands, ops
from support.stored import blocks_of

from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import Offer, choices_of
from onnxc.codegen.kernels import reorder
from onnxc.codegen.lowering import select_kernels as module
from onnxc.codegen.lowering.lower import verify_kernels
from onnxc.codegen.lowering.select_kernels import runs_kernel, select_kernels
from onnxc.errors import UnsupportedError
from onnxc.ir import dims, interpret
from onnxc.ir.graph import Graph, Layout, TensorType, Value, constant_value, make_node, walk
from onnxc.ir.ops import Contract, Conv, Map, Reorder
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]


def selected(text, target=TARGET, weights=None):
    found = select_kernels(parse(text, weights or WEIGHTS), target)
    verify_kernels(found)
    return found


def ops_of(node):
    return type(node.op).__name__


def kernels(graph):
    return [node.choice.name if node.choice else None for node in graph.nodes]


def layouts(graph):
    """How the results of each node are stored."""
    return [" ".join(str(v.type.layout or "dense") for v in node.outputs) for node in graph.nodes]


WEIGHTS = {"k": np.ones((16, 16, 3, 3), np.float32), "m": np.ones((16, 16, 1, 1), np.float32)}
CONVOLUTIONS = """graph g(%x: float32[1, 16, 20, 20]) {
    %k = constant float32[16, 16, 3, 3] #k
    %m = constant float32[16, 16, 1, 1] #m
    %0 = conv(%x, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %1 = conv(%0, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
    %2 = conv(%0, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %3 = map(%1, %2) { add($0, $1) }
    return %3
}"""


def test_what_computes_has_a_kernel_and_what_is_a_view_has_none():
    found = selected("""graph g(%x: float32[n, 4], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = map(%x) { exp($0) }
        %1 = reshape(%0) shape=(4*n)
        %2 = slice(%1) starts=(k) sizes=(1) steps=(1)
        %3 = elements() dims=(k) shape=(1)
        return %2, %3
    }""")
    assert [runs_kernel(node) for node in found.nodes] == [False, True, False, False, False]
    assert [name is not None for name in kernels(found)] == [False, True, False, False, False]


def test_weights_take_their_time_also_where_the_kernel_does_nothing_for_images_of_one_pixel():
    found = selected(
        """graph g(%x: float32[n, 128, 1, w]) {
            %k = constant float32[64, 128, 1, 3] #k
            %0 = conv(%x, %k) strides=(1, 1) pads=(0, 1, 0, 1) dilations=(1, 1)
            return %0
        }""",
        weights={"k": np.ones((64, 128, 1, 3), np.float32)},
    )
    (convolution,) = (node for node in found.nodes if ops_of(node) == "Conv")
    fixed = convolution.choice.cost.fixed
    assert convolution.choice.name == "winograd" and 1000 < fixed < convolution.choice.time / 2


def test_convolutions_hand_on_blocks_and_the_result_is_dense():
    found = selected(CONVOLUTIONS)
    assert layouts(found)[-1] == "dense"
    assert "c8" in " ".join(layouts(found)[:-1])


def test_images_between_convolutions_on_matrix_registers_are_stored_as_these_multiply_them():
    ones = {"k": np.ones((64, 64, 3, 3), ml_dtypes.bfloat16), "d": np.ones((64, 1, 3, 3), np.float32)}
    text = """graph g(%x: bfloat16[1, 64, 20, 20]) {{
        %k = constant bfloat16[64, 64, 3, 3] #k
        %d = constant float32[64, 1, 3, 3] #d
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) epilogue={{ cast($0, bfloat16) }}
        %1 = conv(%0, %{between}) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) {rest}
        %2 = conv(%1, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        return %2
    }}"""
    for between, rest, stored in (
        ("k", "epilogue={ cast($0, bfloat16) }", ["c32h1x1", "c32h1x1"]),
        ("d", "groups=64 accumulate=float32 epilogue={ cast($0, bfloat16) }", ["c16h1x1", "c16h1x1"]),
    ):
        found = select_kernels(
            parse(text.format(between=between, rest=rest), ones), TARGETS["sapphirerapids"]
        )
        assert [str(n.outputs[0].type.layout) for n in found.nodes if isinstance(n.op, Conv)][:2] == stored


def test_a_block_is_as_wide_as_a_vector():
    for name, block in (("x86-64-v4", "c16"), ("x86-64-v3", "c8"), ("x86-64-v2", "c4"), ("aarch64", "c4")):
        assert block in " ".join(layouts(selected(CONVOLUTIONS, TARGETS[name])))


def test_a_blocked_value_has_the_widest_border_that_a_reader_wants():
    weights = {name: np.ones((64, 64, *w.shape[2:]), np.float32) for name, w in WEIGHTS.items()}
    found = selected(CONVOLUTIONS.replace("16", "64"), weights=weights)
    (first,) = (node.inputs[0] for node in found.nodes if ops_of(node) == "Conv" and node.op.pads[0] == 1)
    assert first.type.layout.halo == (1, 1)
    readers = [node for node in found.nodes if first in node.inputs]
    assert len(readers) == 2


def test_a_tiling_suits_the_border_with_which_the_result_is_stored():
    """As many rows of seven pixels as only the run knows are tiles of 4 and 3 where they have a border, which
    three vectors keep busy. As one row they are tiles of up to 6, of two."""
    text = """graph g(%x: float32[1, 96, h, 7]) {
        %m = constant float32[96, 96, 1, 1] #wide
        %k = constant float32[96, 1, 3, 3] #deep
        %0 = conv(%x, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups=96
        %2 = conv(%1, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %2
    }"""
    weights = {"wide": np.ones((96, 96, 1, 1), np.float32), "deep": np.ones((96, 1, 3, 3), np.float32)}
    found = select_kernels(parse(text, weights), TARGET)
    choices = [node.choice for node in found.nodes if node.choice and node.choice.name == "conv"]
    assert [choice.tiling.vectors for choice in choices] == [3, 2]


def test_readers_of_one_layout_share_one_reorder():
    found = selected("""graph g(%x: float32[1, 32, 20, 20]) {
        %k = constant float32[32, 32, 3, 3] splat 0.5
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = conv(%x, %k) strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1)
        return %0, %1
    }""")
    readers = [ops_of(node) for node in found.nodes if found.inputs[0] in node.inputs]
    assert readers == ["Reorder"]


def test_a_result_is_stored_as_its_readers_want_it_where_a_reorder_would_cost_more(monkeypatch):
    """Of two kernels for the first Map the faster one makes blocks, which nobody wants."""
    block = Layout(8, (0, 0))

    def candidates(node, target):
        reads = (None,) * len(node.inputs)
        if isinstance(node.op, Map):
            yield Offer(Estimate(compute=110.0), None, reads)
            if node.op.body.op == "exp":
                yield Offer(Estimate(compute=100.0), None, reads, block)

    maker = SimpleNamespace(candidates=candidates, __name__="kernels.maker")
    monkeypatch.setattr("onnxc.codegen.lowering.select_kernels.KERNELS", (maker, reorder))
    found = selected("""graph g(%x: float32[1, 16, 20, 20]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { neg($0) }
        return %1
    }""")
    assert layouts(found) == ["dense", "dense"]


@pytest.mark.parametrize("halo, read", [((0, 0), "c8"), ((1, 1), "dense")])
def test_bringing_an_image_to_blocks_costs_what_its_border_does(halo, read, monkeypatch):
    """Of two kernels one takes no time and reads blocks, the other as long as what is halfway between
    bringing images to blocks with a border and without one."""
    image = Value(TensorType("float32", (1, 16, 20, 20)), "x")
    plain, wide = (
        choices_of(reorder, make_node(Reorder(Layout(8, border)), [image]), TARGET)[0].time
        for border in ((0, 0), (1, 1))
    )
    assert wide > plain

    def candidates(node, target):
        if isinstance(node.op, Map):
            yield Offer(Estimate(), None, (Layout(8, halo),))
            yield Offer(Estimate(compute=(plain + wide) / 2), None, (None,))

    maker = SimpleNamespace(candidates=candidates, __name__="kernels.maker")
    monkeypatch.setattr("onnxc.codegen.lowering.select_kernels.KERNELS", (maker, reorder))
    found = selected("graph g(%x: float32[1, 16, 20, 20]) { %0 = map(%x) { exp($0) } return %0 }")
    assert str(found.nodes[-1].inputs[0].tensor.layout or "dense") == read


@pytest.mark.parametrize(("images", "outputs", "window"), [(1, 36, 16), (7, 36, 16), (1, 100, 14)])
def test_images_of_few_channels_are_not_brought_into_blocks_for_windows_that_do_not_overlap(
    images, outputs, window
):
    weights = {"k": np.ones((outputs, 3, window, window), np.float32)}
    text = f"""graph g(%x: float32[{images}, 3, 224, 224]) {{
        %k = constant float32[{outputs}, 3, {window}, {window}] #k
        %0 = conv(%x, %k) strides=({window}, {window}) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %0
    }}"""
    assert kernels(selected(text, TARGETS["sapphirerapids"], weights))[0] == "conv_stem"


@pytest.mark.parametrize("shape", ["20", "1, 20", "20, 1, 1", "2, 10, 1, 1"])
def test_what_is_seen_as_an_image_in_blocks_is_stored_dense_where_it_is_none(shape):
    text = f"""graph g(%x: float32[1, 16, 20, 20], %s: float32[{shape}]) {{
        %k = constant float32[20, 16, 3, 3] #k
        %0 = map(%s) {{ exp($0) }}
        %1 = reshape(%0) shape=(1, 20, 1, 1)
        %2 = conv(%x, %k, %1) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) epilogue={{ mul($0, $1) }}
        return %2
    }}"""
    found = selected(text, weights={"k": np.ones((20, 16, 3, 3), np.float32)})
    assert "c8" in layouts(found)
    scale = next(node for node in found.nodes if isinstance(node.op, Map) and node.inputs[0].name == "s")
    assert scale.outputs[0].type.layout is None


def test_a_blocked_value_that_is_an_output_too_is_reordered_for_the_caller():
    text = CONVOLUTIONS.replace("return %3", "return %3, %0")
    found = selected(text)
    assert [v.type.layout for v in found.outputs] == [None, None]


def test_blocks_do_not_enter_or_leave_branches():
    found = selected("""graph g(%c: bool[], %x: float32[1, 16, 20, 20]) {
        %k = constant float32[16, 16, 3, 3] #k
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = if(%c, %0) then=(%a: float32[1, 16, 20, 20]) {
            %2 = conv(%a, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
            return %2
        } otherwise=(%a: float32[1, 16, 20, 20]) {
            return %a
        } : float32[1, 16, 20, 20]
        return %1
    }""")
    branch = next(node for node in found.nodes if ops_of(node) == "If")
    assert branch.inputs[1].type.layout is None
    assert branch.op.then.nodes and all(node.choice is not None for node in branch.op.then.nodes)
    assert branch.op.then.outputs[0].type.layout is None


def test_a_group_that_no_kernel_takes_is_inlined():
    found = selected("""graph g(%x: float32[n, 8]) {
        %0 = fused(%x) kind=unheard_of region=(%a: float32[n, 8]) {
            %1 = map(%a) { exp($0) }
            %2 = reduce(%1) kind=sum axes=(1)
            return %2
        }
        return %0
    }""")
    assert ops(found) == ["Map", "Reduce"]


def test_a_group_that_only_dense_operands_suit_reads_a_blocked_value_reordered():
    found = selected("""graph g(%x: float32[1, 16, 20, 20]) {
        %k = constant float32[16, 16, 3, 3] #k
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = fused(%0) kind=rows region=(%a: float32[1, 16, 20, 20]) {
            %b = reduce(%a) kind=sum axes=(2, 3) keepdims=true
            %c = map(%a, %b) { div($0, $1) }
            return %c
        }
        return %1
    }""")
    assert kernels(found)[-2:] == ["reorder", "rows"]
    assert layouts(found)[-3:] == ["c8", "dense", "dense"]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_the_chosen_graph_means_the_same(size):
    text = CONVOLUTIONS.replace("20, 20", "h, 5")
    inputs = operands(parse(text, WEIGHTS), h=size)
    expected = interpret.run_graph(parse(text, WEIGHTS), inputs)
    np.testing.assert_array_equal(interpret.run_graph(selected(text), inputs)[0], expected[0])


def test_types_differ_in_their_layout_alone():
    before, after = parse(CONVOLUTIONS, WEIGHTS), selected(CONVOLUTIONS)
    dense = [TensorType(v.dtype, v.shape) for n in walk(after) if ops_of(n) != "Reorder" for v in n.outputs]
    assert dense == [v.type for node in walk(before) for v in node.outputs]


def product_of_rows(rows, depth, columns):
    x = Value(TensorType("float32", (rows, depth)), "x")
    weights = constant_value(np.ones((depth, columns), np.float32))
    node = make_node(Contract("mk", "kn", "mn", "float32"), [x, weights])
    (found,) = select_kernels(Graph((x,), node.outputs, (node,)), TARGET).nodes
    return found.choice


@pytest.mark.parametrize(("depth", "columns"), [(4096, 768), (768, 4096), (512, 1024)])
def test_the_tile_for_one_row_of_a_batch_suits_many(depth, columns):
    """Tiles of few rows are not slower for one, and half as fast for many."""
    one, many = (product_of_rows(dims.symbol("b", typical=n), depth, columns).tiling for n in (1, 64))
    assert one.rows >= many.rows * 2 / 3


@pytest.mark.parametrize("zero", ["each", "middle"])
def test_codes_of_a_batch_are_multiplied_by_what_suits_many_rows(zero):
    """Of two kernels that take as long for one row."""
    x = Value(TensorType("float32", (dims.symbol("b", typical=1), 256)), "x")
    weights = Value(TensorType("float32", (512, 256)), "", blocks_of(4, 512, 256, 32, zero))
    node = make_node(Contract("mk", "nk", "mn", "float32"), [x, weights])
    for name, kernel in (("sapphirerapids", "gemm_thirds"), ("x86-64-v4", "gemm_stored")):
        (found,) = select_kernels(Graph((x,), node.outputs, (node,)), TARGETS[name]).nodes
        assert found.choice.name == kernel


def test_what_suits_many_rows_is_asked_of_dense_operands_too():
    """An operand in blocks is reordered for a product: its kernels offer nothing for blocks. Of one row the
    weights, which come from far, are all that takes time."""
    target = replace(TARGETS["sapphirerapids"], least_run_bytes=1 << 24)
    with dims.of_ones():
        found = selected(
            """graph g(%x: float32[b, 192, 14, 14]) {
            %k = constant float32[192, 192, 1, 1] #k
            %w = constant int8[48, 192, 1, 1] #w
            %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
            %1 = reduce(%0) kind=sum axes=(2, 3) keepdims=true
            %2 = map(%1) { cast($0, uint8) }
            %3 = contract(%2, %w) lhs=nchw rhs=ochw out=no accumulate=int32
            return %3
        }""",
            target,
            {"k": np.ones((192, 192, 1, 1), np.float32), "w": np.ones((48, 192, 1, 1), np.int8)},
        )
    assert kernels(found)[-1] == "gemm_matrix"


def test_one_column_of_a_batch_is_summed_along_its_rows():
    assert product_of_rows(dims.symbol("b", typical=1), 2048, 1).name == "gemm_dots"


def test_a_product_of_which_no_size_is_known_is_one_of_matrices():
    found = selected("""graph g(%x: float32[b, m, k], %y: float32[b, k, n]) {
        %0 = contract(%x, %y) lhs=amk rhs=akn out=amn accumulate=float32
        return %0
    }""")
    assert kernels(found) == ["gemm"]


@pytest.mark.parametrize(
    ("rows", "columns", "target", "source"),
    [
        (32, 64, "x86-64-v3", "direct"),
        (1000, 64, "x86-64-v3", "packed"),  # many tiles read it again
        (32, 1024, "x86-64-v3", "in_parts"),  # its rows evict each other
        (32, 100, "x86-64-v3", "direct"),
        (128, 100, "x86-64-v3", "packed"),  # vectors lie across lines
        (32, 102, "x86-64-v2", "packed"),  # which cannot load some lanes of a vector
        (128, 768, "x86-64-v3", "direct"),
        (128, 768, "x86-64-v4", "in_parts"),  # of whose rows, two lines each, sixteen share a set
        (128, 496, "x86-64-v4", "direct"),
    ],
)
def test_matrices_of_the_run_are_read_where_they_lie_while_their_panels_stay_near(
    rows, columns, target, source
):
    found = selected(
        f"""graph g(%x: float32[4, {rows}, 64], %y: float32[4, 64, {columns}]) {{
        %0 = contract(%x, %y) lhs=amk rhs=akn out=amn accumulate=float32
        return %0
    }}""",
        TARGETS[target],
    )
    assert found.nodes[0].choice.tiling.source == source


def test_small_images_are_worth_transformed_weights_where_a_group_has_several():
    k = np.ones((256, 256, 3, 3), np.float32)
    chosen = {}
    for images, size in ((1, 4), (16, 4), (1, 16), (16, 16)):
        text = f"""graph g(%x: float32[{images}, 256, {size}, {size}]) {{
            %k = constant float32[256, 256, 3, 3] #k
            %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
            return %0
        }}"""
        chosen[images, size] = "winograd" in kernels(selected(text, weights={"k": k}))
    assert chosen == {(1, 4): False, (16, 4): True, (1, 16): True, (16, 16): True}


def test_what_is_the_fastest_for_one_row_alone_is_not_chosen_where_there_may_be_more():
    assert product_of_rows(1, 16, 3).name == "loop_nest"
    assert product_of_rows(dims.symbol("b", typical=1), 16, 3).name == "gemm"


def test_kernels_are_asked_once_for_equal_nodes_of_all_branches(monkeypatch):
    product = "contract(%x, %y) lhs=nk rhs=km out=nm accumulate=float32"
    branch = f"(%x: float32[n, k], %y: float32[k, m]) {{ %0 = {product} return %0 }}"
    once = f"graph g(%c: bool[], %x: float32[n, k], %y: float32[k, m]) {{ %0 = {product} return %0 }}"
    twice = f"""graph g(%c: bool[], %x: float32[n, k], %y: float32[k, m]) {{
        %0 = if(%c, %x, %y) then={branch} otherwise={branch} : float32[n, m] return %0 }}"""
    asked = []
    offers = module.choices_of
    monkeypatch.setattr(module, "choices_of", lambda *what: asked.append(what) or offers(*what))
    select_kernels(parse(once), TARGET)
    alone = len(asked)
    select_kernels(parse(twice), TARGET)
    assert 0 < alone == len(asked) - alone


def test_what_no_kernel_takes_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("onnxc.codegen.lowering.select_kernels.KERNELS", ())
    with pytest.raises(UnsupportedError, match=r"no kernel takes Map of float32\[n\]"):
        selected("graph g(%x: float32[n]) { %0 = map(%x) { neg($0) } return %0 }")
