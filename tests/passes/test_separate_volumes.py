"""separate_volumes: volumes take convolutions over three axes one after the other."""

import pytest
from support.pass_text import agrees, ops, stays

from onnxc.ir.ops import Loop
from onnxc.passes import separate_volumes as separating
from onnxc.target import TARGETS

WINDOW = "strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1)"
POINT = "strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)"
SIZES = {"n": 3, "h": 4}


def separate_volumes(graph):
    return separating.separate_volumes(graph, TARGETS["x86-64-v4"])


def network(rest, volumes="n", size="6, h, 8", window=WINDOW, channels=16):
    """%a of so many volumes, convolved with %v, and the `rest`, which also has weights %p."""
    return f"""graph g(%x: float32[{volumes}, {channels}, {size}], %y: float32[{volumes}, 5]) {{
        %v = constant float32[16, {channels}, 3, 3, 3] splat 0.25
        %p = constant float32[16, 16, 1, 1, 1] splat 0.25
        %f = constant float32[16, 4] splat 0.5
        %z = constant float32[] splat 0.5
        %a = conv(%x, %v) {window}
        {rest}
    }}"""


def members(graph):
    """What is done to one volume after the other, in order, but for what takes it from the others."""
    (loop,) = (n.op for n in graph.nodes if isinstance(n.op, Loop))
    names = ops(loop.body)
    count = loop.body.inputs[2:]
    assert names[: 2 * len(count)] == ["Gather", "Reshape"] * len(count)
    return names[2 * len(count) :]


@pytest.mark.parametrize("volumes", ["n", 2])
def test_volumes_are_taken_one_after_the_other(volumes):
    text = network("%b = map(%a) { max($0, 0.0) } return %b", volumes, size="20, 16, 16")
    found = agrees(separate_volumes, text, tolerance=1e-4, n=2)
    assert ops(found) == ["Elements", "Elements", "Loop"]
    assert members(found) == ["Conv", "Map", "Reshape"]


def test_no_volumes_give_no_results():
    text = network("%b = map(%a) { max($0, 0.0) } return %b")
    agrees(separate_volumes, text, n=0, h=5)


@pytest.mark.parametrize(
    "node",
    [
        f"%b = conv(%a, %p) {POINT}",
        "%b = pool(%a) kind=max kernel=(2, 2, 2) strides=(2, 2, 2) pads=(0, 0, 0, 0, 0, 0) "
        "dilations=(1, 1, 1) sizes=(3, h // 2, 4) column_major=false",
        "%b = map(%a, %x) { add($0, mul($1, 2.0)) }",
        "%b = map(%a, %z) { add($0, $1) }",
        "%b = reduce(%a) kind=max axes=(2, 3) keepdims=true",
        "%b = concat(%a, %x) axis=1",
        "%b = pad(%a, %z) mode=constant before=(0, 0, 1, 0, 0) after=(0, 0, 0, 1, 2)",
        "%b = slice(%a) starts=(0, 1, 0, 2, 1) sizes=(n, 5, 3, 2, 3) steps=(1, 1, 2, 1, 1)",
        "%b = transpose(%a) perm=(0, 2, 3, 4, 1)",
        "%b = reshape(%a) shape=(n, 4, 4, 6, h, 8)",
        '%b = contract(%a, %f) lhs="nkdhw" rhs="km" out="nmdhw" accumulate=float32',
    ],
    ids=lambda text: text.split("(")[0][5:],
)
def test_what_treats_each_volume_alone_is_done_beside(node):
    found = agrees(separate_volumes, network(f"{node} return %b"), tolerance=1e-4, **SIZES)
    assert members(found) == ["Conv", ops_of(node), "Reshape"]


def ops_of(text):
    return text.split("= ")[1].split("(")[0].capitalize()


