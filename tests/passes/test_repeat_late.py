"""repeat_late: products and reductions of what is repeated are computed once."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.repeat_late import repeat_late

WEIGHTS = {"w": np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)}
PRODUCT = "contract(%p, %w) lhs=nbk rhs=km out=nbm accumulate=float32"


def network(*steps, returned="%y", inputs="%x: float32[n, 1, 6], %d: float32[n, b, 8]"):
    lines = "\n    ".join(["%w = constant float32[6, 8] #w", *steps])
    return f"graph g({inputs}) {{\n    {lines}\n    return {returned}\n}}"


REPEATED = "%p = broadcast(%x) shape=(n, b, 6)"


def test_a_product_of_what_is_repeated_is_computed_once():
    becomes(
        clean(repeat_late),
        network(REPEATED, f"%y = {PRODUCT}"),
        network(
            "%0 = reshape(%x) shape=(n, 6)",
            "%1 = contract(%0, %w) lhs=nk rhs=km out=nm accumulate=float32",
            "%2 = reshape(%1) shape=(n, 1, 8)",
            "%3 = broadcast(%2) shape=(n, b, 8)",
            returned="%3",
        ),
        WEIGHTS,
    )


def shapes(text, kind="Contract", tolerance=1e-6, **sizes):
    """The shapes of what the nodes of a kind give, where all results are what they were."""
    found = agrees(clean(repeat_late), text, WEIGHTS, tolerance=tolerance, **{"n": 3, "b": 2, **sizes})
    return [n.outputs[0].shape for n in found.nodes if type(n.op).__name__ == kind]


@pytest.mark.parametrize(
    "steps",
    [
        ["%q = map(%p) { exp($0) }"],
        ["%s = reduce(%p) kind=max axes=(2) keepdims=true", "%q = map(%p, %s) { sub($0, $1) }"],
        ["%t = transpose(%p) perm=(1, 0, 2)", "%q = transpose(%t) perm=(1, 0, 2)"],
        ["%t = reshape(%p) shape=(n, b, 2, 3)", "%q = reshape(%t) shape=(n, b, 6)"],
        ["%t = slice(%p) starts=(0, 0, 3) sizes=(n, b, 3) steps=(1, 1, 1)", "%q = concat(%t, %t) axis=2"],
        [
            "%t = reshape(%p) shape=(1, n, b, 6)",
            "%u = broadcast(%t) shape=(1, n, b, 6)",
            "%q = reshape(%u) shape=(n, b, 6)",
        ],
    ],
)
@pytest.mark.parametrize("sizes", [{}, {"b": 1}, {"b": 0}])
def test_what_treats_entries_alike_comes_before_they_are_repeated(steps, sizes):
    text = network(REPEATED, *steps, f"%y = {PRODUCT.replace('%p', '%q')}")
    assert [len(shape) for shape in shapes(text, **sizes)] == [2]


def test_a_reduction_of_what_is_repeated_is_computed_once():
    text = network(REPEATED, "%y = reduce(%p) kind=sum axes=(2)")
    assert [str(d) for shape in shapes(text, "Reduce") for d in shape] == ["n", "1"]


def test_axes_that_are_missing_are_repeated():
    inputs = "%x: float32[6], %d: float32[n, b, 8]"
    assert [len(shape) for shape in shapes(network(REPEATED, f"%y = {PRODUCT}", inputs=inputs))] == [1]


def test_what_is_summed_over_is_repeated_before():
    text = network(
        "%x = reshape(%e) shape=(1, 1, 6)",
        "%p = broadcast(%x) shape=(n, b, 6)",
        "%y = contract(%p, %d) lhs=nbk rhs=nbm out=bkm accumulate=float32",
        inputs="%e: float32[6], %d: float32[n, b, 8]",
    )
    stays(repeat_late, text, WEIGHTS)


def test_both_factors_may_be_repeated():
    text = network(
        REPEATED,
        "%q = map(%p) { exp($0) }",
        "%y = contract(%p, %q) lhs=nbk rhs=mbk out=bnm accumulate=float32",
    )
    assert [[str(d) for d in shape] for shape in shapes(text)] == [["n", "n"]]


def test_what_is_also_read_whole_is_repeated_for_that():
    text = network(REPEATED, f"%y = {PRODUCT}", "%z = map(%y, %d) { add($0, $1) }", returned="%z, %p, %y")
    assert [len(shape) for shape in shapes(text)] == [2]


@pytest.mark.parametrize(
    "steps",
    [
        [REPEATED, "%y = map(%p) { exp($0) }"],
        [
            REPEATED,
            "%q = map(%p) { add($0, cast(index(1), float32)) }",
            f"%y = {PRODUCT.replace('%p', '%q')}",
        ],
        [REPEATED, "%y = contract(%p, %d) lhs=nbk rhs=nbm out=nbkm accumulate=float32"],
        [
            REPEATED,
            "%t = reshape(%p) shape=(n*b, 6)",
            "%y = contract(%t, %w) lhs=nk rhs=km out=nm accumulate=float32",
        ],
        ["%p = map(%d) { exp($0) }", "%y = reduce(%p) kind=sum axes=(2)"],
    ],
    ids=["map", "index", "no sum", "joined", "not repeated"],
)
def test_other_values_stay(steps):
    stays(repeat_late, network(*steps), WEIGHTS)


def test_learned_queries_become_constants_up_to_what_meets_the_batch():
    from onnxc.passes.fold_constants import fold_constants

    steps = ["%x = constant float32[3, 1, 6] #x", "%p = broadcast(%x) shape=(3, b, 6)", f"%q = {PRODUCT}"]
    text = network(*steps, "%y = map(%q, %d) { add($0, $1) }", inputs="%d: float32[3, b, 8]")
    constants = {**WEIGHTS, "x": np.ones((3, 1, 6), np.float32)}
    found = agrees(
        lambda g: clean(fold_constants)(clean(repeat_late)(g)), text, constants, tolerance=1e-6, b=2
    )
    assert "Contract" not in ops(found)


def test_what_is_empty_stays_under_shapes_of_other_sizes():
    stays(
        repeat_late,
        """graph g(%x: float32[5, 1, 4], %w: float32[7, 6]) {
        %0 = broadcast(%x) shape=(5, 0, 4)
        %1 = reshape(%0) shape=(5, 0, 7)
        %2 = contract(%1, %w) lhs=abk rhs=kn out=abn accumulate=float32
        return %2
    }""",
    )
