"""Common operators in every form in which models store numbers: the compiled library against the interpreter
of what was imported."""

import numpy as np
import pytest
from support import storage_models as storage

import onnxc
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph

OPERATORS = (*storage.CONVOLUTIONS, *storage.PRODUCTS, *storage.POOLS, *storage.ROWS, "attention")
FORMS = [(o, f) for o in OPERATORS for f in storage.forms(o)]
#: Of the greatest result: what sums in another order, and Winograd, may change, and roundings to the type.
TOLERANCE = {"float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}
#: Integers are exact; a number between two quantised ones may be rounded to either.
STEPS = {"qlinear": 0, "integer": 0, "qdq": 1}


@pytest.mark.parametrize(("operator", "form"), FORMS, ids=lambda word: word)
def test_the_library_gives_what_the_model_means(tmp_path, operator, form):
    proto = storage.model(operator, form, side=7)
    feeds = storage.feeds(proto)
    (expected,) = run_graph(import_model(proto).graph, [feeds[v.name] for v in proto.graph.input])
    (got,) = onnxc.load(onnxc.compile(proto, tmp_path / "model.so", threads=1)).run(None, feeds)
    assert got.dtype == expected.dtype or got.dtype.itemsize == expected.dtype.itemsize == 2
    got = got.view(expected.dtype)
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
    if form in STEPS:
        assert difference <= STEPS[form]
    else:
        greatest = np.abs(expected.astype(np.float64)).max()
        assert difference <= TOLERANCE.get(form, 3e-5) * greatest