@pytest.mark.parametrize(
    "node",
    [
        "%b = reduce(%a) kind=max axes=(0, 2) keepdims=true",
        "%b = concat(%a, %x) axis=0",
        "%b = pad(%a, %z) mode=constant before=(1, 0, 0, 0, 0) after=(0, 0, 0, 0, 0)",
        "%b = slice(%a) starts=(1, 0, 0, 0, 0) sizes=(n - 1, 16, 6, h, 8) steps=(1, 1, 1, 1, 1)",
        "%b = slice(%a) starts=(n - 1, 0, 0, 0, 0) sizes=(n, 16, 6, h, 8) steps=(-1, 1, 1, 1, 1)",
        "%b = transpose(%a) perm=(1, 0, 2, 3, 4)",
        "%b = reshape(%a) shape=(16, n, 6, h, 8)",
        "%b = map(%a) { mul($0, cast(index(0), float32)) }",
        '%b = contract(%a, %a) lhs="nkdhw" rhs="mkdhw" out="nm" accumulate=float32',
    ],
    ids=lambda text: text.split(" ")[2],
)
def test_what_meets_other_volumes_is_done_of_all(node):
    found = agrees(separate_volumes, network(f"{node} return %b"), tolerance=1e-2, **SIZES)
    assert members(found) == ["Conv", "Reshape"] and len(ops(found)) == 4


def test_what_follows_such_a_node_is_done_of_all_too():
    rest = f"""%b = reduce(%a) kind=max axes=(0) keepdims=true
        %c = map(%a, %b) {{ sub($0, $1) }}
        %d = conv(%c, %p) {POINT}
        %e = map(%a) {{ max($0, 0.0) }}
        return %d, %e, %a"""
    found = agrees(separate_volumes, network(rest), tolerance=1e-4, **SIZES)
    assert members(found) == ["Conv", "Map", "Reshape", "Reshape"]
    assert ops(found)[3:] == ["Reduce", "Map", "Conv"]


def test_what_meets_other_volumes_before_is_done_of_all_before():
    text = f"""graph g(%x: float32[6, 16, 6, 8, 8]) {{
        %v = constant float32[16, 16, 3, 3, 3] splat 0.25
        %b = map(%x) {{ neg($0) }}
        %c = transpose(%b) perm=(2, 1, 0, 3, 4)
        %a = conv(%c, %v) {WINDOW}
        return %a
    }}"""
    found = agrees(separate_volumes, text, tolerance=1e-4)
    assert ops(found) == ["Map", "Transpose", "Elements", "Elements", "Loop"]
    assert members(found) == ["Conv", "Reshape"]


def test_what_is_behind_such_a_node_has_a_loop_of_its_own():
    rest = f"""%b = transpose(%a) perm=(2, 1, 0, 3, 4)
        %c = conv(%b, %v) {WINDOW}
        return %c"""
    found = agrees(separate_volumes, network(rest, volumes=5, size="6, 8, 8"), tolerance=1e-2)
    assert [name for name in ops(found) if name != "Elements"] == ["Loop", "Transpose", "Loop"]


def test_products_of_rows_are_done_of_all():
    rest = """%b = reduce(%a) kind=max axes=(2, 3, 4) keepdims=false
        %c = contract(%b, %f) lhs="nk" rhs="km" out="nm" accumulate=float32
        return %c"""
    found = agrees(separate_volumes, network(rest), tolerance=1e-4, **SIZES)
    assert members(found) == ["Conv", "Reduce", "Reshape"] and ops(found)[-1] == "Contract"


def test_of_what_sizes_follow_from_nothing_is_done_before():
    rest = """%i = map(%a) { cast(max($0, 0.0), int64) }
        %k = reduce(%i) kind=max axes=(0, 1, 2, 3, 4) keepdims=false
        bind(%k) symbols=(m)
        %c = map(%a) { max($0, 0.0) }
        return %c"""
    found = agrees(separate_volumes, network(rest), tolerance=1e-4, **SIZES)
    assert "Map" in ops(found)


@pytest.mark.parametrize(
    "text",
    [
        network("return %a", volumes=1),
        network("return %a", channels=12),
        network("return %a", volumes=64, size="2, 2, 2"),
        network("return %a", window="strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(2, 1, 1)"),
    ],
    ids=["a single volume", "channels that fill no block", "many small volumes", "planes apart"],
)
def test_what_gains_nothing_stays(text):
    stays(separate_volumes, text)
