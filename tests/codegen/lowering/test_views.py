"""What is part of another value's memory: views and joins."""

import pytest
from support.agreement import floats
from support.planned import PLANE, POINTWISE, Planned, agrees_in_any_memory, apart, convolved
from support.small_models import Weights, parsed

from onnxc.codegen.lowering.lower import lower
from onnxc.ir import dims
from onnxc.ir.ops import Concat, Conv, Map, Reorder, Reshape, Transpose, Unfold
from onnxc.ir.text_parser import parse
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

# Views


def test_a_reshape_is_its_operand():
    p = Planned("""graph g(%x: float32[2, 12]) {
        %a = map(%x) { exp($0) }
        %b = reshape(%a) shape=(4, 6)
        %c = reduce(%b) kind=sum axes=(1)
        return %c
    }""")
    assert p.offset_in("b", "a") == 0
    assert p.kernels() == ["Map", "Reduce"]


def test_leading_rows_are_part_of_their_operand():
    p = Planned("""graph g(%x: float32[1, n, 6]) {
        %a = map(%x) { exp($0) }
        %b = slice(%a) starts=(0, n // 2, 0) sizes=(1, n - n // 2, 6) steps=(1, 1, 1)
        %c = reduce(%b) kind=sum axes=(1)
        return %c
    }""")
    assert p.offset_in("b", "a") == dims.symbol("n") // 2 * 24


def test_columns_are_copied():
    p = Planned("""graph g(%x: float32[4, 6]) {
        %a = map(%x) { exp($0) }
        %b = slice(%a) starts=(0, 3) sizes=(4, 3) steps=(1, 1)
        %c = reduce(%b) kind=sum axes=(1)
        return %c
    }""")
    assert apart(p, "a", "b")


def test_whole_blocks_are_part_of_their_operand():
    p = Planned(
        convolved(
            24,
            f"""
        %b = slice(%a) starts=(0, 16, 0, 0) sizes=(1, 8, 4, 4) steps=(1, 1, 1, 1)
        %c = conv(%b, %v) {POINTWISE}
        return %c""",
        )
    )
    assert p.offset_in("b", "a") == 2 * PLANE


def test_the_last_channels_may_leave_lanes_idle():
    p = Planned(
        convolved(
            12,
            """
        %b = slice(%a) starts=(0, 8, 0, 0) sizes=(1, 4, 4, 4) steps=(1, 1, 1, 1)
        %c = map(%b) { exp($0) }
        return %c""",
        )
    )
    assert p.offset_in("b", "a") == PLANE


def part(begin, size, batch=1, first=0, images=None):
    count = images or batch
    return convolved(
        24,
        f"""
        %b = slice(%a) starts=({first}, {begin}, 0, 0) sizes=({count}, {size}, 4, 4) steps=(1, 1, 1, 1)
        %c = map(%b) {{ exp($0) }}
        return %c""",
        batch,
    )


@pytest.mark.parametrize(("batch", "begin", "size"), [(1, 4, 8), (1, 0, 4), (2, 4, 8), ("n", 0, 4)])
def test_channels_inside_blocks_are_copied(batch, begin, size):
    assert apart(Planned(part(begin, size, batch)), "a", "b")


@pytest.mark.parametrize("batch", [2, "n"])
def test_whole_blocks_of_several_images_are_part_of_them(batch):
    p = Planned(part(8, 16, batch))
    assert p.offset_in("b", "a") == PLANE
    a, b = (p.values[name].tensor for name in "ab")
    assert (a.layout.pitch, b.layout.pitch) == (0, 3)
    assert b.batch_stride == a.batch_stride == a.image_bytes == 3 * PLANE
    assert "Slice" not in p.kernels()


def test_images_and_channels_may_be_cut_at_once():
    p = Planned(part(16, 8, 5, first=2, images=3))
    assert p.offset_in("b", "a") == (2 * 3 + 2) * PLANE


