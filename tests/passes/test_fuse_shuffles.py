"""fuse_shuffles: a shuffle of channels becomes part of the convolution that reads them."""

import pytest
from support.pass_text import agrees, ops, stays

from onnxc.passes.fuse_shuffles import fuse_shuffles

POINT, WINDOW = (f"strides=(1, 1) pads={p} dilations=(1, 1)" for p in ((0, 0, 0, 0), (1, 1, 1, 1)))
STRIDED = "strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1)"


def graph(body, groups=2, perm="(0, 2, 1, 3, 4)"):
    """Six channels of a symbolic image, shuffled, and what follows from %s to %y."""
    return f"""graph g(%x: float32[n, 6, 8, 10], %r: float32[6, 1, 1]) {{
        %a = reshape(%x) shape=(n, {groups}, {6 // groups}, 8, 10)
        %b = transpose(%a) perm={perm}
        %s = reshape(%b) shape=(n, 6, 8, 10)
        %v = constant float32[6, 1, 3, 3] ({", ".join(str(0.25 * (k % 11) - 1) for k in range(54))})
        %c = constant float32[6, 1, 1] (0.5, -1.0, 2.0, 0.25, 3.0, -0.75)
        %w = constant float32[4, 3, 1, 1] ({", ".join(str(0.5 * (k % 7) - 1) for k in range(12))})
        %u = constant float32[4, 6, 1, 1] ({", ".join(str(0.5 * (k % 5) - 1) for k in range(24))})
        {body}
        return %y
    }}"""


SLID = f"%d = conv(%s, %v, %c) {STRIDED} groups=6 epilogue={{ max(add($0, $1), 0.0) }}\n"
GROUPED = f"%y = conv(%d, %w) {POINT} groups=2"


@pytest.mark.parametrize("groups", [2, 3])
def test_depthwise_channels_change_places_and_groups_read_them_shuffled(groups):
    found = agrees(fuse_shuffles, graph(SLID + GROUPED, groups), n=2, tolerance=1e-6)
    assert ops(found) == ["Conv", "Fused"]
    assert [type(n.op).__name__ for n in found.nodes[1].op.region.nodes][-1] == "Conv"


def test_a_convolution_of_all_channels_takes_the_order_into_its_weights():
    text = graph(SLID + f"%y = conv(%d, %u) {POINT}", 3)
    assert ops(agrees(fuse_shuffles, text, n=1, tolerance=1e-6)) == ["Conv", "Conv"]
    text = graph(f"%y = conv(%s, %u) {POINT}", 2)
    assert ops(agrees(fuse_shuffles, text, n=1, tolerance=1e-6)) == ["Conv"]


@pytest.mark.parametrize(
    "body",
    [
        SLID + "%y = map(%d) { neg($0) }",  # nothing that could read them in that order
        SLID + GROUPED + "\n%z = map(%s) { neg($0) }\n%y2 = map(%d) { neg($0) }",
        f"%d = conv(%s, %v, %r) {WINDOW} groups=6 epilogue={{ add($0, $1) }}\n{GROUPED}",  # not constant
    ],
)
def test_other_shuffles_stay(body):
    text = graph(body)
    stays(fuse_shuffles, text.replace("return %y", "return %y, %z, %y2") if "%y2" in body else text)


def test_other_transposes_stay():
    stays(
        fuse_shuffles,
        graph(SLID + GROUPED, perm="(0, 2, 1, 4, 3)").replace("shape=(n, 6, 8, 10)", "shape=(n, 6, 10, 8)"),
    )
