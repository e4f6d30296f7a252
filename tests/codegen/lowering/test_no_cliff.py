"""No cliff: however a model stores its numbers, a fast kernel computes with them."""

from functools import lru_cache

import pytest
from support import storage_models as storage

from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.driver import optimise
from onnxc.frontend.importer import import_model
from onnxc.ir.graph import walk
from onnxc.ir.ops import Attention, Contract, Conv, Fused, Map, Pool
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
