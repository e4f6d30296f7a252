"""Operators on signals, in the forms that exporters write beside those of the specification."""

import numpy as np
import pytest
from support.interpreting import close, normal, runtime
from support.one_node import evaluate, model


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_real_signal_needs_no_axis_for_its_parts(symbolic):
    inputs = [normal(2, 40), np.array(7), np.hanning(16).astype(np.float32)]
    (expected,) = runtime("STFT", inputs, opset=17)
    (found,) = evaluate(model("STFT", 17, inputs, {}, symbolic=symbolic), inputs)
    close(found, expected)
