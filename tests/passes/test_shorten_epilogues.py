"""shorten_epilogues: what becomes of sums of floats takes as few instructions as it can."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, stays

from onnxc.ir import expr
from onnxc.ir.expr import erf, evaluate, input_, sigmoid
from onnxc.passes.shorten_epilogues import shorten_epilogues, shortened

X, B = input_(0, "float32"), input_(1, "float32")
T = X + B
PRODUCT = """graph g(%x: float32[m, k], %y: float32[k, n], %b: float32[n]) {{
    %0 = contract(%x, %y, %b) lhs=mk rhs=kn out=mn accumulate=float32{} epilogue={{ {} }}
    return %0
}}"""


@pytest.mark.parametrize(
    ("body", "shorter"),
    [
        pytest.param("add(mul($0, $1), $1)", "fma($0, $1, $1)", id="sum-of-product"),
        pytest.param("add($1, mul($0, $1))", "fma($0, $1, $1)", id="product-second"),
        pytest.param("sub(mul($0, $1), 3.0)", "fma($0, $1, -3.0)", id="difference"),
        pytest.param("mul($1, add(mul($0, 2.0), 3.0))", "mul($1, fma($0, 2.0, 3.0))", id="affine"),
        pytest.param("mul(mul($0, 2.0), mul($1, 3.0))", "mul(mul($0, 2.0), mul($1, 3.0))", id="no-number"),
        pytest.param("mul(mul(mul($0, 2.0), $1), 3.0)", "mul(mul($0, 6.0), $1)", id="two-factors"),
        pytest.param("mul(3.0, add(0.5, add($0, $1)))", "fma(add($0, $1), 3.0, 1.5)", id="sum-and-factor"),
        pytest.param("mul(sub(add($0, $1), 0.5), 3.0)", "fma(add($0, $1), 3.0, -1.5)", id="less-and-factor"),
        pytest.param("div(add($0, $1), 4.0)", "mul(add($0, $1), 0.25)", id="quotient"),
        pytest.param(
            "mul(max(sub(add($0, $1), 1.0), 2.0), 4.0)", "max(fma(add($0, $1), 4.0, -4.0), 8.0)", id="bound"
        ),
        pytest.param(
            "mul(min(mul(add($0, $1), 0.5), 2.0), -4.0)",
            "max(mul(add($0, $1), -2.0), -8.0)",
            id="bound-turned-around",
        ),
    ],
)
def test_numbers_and_products_become_fewer_instructions(body, shorter):
    becomes(shorten_epilogues, PRODUCT.format("", body), PRODUCT.format("", shorter))
    agrees(shorten_epilogues, PRODUCT.format("", body), tolerance=1e-5, m=3, k=4, n=5)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(T * (T / 6 + 0.5).clip(0, 1), 4, id="hard-swish"),
        pytest.param(T * (T + 3).clip(0, 6) / 6, 4, id="hard-swish-of-relu6"),
        pytest.param(0.7 * (T * (T + 3).clip(0, 6) / 6) + 0.1, 4, id="scaled-and-shifted"),
        pytest.param(-0.7 * (T * (T + 3).clip(0, 6) / 6) + 0.1, 4, id="turned-around"),
        pytest.param(T * 0.5 * (erf(T / 2**0.5) + 1), 5, id="gelu"),
        pytest.param(T * sigmoid(T), expr.instructions(T * sigmoid(T)) - 1, id="silu"),
    ],
)
def test_activations_take_the_instructions_that_they_need(body, count):
    found = shortened(body)
    assert expr.instructions(found) == expr.instructions(T) + count
    assert shortened(found) is found
    values = [np.linspace(-9, 9, 99, dtype=np.float32), np.full(99, 0.25, np.float32)]
    before, after = (evaluate(e, values, (99,), int, lambda code: None) for e in (body, found))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(expr.apply("round", T * 2.0 + 1.0), id="rounded"),
        pytest.param(expr.where(T * 2.0 + 1.0 < 3.0, T, B), id="compared"),
        pytest.param((T * 2.0 + 1.0).cast("int32"), id="integer"),
        pytest.param(T * 1e-20 * 1e-20, id="vanishing"),
        pytest.param(T / 0.0, id="infinite"),
    ],
)
def test_bodies_whose_results_might_differ_in_more_stay(body):
    assert shortened(body) is body


def test_what_others_read_is_made_once():
    product = T * B
    assert shortened((product + 1) * product) is (product + 1) * product
    assert (
        shortened((product * 2 + product) * 3)
        is expr.apply("fma", product, expr.const(2, "float32"), product) * 3
    )


def test_sums_that_are_exact_stay_so():
    stays(shorten_epilogues, PRODUCT.format(" exact=true", "add(mul($0, 0.5), $1)"))