def test_a_part_has_the_halo_of_its_operand():
    p = Planned(
        convolved(
            16,
            """
        %b = slice(%a) starts=(0, 8, 0, 0) sizes=(1, 8, 4, 4) steps=(1, 1, 1, 1)
        %c = conv(%b, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        return %c""",
        )
    )
    assert p.values["a"].type.layout.halo == p.values["b"].type.layout.halo == (1, 1)
    assert p.offset_in("b", "a") == 6 * 6 * 8 * 4


def unfolded(channels, taps, stride, rest="", batch="1"):
    """Images of which every window sees `taps`, and what reads these."""
    return convolved(
        channels,
        f"""
        %b = unfold(%a) taps={taps} stride={stride}
        %u = constant float32[8, {channels * taps}, 3, 3] splat 0.25
        %c = conv(%b, %u) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        {rest}
        return %c""",
        batch,
    )


@pytest.mark.parametrize("batch", [5, "n + 3"])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (2, 2), (1, 2), (2, 3)])
def test_windows_over_images_of_whole_blocks_are_parts_of_them_that_overlap(taps, stride, batch):
    p = Planned(unfolded(16, taps, stride, batch=batch))
    assert p.offset_in("b", "a") == 0
    a, b = (p.values[name].tensor for name in "ab")
    assert b.layout.pitch == stride * 2 and b.batch_stride == stride * a.image_bytes
    assert [op for op in p.kernels() if op != "Reorder"] == ["Conv", "Conv"]


def test_windows_over_images_with_idle_lanes_are_copied():
    assert apart(Planned(unfolded(12, 3, 1, batch=5)), "a", "b")


def test_windows_over_parts_of_wider_images_are_over_a_copy():
    part = "%p = slice(%a) starts=(0, 8, 0, 0) sizes=(5, 8, 4, 4) steps=(1, 1, 1, 1)"
    text = unfolded(8, 3, 1, batch=5).replace("%b = unfold(%a)", f"{part} %b = unfold(%p)")
    text = text.replace("constant float32[8, 8, 3, 3] splat 0.5", "constant float32[16, 8, 3, 3] splat 0.5")
    p = Planned(text)
    assert "Slice" not in p.kernels() and apart(p, "a", "b")


RESIDUAL = """graph g(%x: float32[1, 8, d, 6, 7]) {
    %w = constant float32[16, 8, 3, 3, 3] splat 0.5
    %v = constant float32[16, 16, 3, 3, 3] splat 0.25
    %u = constant float32[16, 16, 1, 1, 1] splat 0.25
    %a = conv(%x, %w) strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1)
    %b = map(%a) { max($0, 0.0) }
    %c = conv(%b, %v) strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1)
    %d = map(%b, %c) { add($0, $1) }
    %e = conv(%d, %u) strides=(2, 2, 2) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)
    %f = conv(%e, %v) strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1)
    return %f
}"""


@pytest.mark.parametrize("depth", [5, "d"])
def test_planes_of_a_volume_between_convolutions_stay_where_they_are(depth):
    graph = parse(RESIDUAL.replace("8, d", f"8, {depth}"))
    lowered = lower(optimise(graph, TARGETS["x86-64-v3"]), TARGETS["x86-64-v3"]).graph
    moved = [k for k, n in enumerate(lowered.nodes) if isinstance(n.op, Transpose)]
    convolved = [k for k, n in enumerate(lowered.nodes) if isinstance(n.op, Conv)]
    assert len(moved) == 2 and moved[0] < min(convolved) and moved[1] > max(convolved)
    joined = [v.node.op for n in lowered.nodes if isinstance(n.op, Concat) for v in n.inputs]
    assert {type(op) for op in joined} == {Reshape, Reorder, Map, Conv}  # Reorder: of what is padded with
    assert {n.choice for n in lowered.nodes if isinstance(n.op, Unfold)} == {None}


