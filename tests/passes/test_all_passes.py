"""What holds for every pass: it changes no result, leaves a valid graph, and finds nothing more to do in what
it left."""

from dataclasses import fields, replace

import numpy as np
import pytest
from support.pass_text import agrees, among_containers, clean, operands
from support.storage_models import HEAVY, model

from onnxc.facts import Facts
from onnxc.frontend.importer import import_model
from onnxc.ir import interpret
from onnxc.ir.text_parser import parse
from onnxc.ir.verify import verify
from onnxc.passes.pipeline import optimise, passes
from onnxc.target import TARGETS

TARGET = TARGETS["sapphirerapids"]
PASSES = passes(TARGET)

GRAPHS = {
    "elementwise": """graph g(%x: float32[m, 1], %y: float16[1, n], %i: int32[n]) {
        %half = constant float32[] (0.5)
        %zero = constant float32[1, 1] splat -0.0
        %0 = map(%x, %half) { mul($0, $1) }
        %1 = map(%y) { cast($0, float32) }
        %2 = broadcast(%1) shape=(m, n)
        %3 = map(%0, %2) { add(exp($0), $1) }
        %4 = map(%3, %zero) { add($0, $1) }
        %5 = map(%0) { neg($0) }
        %6 = map(%i) { cast(check(lt($0, 5), $0, invalid_value), float32) }
        %7 = map(%4, %5, %6) { div($0, add(mul($1, $1), add($2, 1.0))) }
        %8 = map(%0, %5) { max($0, $1) }
        return %7, %8
    }""",
    "movement": """graph g(%x: float32[m, 2, 3], %s: float32[m, 3]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = transpose(%0) perm=(1, 0, 2)
        %2 = reshape(%1) shape=(3, 2*m)
        %3 = reshape(%2) shape=(6*m)
        %4 = slice(%3) starts=(0) sizes=(3*m) steps=(2)
        %5 = reshape(%4) shape=(m, 3)
        %6 = map(%5) { $0 }
        %7 = concat(%6, %s) axis=0
        %8 = concat(%7, %s, %5) axis=0
        %9 = concat(%8) axis=1
        %10 = reduce(%9) kind=max axes=(1)
        %11 = reshape(%10) shape=(4*m, 1)
        %12 = map(%9, %11) { sub($0, $1) }
        return %12, %4
    }""",
    "convolution": """graph g(%x: float32[m, 2, n + 3, 4]) {
        %k = constant float32[2, 2, 2, 2] (1.0, 0.5, -1.0, 0.0, 2.0, 1.5, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7,
            0.8, 0.9, 1.0)
        %d = constant float32[2, 1, 1, 1] (3.0, -2.0)
        %s = constant float32[2, 1, 1] (0.5, 2.0)
        %t = constant float32[2, 1, 1] (-0.5, 1.0)
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 1, 1) after=(0, 0, 0, 0)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = map(%1, %s, %t) { max(add(mul($0, $1), $2), 0.0) }
        %3 = conv(%2, %d) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) groups=2
        %4 = map(%3, %s) { mul($0, $1) }
        %5 = map(%4, %x) { add($0, $1) }
        return %5
    }""",
    "products": """graph g(%x: float32[m, n, 4], %r: float32[m, n, 6]) {
        %w = constant float32[4, 6] (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4,
            1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3, 2.4)
        %b = constant float32[6] (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
        %0 = reshape(%x) shape=(m*n, 4)
        %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %2 = map(%1, %b) { add(mul($0, 2.0), $1) }
        %3 = reshape(%2) shape=(m, n, 6)
        %4 = map(%3) { tanh($0) }
        %5 = map(%4, %r) { add($0, $1) }
        return %5
    }""",
    "attention": """graph g(%x: float32[m, n, 2, 4], %y: float32[m, 3, 2, 4], %mask: bool[m, 1, 1, 3]) {
        %0 = transpose(%x) perm=(0, 2, 1, 3)
        %1 = map(%0) { mul($0, 0.5) }
        %2 = transpose(%y) perm=(0, 2, 3, 1)
        %3 = contract(%1, %2) lhs=bhqd rhs=bhdk out=bhqk accumulate=float32
        %4 = map(%3, %mask) { select($1, $0, -3.4028235e+38:float32) }
        %5 = reduce(%4) kind=max axes=(3) keepdims=true
        %6 = map(%4, %5) { exp(sub($0, $1)) }
        %7 = reduce(%6) kind=sum axes=(3) keepdims=true
        %8 = map(%6, %7) { div($0, $1) }
        %9 = transpose(%y) perm=(0, 2, 1, 3)
        %10 = contract(%8, %9) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %11 = transpose(%10) perm=(0, 2, 1, 3)
        %12 = reshape(%11) shape=(m, n, 8)
        return %12
    }""",
    "rows": """graph g(%x: float32[m, n, 4], %w: float32[4]) {
        %0 = map(%x) { $0 }
        %1 = reduce(%0) kind=sum axes=(2) keepdims=true
        %2 = map(%1) { div($0, 4.0) }
        %3 = map(%x, %2) { sub($0, $1) }
        %4 = map(%3) { mul($0, $0) }
        %5 = reduce(%4) kind=sum axes=(2) keepdims=true
        %6 = map(%3, %5, %w) { mul(div($0, sqrt(add($1, 1e-05))), $2) }
        return %6, %3
    }""",
    "recurrence": """graph g(%x: float32[m, n, 1, 8], %r: float32[1, 8, 2]) {
        %0, %1, %2 = recurrent(%x, %r) kind=lstm hidden=2 directions=(reverse)
            activations=((sigmoid, 0.0, 0.0), (tanh, 0.0, 0.0), (tanh, 0.0, 0.0))
        %3 = map(%1) { neg($0) }
        return %0, %3
    }""",
    "branches": """graph g(%c: bool[], %x: float32[m], %y: float32[m], %unread: float32[n]) {
        %two = constant float32[] (2.0)
        %0 = map(%x, %two) { mul($0, $1) }
        %1, %2 = if(%c, %0, %y, %unread) then=(%a: float32[m], %b: float32[m], %u: float32[n]) {
            %3 = map(%a) { exp($0) }
            %4 = map(%a) { exp($0) }
            %5 = map(%3, %4) { add($0, $1) }
            %6 = map(%u) { neg($0) }
            return %5, %5
        } otherwise=(%a: float32[m], %b: float32[m], %u: float32[n]) {
            %7 = concat(%b, %b) axis=0
            %8 = map(%7, %two) { div($0, $1) }
            return %8, %a
        } : float32[k], float32[m]
        return %1
    }""",
    "loops": """graph g(%x: float32[m], %s: int64[1]) where l any {
        bind(%s) symbols=(l)
        %trips = constant int64[] (3)
        %true = constant bool[] (true)
        %0 = map(%x) { exp($0) }
        %1, %2, %3 = loop(%trips, %true, %x, %0, %x) carried=1
            body=(%i: int64[], %d: bool[], %a: float32[k], %b: float32[m], %u: float32[m]) {
            %4 = map(%b, %i) { mul($0, cast($1, float32)) }
            %5 = map(%4) { add($0, 1.0) }
            %6 = concat(%a, %5) axis=0
            %7 = reduce(%6) kind=sum axes=(0)
            return %d, %6, %7, %5
        } : float32[t], float32[3], float32[3, m]
        %8 = elements() dims=(l) shape=(1)
        return %1, %2, %8
    }""",
    "data": """graph g(%x: float32[m], %i: int64[n]) {
        %table = constant int64[4] (0, 1, 1, 0)
        %0 = gather(%table, %i) form=axis
        %1 = runtime_call(%x) symbol=nonzero : int64[1, k]
        %2 = reshape(%1) shape=(k)
        %3 = gather(%x, %2) form=axis
        %4 = runtime_call(%x) symbol=nonzero : int64[1, l]
        %5 = elements() dims=(l) shape=(1)
        return %0, %3, %5
    }""",
    "scatter": """graph g(%x: float32[4, n], %i: int64[2, 1], %u: float32[2, n]) {
        %0 = scatter(%x, %i, %u) form=nd
        %1 = map(%0) { mul($0, 2.0) }
        return %1
    }""",
}


