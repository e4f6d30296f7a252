"""fuse_pools: pools with the Maps around them."""

from support.pass_text import agrees, ops, stays

from onnxc.passes.fuse_pools import fuse_pools

WINDOW = "kernel=(3, 3) strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1) sizes=(4, 4)"


def graph(
    *,
    stored="float16",
    kind="max",
    before="cast($0, float32)",
    after="cast($0, float16)",
    more="",
    channels=3,
):
    return f"""graph g(%x: {stored}[n, {channels}, 8, 8]) {{
        %0 = map(%x) {{ {before} }}
        %1 = pool(%0) kind={kind} {WINDOW}
        %2 = map(%1) {{ {after} }}
        return %2{more}
    }}"""


def test_a_pool_joins_the_conversions_before_and_behind_it():
    found = agrees(fuse_pools, graph(), n=2)
    assert ops(found) == ["Fused"]
    assert [type(node.op).__name__ for node in found.nodes[0].op.region.nodes] == ["Map", "Pool", "Map"]


def test_bytes_with_a_zero_point():
    before = "mul(cast(sub(cast($0, int32), 7), float32), 0.5)"
    text = graph(stored="uint8", kind="mean", before=before, after="cast(min(max($0, 0.0), 255.0), uint8)")
    assert ops(agrees(fuse_pools, text, n=2)) == ["Fused"]


def test_one_of_the_two_is_enough():
    assert ops(agrees(fuse_pools, graph(after="exp($0)"), n=1)) == ["Fused", "Map"]
    assert ops(agrees(fuse_pools, graph(stored="float32", before="exp($0)"), n=1)) == ["Map", "Fused"]


def test_whatever_is_made_of_the_results_of_one_channel():
    assert ops(agrees(fuse_pools, graph(after="exp($0)", channels=1), n=1)) == ["Fused"]
    placed = "mul($0, cast(index(3), float32))"
    assert ops(agrees(fuse_pools, graph(after=placed, channels=1), n=1)) == ["Fused", "Map"]


def test_what_is_simple_to_compute_of_one_channel():
    for kind, before, joins in (
        ("sum", "mul($0, $0)", True),
        ("mean", "mul(abs($0), 0.5)", True),
        ("max", "mul($0, 2.0)", True),
        ("sum", "add($0, 0.5)", False),  # nothing gives a zero
        ("sum", "mul(mul(mul($0, $0), $0), $0)", False),
        ("sum", "exp($0)", False),
    ):
        text = graph(stored="float32", kind=kind, before=before, after="exp($0)", channels=1)
        assert ops(agrees(fuse_pools, text, n=1)) == (["Fused"] if joins else ["Map", "Fused"])
        stays(fuse_pools, text.replace("[n, 1,", "[n, 3,"))


def test_a_map_between_two_pools_joins_the_first():
    text = f"""graph g(%x: float32[n, 1, 8, 8]) {{
        %0 = pool(%x) kind=sum {WINDOW}
        %1 = map(%0) {{ mul($0, 2.0) }}
        %2 = pool(%1) kind=sum {WINDOW.replace("(4, 4)", "(2, 2)")}
        return %2
    }}"""
    assert ops(agrees(fuse_pools, text, n=1)) == ["Fused", "Pool"]


def two(channels, place="0"):
    operands = "%1, %y" if place == "0" else "%y, %1"
    return f"""graph g(%x: float32[n, {channels}, 8, 8], %y: float32[n, {channels}, 4, 4]) {{
        %1 = pool(%x) kind=sum {WINDOW}
        %2 = map({operands}) {{ div($0, $1) }}
        return %2
    }}"""


def test_results_with_another_image_of_one_channel():
    assert ops(agrees(fuse_pools, two(1), n=2)) == ["Fused"]
    stays(fuse_pools, two(3))
    stays(fuse_pools, two(1, place="1"))


def test_what_others_read_stays_outside():
    assert ops(agrees(fuse_pools, graph(more=", %0"), n=1)) == ["Map", "Fused"]
    assert ops(agrees(fuse_pools, graph(more=", %1"), n=1)) == ["Fused", "Map"]


def test_what_cannot_stand_outside_of_the_image_stays_as_it_is():
    before = "add(cast($0, float32), 0.5)"
    stays(fuse_pools, graph(stored="uint8", kind="sum", before=before, after="exp($0)"))
    stays(fuse_pools, graph(stored="uint8", before="cast($0, float32)", after="exp($0)"))


def test_whole_images_are_others():
    text = """graph g(%x: float16[n, 3, 8, 8]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = pool(%0) kind=mean kernel=(8, 8) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) sizes=(1, 1)
        return %1
    }"""
    stays(fuse_pools, text)