def test_a_single_pixel_of_whole_blocks_is_dense_already():
    p = Planned("""graph g(%x: float32[1, 8, 1, 1]) {
        %w = constant float32[16, 8, 1, 1] splat 0.5
        %v = constant float32[16, 3] splat 0.5
        %a = conv(%x, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %b = reshape(%a) shape=(1, 16)
        %c = contract(%b, %v) lhs="mk" rhs="kn" out="mn" accumulate=float32
        return %c
    }""")
    assert p.offset_in("b", "a") == 0


VOLUME = """graph g(%x: float32[1, 16, 12, 5]) {
    %w = constant float32[16, 16, 1, 1] splat 0.5
    %k = constant float32[16, 1, 3, 3, 3] splat 0.5
    %a = conv(%x, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    %b = reshape(%a) shape=(1, 16, 3, 4, 5)
    %c = conv(%b, %k) strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1) groups=16
    %d = reshape(%c) shape=(1, 16, 12, 5)
    %e = conv(%d, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    RETURN
}"""


def test_planes_are_rows_of_one_image_in_blocks_too():
    p = Planned(VOLUME.replace("RETURN", "%f = reduce(%e) kind=sum axes=(2, 3) return %f"))
    assert p.offset_in("b", "a") == p.offset_in("d", "c") == 0
    assert (p.values["a"].type.layout.halo, p.values["b"].type.layout.halo) == ((0, 1), (0, 0, 1))
    assert p.values["c"].type.layout.halo == (0, 0, 0)


def test_a_border_that_only_one_of_two_views_can_have_takes_a_copy():
    rest = """%v = constant float32[16, 16, 3, 3] splat 0.5
        %f = conv(%a, %v) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %g = map(%e, %f) { add($0, $1) } %h = reduce(%g) kind=sum axes=(2, 3) return %h"""
    p = Planned(VOLUME.replace("RETURN", rest))
    assert apart(p, "a", "b")
    assert p.values["b"].type.layout.halo == (0, 0, 1)


def test_a_part_of_a_reshaped_image_has_a_border_of_its_own():
    p = Planned("""graph g(%x: float32[1, 16, 12, 5]) {
        %w = constant float32[16, 16, 1, 1] splat 0.5
        %k = constant float32[8, 8, 3, 3] splat 0.5
        %a = conv(%x, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %b = reshape(%a) shape=(1, 16, 6, 10)
        %c = slice(%b) starts=(0, 8, 0, 0) sizes=(1, 8, 6, 10) steps=(1, 1, 1, 1)
        %d = conv(%c, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %e = reduce(%d) kind=sum axes=(2, 3)
        return %e
    }""")
    assert p.values["c"].type.layout.halo == (1, 1)
    assert apart(p, "a", "c")


def test_a_blocked_value_is_never_an_output():
    p = Planned("""graph g(%x: float32[1, 256, 1, 1]) {
        %w = constant float32[512, 256, 3, 3] splat 0.5
        %a = conv(%x, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %b = reshape(%a) shape=(1, 512)
        return %b
    }""")
    assert p.place("a")[0] == "arena"
    assert [index for index, _ in p.plan.copies] == [0]


# Joins


def test_the_operands_of_a_join_are_parts_of_its_result():
    p = Planned("""graph g(%x: float32[n, 4], %y: float32[m, 4]) {
        %a = map(%x) { exp($0) }
        %b = map(%y) { neg($0) }
        %c = concat(%a, %b) axis=0
        %d = reduce(%c) kind=sum axes=(0)
        return %d
    }""")
    assert p.offset_in("a", "c") == 0
    assert p.offset_in("b", "c") == dims.symbol("n") * 16
    assert p.kernels() == ["Map", "Map", "Reduce"]


def test_what_no_node_writes_is_copied_into_a_join():
    p = Planned("""graph g(%x: float32[3, 4]) {
        %a = map(%x) { exp($0) }
        %c = concat(%a, %x) axis=0
        %d = reduce(%c) kind=sum axes=(0)
        return %d
    }""")
    assert p.offset_in("a", "c") == 0
    assert p.kernels() == ["Map", "Reorder", "Reduce"]


