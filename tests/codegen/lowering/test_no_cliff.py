"""No cliff: however a model stores its numbers, a fast kernel computes with them."""

from functools import lru_cache

import pytest
from support import storage_models as storage

from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.frontend.importer import import_model
from onnxc.ir.graph import walk
from onnxc.ir.ops import Attention, Contract, Conv, Fused, Map, Pool
from onnxc.ir.text_parser import parse
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

HEAVY = (Conv, Contract, Pool, Attention, Fused)
FORMS = [(operator, form) for operator in storage.HEAVY for form in storage.forms(operator)]
LIGHT_FORMS = [(operator, form) for operator in storage.LIGHT for form in storage.forms(operator)]


@lru_cache(maxsize=8)  # targets that multiply alike share what passes make of a model
def optimised(operator, form, symbolic, dots):
    graph = import_model(storage.model(operator, form, symbolic)).graph
    return optimise(graph, next(t for t in TARGETS.values() if t.dots == dots))


def selected(operator, form, symbolic, target):
    chosen = TARGETS[target]
    lowered = select_kernels(optimised(operator, form, symbolic, chosen.dots), chosen)
    return [node for node in walk(lowered) if node.choice is not None]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("operator", "form"), FORMS, ids=lambda word: word)
def test_every_common_operator_has_a_fast_kernel_in_every_form_of_storage(operator, form, symbolic):
    for target in TARGETS:
        heavy = [n for n in selected(operator, form, symbolic, target) if isinstance(n.op, HEAVY)]
        nests = ("global_pool", *(storage.RESIZES if symbolic else ()))  # a sum, and rows found by the run
        assert heavy or operator in nests, target
        assert "loop_nest" not in {node.choice.name for node in heavy}, target


OPEN = {  # image, weights, attributes
    "1x1": ("1, 64, 28, 28", "n, 64, 1, 1", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"),
    "3x3": ("b, c, h, w", "n, c, 3, 3", "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)"),
    "strided": ("1, c, 28, 28", "n, c, 3, 3", "strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1)"),
    "1d": ("1, 64, 100", "n, 64, 3", "strides=(1,) pads=(2, 2) dilations=(2,)"),
    "grouped": ("1, 64, 28, 28", "n, 16, 3, 3", "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups=4"),
    "transposed": (
        "1, 64, 9, 9",
        "64, n, 4, 4",
        "strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1) transposed=true",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", OPEN)
def test_convolutions_whose_channels_the_run_tells_are_products_of_matrices(kind, dtype):
    image, weights, attributes = OPEN[kind]
    accumulate = "float64" if dtype == "float64" else "float32"
    graph = parse(f"""graph g(%x: {dtype}[{image}], %w: {dtype}[{weights}]) {{
        %y = conv(%x, %w) {attributes} accumulate={accumulate}
        return %y
    }}""")
    for target in TARGETS.values():
        nodes = [n for n in walk(select_kernels(optimise(graph, target), target)) if n.choice is not None]
        assert not any(isinstance(node.op, Conv) for node in nodes)
        products = {node.choice.name for node in nodes if isinstance(node.op, Contract)}
        assert products, target
        assert "loop_nest" not in products, target


BESIDE = {  # image, weights, attributes, what meets image and result
    "3x3": (
        "n, 20, 8, 8",
        "20, 20, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)",
        "b, 20, 1, 1",
    ),
    "1x1": (
        "n, 20, 8, 8",
        "20, 20, 1, 1",
        "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)",
        "b, 20, 1, 1",
    ),
    "1d": ("n, 100, l", "100, 100, 3", "strides=(1,) pads=(1, 1) dilations=(1,)", "b, 100, k"),
    "grouped": (
        "n, 20, h, w",
        "20, 5, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups=4",
        "b, 20, p, q",
    ),
    "depthwise": (
        "n, 20, h, w",
        "20, 1, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups=20",
        "b, 20, p, q",
    ),
    "transposed": (
        "n, 20, 9, 9",
        "20, 20, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) transposed=true",
        "b, 20, 1, 1",
    ),
    "channels": (
        "n, 20, h, w",
        "20, 20, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)",
        "c, p, q",
    ),
    "by_channel": (
        "n, 100, h, w",
        "100, 100, 3, 3",
        "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)",
        "100, 1, 1",
    ),
    "volumes": (
        "n, 32, 8, 8, 8",
        "32, 1, 3, 3, 3",
        "strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1) groups=32",
        "b, 32, 8, 1, 1",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", BESIDE)
def test_convolutions_stay_fast_beside_what_may_repeat(kind, dtype):
    image, weights, attributes, beside = BESIDE[kind]
    accumulate = "float64" if dtype == "float64" else "float32"
    graph = parse(f"""graph g(%x: {dtype}[{image}], %y: {dtype}[{beside}]) {{
        %w = constant {dtype}[{weights}] splat 0.5
        %0 = map(%x, %y) {{ add($0, $1) }}
        %1 = conv(%0, %w) {attributes} accumulate={accumulate} epilogue={{ cast($0, {dtype}) }}
        %2 = map(%1, %y) {{ mul($0, $1) }}
        return %2
    }}""")
    for target in TARGETS.values():
        nodes = [n for n in walk(select_kernels(optimise(graph, target), target)) if n.choice is not None]
        heavy = [node.choice.name for node in nodes if isinstance(node.op, HEAVY)]
        assert heavy, target
        assert "loop_nest" not in heavy, target


@pytest.mark.parametrize(("operator", "form"), LIGHT_FORMS, ids=lambda word: word)
def test_other_operators_convert_in_the_nests_that_read_and_write(operator, form):
    """A step, and one for the few numbers of a reduction; of quantised numbers one before and behind."""
    assert len(selected(operator, form, False, "x86-64-v4")) <= (3 if form == "qdq" else 2)


@pytest.mark.parametrize("operator", ["conv", "conv_depthwise", "matmul"])
@pytest.mark.parametrize("form", ["cast", "dequantized", "per_channel", "blocked"])
def test_weights_that_are_stored_narrow_cost_the_run_nothing(operator, form):
    if form in storage.forms(operator):
        wide = selected(operator, "float32", False, "x86-64-v3")
        narrow = selected(operator, form, False, "x86-64-v3")
        kernels = [n.choice.name.removesuffix("_stored") for n in narrow]
        assert kernels == [n.choice.name for n in wide]
        assert not any(isinstance(n.op, Map) for n in narrow)