@pytest.mark.parametrize("step", dict.fromkeys(PASSES), ids=lambda step: step.__name__)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_pass_changes_no_result_and_finds_nothing_more_to_do(name, step):
    found = clean(step)(parse(GRAPHS[name]))
    text = str(found)
    assert str(clean(step)(found)) == text
    for m, n in ((2, 3), (1, 1), (0, 2), (3, 0)):
        agrees(step, GRAPHS[name], tolerance=1e-5, m=m, n=n)


@pytest.mark.parametrize("name", GRAPHS)
def test_all_passes_together_change_no_result(name):
    graph = parse(GRAPHS[name])
    sizes = {"m": 2, "n": 3}
    inputs = operands(graph, **sizes)
    expected = interpret.run_graph(graph, inputs, sizes)
    for step in PASSES:
        graph = step(graph)
        verify(graph)
    for actual, wanted in zip(interpret.run_graph(graph, inputs, sizes), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_targets_of_which_passes_see_the_same_have_one_optimised_graph(name):
    seen = ("bf16_dots", "level2_bytes")
    rates = {f.name: 3 * getattr(TARGET.facts, f.name) for f in fields(Facts) if f.name not in seen}
    other = replace(TARGET, facts=replace(TARGET.facts, **rates), masked=False, vector_registers=16)
    assert other.seen_by_passes == TARGET.seen_by_passes
    assert str(optimise(parse(GRAPHS[name]), other)) == str(optimise(parse(GRAPHS[name]), TARGET))


def test_passes_see_the_cache_that_bands_are_for():
    smaller = replace(TARGET, facts=replace(TARGET.facts, level2_bytes=512))
    assert smaller.seen_by_passes != TARGET.seen_by_passes


@pytest.mark.parametrize("form", ["float32", "float16", "qdq"])
@pytest.mark.parametrize("operator", HEAVY)
def test_containers_of_values_stand_beside_every_operator(operator, form):
    tolerance = {"float32": 1e-4, "float16": 1e-2, "qdq": 1}[form]
    graph = import_model(model(operator, form, symbolic=True, side=4)).graph
    are_kept_among_containers(graph, tolerance, n0=2, n2=4, n3=3)


@pytest.mark.parametrize("name", GRAPHS)
def test_containers_of_values_stand_beside_all_that_passes_change(name):
    are_kept_among_containers(parse(GRAPHS[name]), 1e-5, m=2, n=3)


def are_kept_among_containers(graph, tolerance, **sizes):
    graph = among_containers(graph)
    inputs = operands(graph, **sizes)
    expected = interpret.run_graph(graph, inputs, sizes)
    found = interpret.run_graph(optimise(graph, TARGET), inputs, sizes)
    for actual, wanted in zip(found, expected, strict=True):
        assert type(actual) is type(wanted)
        if not isinstance(actual, dict | None):
            np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)