def test_a_join_of_blocked_images_is_blocked():
    p = Planned(
        convolved(
            16,
            f"""
        %b = conv(%a, %w2) {POINTWISE}
        %c = concat(%b, %a) axis=1
        %d = conv(%c, %w3) {POINTWISE}
        return %d""",
        ).replace(
            "%a = conv",
            """%w2 = constant float32[8, 16, 1, 1] splat 0.5
        %w3 = constant float32[8, 24, 1, 1] splat 0.5
        %a = conv""",
        )
    )
    assert p.offset_in("b", "c") == 0
    assert p.offset_in("a", "c") == PLANE
    assert "Concat" not in p.kernels()


IN_PARTS = f"""
    %v2 = constant float32[16, 24, 1, 1] splat 0.5
    %v3 = constant float32[8, 40, 1, 1] splat 0.5
    %b = map(%a) {{ exp($0) }}
    %c = conv(%b, %v2) {POINTWISE}
    %d = concat(%c, %b) axis=1
    %e = conv(%d, %v3) {POINTWISE}
    %f = concat(%e, %d) axis=1
    %g = map(%f) {{ exp($0) }}
    return %g"""


@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_a_join_of_several_blocked_images_is_one_too(batch):
    p = Planned(convolved(24, IN_PARTS, batch))
    assert [p.offset_in(part, "f") // PLANE for part in "edcb"] == [0, 1, 1, 3]
    pitches = [p.values[name].tensor.layout.pitch for name in "fedcb"]
    assert pitches == ([0] * 5 if batch == 1 else [0, 6, 6, 6, 6])
    assert p.kernels() == ["Conv", "Map", "Conv", "Conv", "Reorder", "Map"]


def test_of_what_is_joined_twice_one_is_a_copy():
    p = Planned(
        convolved(
            24,
            f"""
        %v2 = constant float32[8, 24, 1, 1] splat 0.5
        %v3 = constant float32[8, 40, 1, 1] splat 0.5
        %b = conv(%a, %v2) {POINTWISE}
        %c = concat(%b, %a, %b) axis=1
        %d = conv(%c, %v3) {POINTWISE}
        return %d""",
            2,
        )
    )
    assert [p.offset_in(part, "c") // PLANE for part in "ba"] == [0, 1]
    assert p.kernels() == ["Conv", "Conv", "Reorder", "Conv", "Reorder"]


def test_parts_of_several_images_are_copied_into_a_join():
    p = Planned(
        convolved(
            16,
            f"""
        %v3 = constant float32[8, 24, 1, 1] splat 0.5
        %b = slice(%a) starts=(0, 0, 0, 0) sizes=(n, 8, 4, 4) steps=(1, 1, 1, 1)
        %c = slice(%a) starts=(0, 8, 0, 0) sizes=(n, 8, 4, 4) steps=(1, 1, 1, 1)
        %d = conv(%c, %v) {POINTWISE}
        %e = concat(%c, %d, %b) axis=1
        %f = conv(%e, %v3) {POINTWISE}
        return %f""",
            "n",
        )
    )
    assert p.offset_in("d", "e") == PLANE
    assert apart(p, "a", "e")


def test_blocks_that_are_not_full_are_copied():
    p = Planned(
        convolved(
            12,
            """
        %b = map(%a) { exp($0) }
        %c = concat(%b, %a) axis=1
        %d = map(%c) { neg($0) }
        return %d""",
        )
    )
    assert "Concat" in p.kernels()


def test_parts_that_are_joined_again_lie_there_as_a_whole():
    p = Planned(
        convolved(
            16,
            f"""
        %b = slice(%a) starts=(0, 0, 0, 0) sizes=(1, 8, 4, 4) steps=(1, 1, 1, 1)
        %c = slice(%a) starts=(0, 8, 0, 0) sizes=(1, 8, 4, 4) steps=(1, 1, 1, 1)
        %d = conv(%c, %v) {POINTWISE}
        %e = concat(%b, %c, %d) axis=1
        %f = reduce(%e) kind=sum axes=(2, 3)
        return %f""",
        )
    )
    assert [p.offset_in(part, "e") for part in "abcd"] == [0, 0, PLANE, 2 * PLANE]


def test_a_join_may_lie_in_a_join():
    p = Planned("""graph g(%x: float32[4]) {
        %a = map(%x) { exp($0) }
        %b = map(%x) { neg($0) }
        %c = concat(%a, %b) axis=0
        %d = map(%x) { abs($0) }
        %e = concat(%d, %c) axis=0
        return %e
    }""")
    assert [p.place(part) for part in "edcab"] == [("output", 0, at) for at in (0, 0, 16, 16, 32)]


def test_a_value_lies_in_one_join_only():
    p = Planned("""graph g(%x: float32[64, 64]) {
        %a = map(%x) { exp($0) }
        %b = map(%x) { neg($0) }
        %c = concat(%a, %b) axis=0
        %d = concat(%b, %a) axis=0
        %e = map(%c, %d) { add($0, $1) }
        return %e
    }""")
    assert p.offset_in("b", "c") == 64 * 64 * 4
    assert apart(p, "c", "d")


def test_sizes_that_data_tells_are_copied():
    p = Planned("""graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %b = slice(%x) starts=(0) sizes=(k) steps=(1)
        %a = map(%b) { exp($0) }
        %c = concat(%a, %a) axis=0
        return %c
    }""")
    assert "Concat" in p.kernels()


def test_sizes_that_only_the_run_compares_are_copied():
    p = Planned("""graph g(%x: float32[n, k], %y: float32[m, l]) {
        %a = map(%x) { exp($0) }
        %b = map(%y) { neg($0) }
        %c = concat(%a, %b) axis=0
        return %c
    }""")
    assert p.kernels() == ["Map", "Map", "Concat"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["1", "n"])
def test_joined_and_parted_images_agree_in_any_memory(batch, tmp_path):
    w = Weights(3)
    for name, shape in {"stem": (32, 3, 3, 3), "narrow": (16, 16, 3, 3), "mix": (32, 64, 1, 1)}.items():
        w.add(name, *shape)
    model = parsed(
        """
        images (float[BATCH, 3, height, width] image)
            => (float[BATCH, c, h2, w2] whole, float[BATCH, d] mean) {
            a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (image, stem)
            b, c = Split <axis = 1, num_outputs = 2> (a)
            d = Conv <pads = [1, 1, 1, 1]> (c, narrow)
            e = Relu (d)
            f = Conv <pads = [1, 1, 1, 1]> (e, narrow)
            g = Add (f, c)
            h = Concat <axis = 1> (b, c, g, e)
            i = Conv (h, mix)
            j = GlobalAveragePool (i)
            mean = Flatten (j)
            k = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (h)
            whole = Concat <axis = 1> (k, k)
        }""".replace("BATCH", batch),
        w,
    )
    counts, sizes = ((1,) if batch == "1" else (1, 3, 0)), ((16, 16), (7, 23), (1, 1), (40, 9))
    runs = [{"image": floats(count, 3, *size)} for count in counts for size in sizes]
    agrees_in_any_memory(model, tmp_path, runs)


@pytest.mark.slow
def test_volumes_agree_in_any_memory(tmp_path):
    w = Weights(5)
    shapes = {"wide": (24, 16, 1, 1, 1), "slide": (24, 1, 3, 3, 3), "narrow": (16, 24, 1, 1, 1)}
    for name, shape in {"stem": (16, 3, 1, 3, 3), "time": (16, 1, 3, 1, 1), **shapes}.items():
        w.add(name, *shape)
    model = parsed(
        """
        volumes (float[n, 3, depth, height, width] video)
            => (float[n, 16, d, h, w] whole, float[n, 16, 1, 1, 1] mean) {
            a = Conv <pads = [0, 1, 1, 0, 1, 1]> (video, stem)
            b = Conv <pads = [1, 0, 0, 1, 0, 0], group = 16> (a, time)
            c = Relu (b)
            d = Conv (c, wide)
            e = Sigmoid (d)
            f = Conv <pads = [1, 1, 1, 1, 1, 1], group = 24> (e, slide)
            g = GlobalAveragePool (f)
            h = Mul (f, g)
            i = Conv (h, narrow)
            whole = Add (i, c)
            j = Concat <axis = 1> (i, c, i)
            k = MaxPool <kernel_shape = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1]> (j)
            l, m, o = Split <axis = 1, num_outputs = 3> (k)
            mean = GlobalAveragePool (l)
        }""",
        w,
    )
    sizes = ((1, 4, 6, 8), (2, 1, 5, 3), (1, 3, 1, 1))
    agrees_in_any_memory(model, tmp_path, [{"video": floats(n, 3, *size)} for n, *size in sizes])


@pytest.mark.parametrize("batch", ["1", "n"])
def test_a_line_of_planes_of_one_pixel_agrees_in_any_memory(batch, tmp_path):
    """A convolution along it reads its padding beside the first plane, which no pool over planes writes."""
    w = Weights(6)
    w.add("wide", 16, 3, 3, 3, 3)
    w.add("along", 16, 16, 3, 1, 1)
    model = parsed(
        """
        line (float[BATCH, 3, 5, 2, 2] video) => (float[BATCH, 16, 5, 1, 1] out) {
            a = Conv <pads = [1, 1, 1, 1, 1, 1]> (video, wide)
            b = MaxPool <kernel_shape = [1, 2, 2]> (a)
            out = Conv <pads = [1, 0, 0, 1, 0, 0]> (b, along)
        }""".replace("BATCH", batch),
        w,
    )
    agrees_in_any_memory(model, tmp_path, [{"video": floats(1, 3, 5, 2, 2)}])


def test_joined_rows_of_any_number_agree_in_any_memory(tmp_path):
    model = parsed("""
        rows (float[n, 3] x, float[m, 3] y) => (float[k, 3] all, float[2] sums, float[m, 3] also) {
            a = Exp (x)
            b = Neg (y)
            also = Abs (b)
            all = Concat <axis = 0> (a, also, y, b)
            two = Constant <value = int64[2] {0, 1}> ()
            s = ReduceSum <keepdims = 0> (a, two)
            t = ReduceSum <keepdims = 0> (all, two)
            axes = Constant <value = int64[1] {0}> ()
            s1 = Unsqueeze (s, axes)
            t1 = Unsqueeze (t, axes)
            sums = Concat <axis = 0> (s1, t1)
        }""")
    sizes = ((2, 5), (0, 3), (4, 0), (0, 0))
    agrees_in_any_memory(model, tmp_path, [{"x": floats(n, 3), "y": floats(m, 3)} for n, m in sizes])


@pytest.mark.slow
def test_overlapping_planes_agree_in_any_memory(tmp_path):
    w = Weights(6)
    shapes = {"a": (32, 16, 3, 3, 3), "b": (32, 32, 3, 3, 3), "c": (32, 32, 1, 1, 1), "t": (32, 16, 2, 2, 2)}
    for name, shape in shapes.items():
        w.add(name, *shape)
    model = parsed(
        """
        volumes (float[1, 16, depth, height, 7] x) => (float[1, 16, d, h, 8] y) {
            p = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, a)
            q = Relu (p)
            r = Conv <pads = [1, 1, 1, 1, 1, 1]> (q, b)
            s = Add (r, p)
            u = Conv <strides = [2, 2, 2]> (s, c)
            v = Conv <pads = [0, 1, 1, 2, 1, 1], strides = [2, 1, 1]> (u, b)
            y = ConvTranspose <strides = [2, 2, 2]> (v, t)
        }""",
        w,
    )
    sizes = ((3, 3), (6, 5), (1, 9), (13, 2))
    agrees_in_any_memory(model, tmp_path, [{"x": floats(1, 16, *size, 7)} for size in sizes])
