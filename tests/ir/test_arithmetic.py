"""How much a graph computes, as a formula over its sizes."""

import pytest

from onnxc.ir import dims
from onnxc.ir.arithmetic import multiply_adds
from onnxc.ir.text_parser import parse

LOOP = """graph g(%c: bool[], %x: float32[n, 4], %w: float32[4, 4]) {
    %trips = constant int64[] (TRIPS)
    %0 = loop(%trips, %c, %x, %w) carried=1
        body=(%i: int64[], %d: bool[], %a: float32[n, 4], %b: float32[4, 4]) {
        %1 = contract(%a, %b) lhs=nk rhs=km out=nm accumulate=float32
        return %d, %1
    } : float32[n, 4]
    return %0
}"""


@pytest.mark.parametrize("trips, rounds", [(3, 3), (0, 0), ((1 << 63) - 1, 1)])
def test_a_loop_counts_as_often_as_it_is_known_to_run(trips, rounds):
    graph = parse(LOOP.replace("TRIPS", str(trips)))
    assert str(multiply_adds(graph)) == (f"{16 * rounds}*n" if rounds else "0")


def test_a_loop_over_a_size_counts_as_often_as_that_is():
    graph = parse(LOOP.replace("constant int64[] (TRIPS)", "elements() dims=(n) shape=() dtype=int64"))
    assert str(multiply_adds(graph)) == "16*n*n"


def test_the_larger_of_two_large_formulas_is_their_number_at_typical_sizes():
    """Formulas of cases within cases would grow with every one."""
    product = "contract(%x, %x) lhs=nk rhs=mk out=nm accumulate=float32"
    text = f"%0 = {product} return %0"
    for k in range(20):
        shape = f"float32[n_{k}, 4]"
        text = f"""%0 = if(%c, %c, %x) then=(%c: bool[], %x: {shape}) {{ {text} }}
            otherwise=(%c: bool[], %x: {shape}) {{ %0 = {product} return %0 }} : float32[m, m]
            return %0"""
    count = multiply_adds(parse(f"graph g(%c: bool[], %x: float32[n, 4]) {{ {text} }}"))
    assert not dims.is_large(count)
