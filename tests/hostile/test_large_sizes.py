"""Sizes whose formulas would grow without end: variables stand for them, which the run computes."""

import numpy as np
import onnx.reference
import pytest
from support.bad_nodes import chain, parsed

import onnxc
from onnxc.errors import RunError
from onnxc.frontend.importer import import_model
from onnxc.ir import dims
from onnxc.ir.builder import Builder
from onnxc.ir.graph import TensorType, walk
from onnxc.ir.ops import Bind, Concat
from onnxc.ir.verify import verify


def compiled(model, directory):
    onnxc.compile(model, directory / "model.so")
    return onnxc.load(directory / "model.so")


def sizes(graph):
    """All symbolic sizes of a graph's values."""
    values = [v for node in walk(graph) for v in node.outputs if isinstance(v.type, TensorType)]
    return [d for v in values for d in v.shape if not isinstance(d, int)]


#: A row is written twice and read in steps of three, then written three times and read in steps of two: about
#: as long as before, by a formula that no step simplifies.
STEP = """a@ = Concat<axis = 2>(v@, v@) b@ = MaxPool<kernel_shape = [1], strides = [3]>(a@)
c@ = Concat<axis = 2>(b@, b@, b@) v# = MaxPool<kernel_shape = [2], strides = [2]>(c@)
"""


def windows(count):
    return chain(STEP, count, "float[1, 1, n] v0")


def test_a_variable_stands_for_a_formula_that_grows():
    graph = import_model(windows(40)).graph
    bound = [node for node in walk(graph) if isinstance(node.op, Bind)]
    assert 2 <= len(bound) < 20
    assert max(size.size for size in sizes(graph)) < 4 * dims.LARGE_SIZE


def test_formulas_of_common_size_stay_formulas():
    graph = import_model(windows(2)).graph
    assert not any(isinstance(node.op, Bind) for node in walk(graph))


def test_a_long_chain_of_windows_gives_what_the_reference_gives(tmp_path):
    model = windows(8)
    library = compiled(model, tmp_path)
    reference = onnx.reference.ReferenceEvaluator(model)
    for n in (60, 61, 97):
        x = np.random.default_rng(n).standard_normal((1, 1, n)).astype(np.float32)
        (found,), (expected,) = library.run(None, {"v0": x}), reference.run(None, {"v0": x})
        np.testing.assert_array_equal(found, expected)


def test_a_size_that_64_bits_do_not_hold_fails_the_run_that_has_it(tmp_path):
    library = compiled(chain("v# = Concat<axis = 0>(v@, v@)", 64, "float[k] v0"), tmp_path)
    (nothing,) = library.run(None, {"v0": np.zeros(0, np.float32)})
    assert nothing.shape == (0,)
    with pytest.raises(RunError, match=r"overflows|bytes are needed"):
        library.run(None, {"v0": np.zeros(1, np.float32)})


def test_the_sum_of_many_long_sums_is_a_size():
    """Each row has a formula just short of a large one; together they are beyond what one formula may be."""
    b = Builder()
    names = [b.fresh("n") for _ in range(140)]
    rows = [b.input(TensorType("float32", (dims.product([name] * 120),))) for name in names]
    assert not any(dims.is_large(row.shape[0]) for row in rows)
    assert sum(row.shape[0].size for row in rows) > dims.SIZE_LIMIT
    (whole,) = b.emit(Concat(0), *rows)
    assert not dims.is_large(whole.shape[0])
    verify(b.finish([whole]))


def test_a_branch_names_its_own_sizes(tmp_path):
    steps = "".join(STEP.replace("@", str(k)).replace("#", str(k + 1)) for k in range(4))
    model = parsed(
        f"""(float[1, 1, n] x, bool c) => (float[1, 1, m] y) {{
        y = If(c) <then_branch = a () => (float[1, 1, m] t) {{ v0 = Identity(x) {steps} t = Identity(v4) }},
                   else_branch = b () => (float[1, 1, k] e) {{ e = Neg(x) }}> }}"""
    )
    library, reference = compiled(model, tmp_path), onnx.reference.ReferenceEvaluator(model)
    for c in (True, False):
        feeds = {
            "x": np.random.default_rng(0).standard_normal((1, 1, 9)).astype(np.float32),
            "c": np.array(c),
        }
        np.testing.assert_array_equal(library.run(None, feeds)[0], reference.run(None, feeds)[0])
