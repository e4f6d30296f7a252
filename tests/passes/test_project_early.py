"""project_early: a 1x1 convolution moves before what makes its image larger; all else stays."""

import numpy as np
from support.pass_text import agrees, clean, ops, stays

from onnxc.passes.project_early import project_early

POINT = "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"
HEAD = "graph g(%x: float32[n, 8, 4, 6], %y: float32[n, 128, 2, 3]) {"
RESIZED = """%i = constant int64[6] (0, 0, 0, 1, 1, 2)
    %j = constant int64[6] (0, 1, 1, 2, 2, 2)
    %u = constant float32[6] (1.0, 0.75, 0.25, 0.75, 0.25, 1.0)
    %v = constant float32[6] (0.0, 0.25, 0.75, 0.25, 0.75, 0.0)
    %r = constant int64[4] (0, 0, 1, 1)
    %0 = gather(%y, %i) form=axis axis=3
    %1 = gather(%y, %j) form=axis axis=3
    %2 = map(%0, %u, %1, %v) { add(mul($0, $1), mul($2, $3)) }
    %3 = gather(%2, %r) form=axis axis=2"""


def network(join="%4 = concat(%x, %3, %x) axis=1", channels=144, outputs=4, after="", returned="%5"):
    return f"""{HEAD}
    {RESIZED}
    %w = constant float32[{outputs}, {channels}, 1, 1] #w
    {join}
    %5 = conv(%4, %w) {POINT}
    {after}
    return {returned}
}}"""


def weights(outputs, channels):
    array = np.random.default_rng(3).standard_normal((outputs, channels, 1, 1)).astype(np.float32)
    return {"w": array}


def images_convolved(graph):
    return [str(node.inputs[0].shape[1:]) for node in graph.nodes if type(node.op).__name__ == "Conv"]


def test_what_was_enlarged_is_convolved_before():
    found = agrees(clean(project_early), network(), weights(4, 144), tolerance=1e-4, n=2)
    assert images_convolved(found) == ["(16, 4, 6)", "(128, 2, 3)"]
    assert ops(found) == ["Concat", "Conv", "Conv", "Gather", "Gather", "Map", "Gather", "Map"]


def test_a_single_image_needs_no_sum():
    text = network("", 128).replace("conv(%4", "conv(%3")
    found = agrees(clean(project_early), text, weights(4, 128), tolerance=1e-4, n=1)
    assert ops(found) == ["Conv", "Gather", "Gather", "Map", "Gather"]


def test_what_others_read_too_stays():
    stays(clean(project_early), network(returned="%5, %3"), weights(4, 144))


def test_many_more_results_than_channels_stay():
    stays(clean(project_early), network(outputs=300), weights(300, 144))


def test_bodies_that_are_no_weighted_sums_stay():
    for body in ("add(mul($0, $1), max($2, $3))", "add(add($0, $1), mul($2, $3))", "mul($0, mul($2, $3))"):
        text = network().replace("add(mul($0, $1), mul($2, $3))", body)
        found = agrees(clean(project_early), text, weights(4, 144), tolerance=1e-4, n=1)
        assert "(128, 2, 3)" not in images_convolved(found)


def test_channels_that_are_weighed_differently_stay():
    text = network().replace("%u = constant float32[6] (1.0, 0.75, 0.25, 0.75, 0.25, 1.0)", "")
    text = text.replace("%i =", "%u = constant float32[128, 1, 6] #u\n    %i =", 1)
    array = np.random.default_rng(4).standard_normal((128, 1, 6)).astype(np.float32)
    found = agrees(clean(project_early), text, {**weights(4, 144), "u": array}, tolerance=1e-4, n=1)
    assert "(128, 2, 3)" not in images_convolved(found)


def test_images_that_become_smaller_stay():
    text = network().replace("%y: float32[n, 128, 2, 3]", "%y: float32[n, 128, 20, 30]")
    stays(clean(project_early), text, weights(4, 144))


def test_sizes_that_the_run_tells():
    text = f"""graph g(%x: float32[n, 8, 2*h, 6], %y: float32[n, 128, h, 6], %r: int64[2*h]) {{
    %w = constant float32[4, 136, 1, 1] #w
    %0 = gather(%y, %r) form=axis axis=2
    %1 = concat(%x, %0) axis=1
    %2 = conv(%1, %w) {POINT}
    return %2
}}"""
    found = agrees(clean(project_early), text, weights(4, 136), tolerance=1e-4, n=1, h=3)
    assert images_convolved(found) == ["(8, 2*h, 6)", "(128, h, 6)"]
