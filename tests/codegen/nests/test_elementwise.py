"""One element at a time: bodies of every length, of which vectors are computed together."""

import numpy as np
import pytest
from support.harness import TARGETS
from support.nests import check

from onnxc.ir import expr
from onnxc.ir.ops import Map


def body(name, dtype):
    x = expr.input_(0, dtype)
    return {"short": lambda: x * 3 + 1, "long": lambda: expr.apply("tanh", expr.apply("erf", x))}[name]()


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", ["short", "long"])
def test_rows_of_any_number_of_vectors(target, dtype, length):
    for count in (1, 7, 31, 32, 33, 48, 63, 64, 65, 100):
        x = np.linspace(-5, 5, count, dtype=dtype)
        check(target, Map(body(length, dtype)), x)
