"""LSTM, GRU and RNN from the model to the result: one library for every batch and length."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.agreement import check_runs, same

import onnxc
from onnxc.errors import RunError
from onnxc.frontend.importer import import_model

KINDS = pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
SIZES = [(7, 3), (1, 1), (30, 2), (2, 40)]  # without steps ONNX Runtime dies
WIDTH, HIDDEN = 5, 18
NAMES = {"LSTM": ["b", "lengths", "h", "c", "p"], "GRU": ["b", "lengths", "h"], "RNN": ["b", "lengths", "h"]}


def model_of(
    kind,
    direction="bidirectional",
    optional=("b", "lengths", "h", "c", "p"),
    dtype=np.float32,
    constant=True,
    **attributes,
):
    """A model of one operator with seeded weights; the batch and the steps are open."""
    random = np.random.default_rng(0)
    count, columns = (
        2 if direction == "bidirectional" else 1,
        HIDDEN * {"LSTM": 4, "GRU": 3, "RNN": 1}[kind],
    )
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y, state = ["T", "N", WIDTH], ["T", count, "N", HIDDEN], [count, "N", HIDDEN]
    if attributes.get("layout"):
        x, y, state = ["N", "T", WIDTH], ["N", "T", count, HIDDEN], ["N", count, HIDDEN]
    ports = {"x": x, "h": state, "c": state, "lengths": ["N"]}
    shapes = {
        "w": (count, columns, WIDTH),
        "r": (count, columns, HIDDEN),
        "b": (count, 2 * columns),
        "p": (count, 3 * HIDDEN),
    }
    names = ["x", "w", "r", *(name if name in optional else "" for name in NAMES[kind])]
    weights = {n: random.uniform(-0.7, 0.7, shapes[n]).astype(dtype) for n in names if n in shapes}
    ports |= {} if constant else {name: list(shapes[name]) for name in weights}
    outputs = ["y", "last", "cell"] if kind == "LSTM" else ["y", "last"]
    node = helper.make_node(
        kind, names, outputs, "step", hidden_size=HIDDEN, direction=direction, **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, TensorProto.INT32 if n == "lengths" else element, ports[n])
            for n in names
            if n in ports
        ],
        [helper.make_tensor_value_info(n, element, y if n == "y" else state) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()] if constant else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    return model, {} if constant else weights


def feeds_of(model, steps, batch, seed=0, dtype=np.float32):
    random, feeds, open_ = np.random.default_rng(seed), {}, {"T": steps, "N": batch}
    for port in model.graph.input:
        shape = [open_.get(d.dim_param, d.dim_value) for d in port.type.tensor_type.shape.dim]
        if port.name == "lengths":
            feeds[port.name] = random.integers(min(1, steps), steps + 1, batch, np.int32)
        else:
            feeds[port.name] = random.standard_normal(shape).astype(dtype)
    return feeds


@KINDS
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_one_library_serves_every_batch_and_length(kind, direction, tmp_path):
    model, _ = model_of(kind, direction, ("b", "h", "c", "p"))
    check_runs(model, tmp_path, [feeds_of(model, *size) for size in SIZES])


@KINDS
def test_the_inputs_of_all_steps_are_projected_at_once(kind):
    model, _ = model_of(kind)
    ops = [type(node.op).__name__ for node in import_model(model).graph.nodes]
    assert ops.count("Contract") == ops.count("Recurrent") == 1


@KINDS
def test_nothing_but_weights(kind, tmp_path):
    model, _ = model_of(kind, optional=())
    check_runs(model, tmp_path, [feeds_of(model, *size) for size in SIZES])


@KINDS
def test_no_steps_leave_the_state_as_it_was(kind, tmp_path):
    model, _ = model_of(kind, optional=("b", "h", "c", "p"))
    feeds = feeds_of(model, 0, 3)
    y, *states = onnxc.load(onnxc.compile(model, tmp_path / "model.so")).run(None, feeds)
    assert y.shape == (0, 2, 3, HIDDEN)
    assert all(np.array_equal(state, feeds[name]) for state, name in zip(states, "hc"))


@KINDS
def test_sequences_of_their_own_lengths(kind, tmp_path):
    model, _ = model_of(kind, optional=("b", "lengths", "h"))
    check_runs(model, tmp_path, [feeds_of(model, *size) for size in SIZES])


@KINDS
def test_a_sequence_of_no_steps_among_others_ends_in_zeros(kind, tmp_path):
    model, _ = model_of(kind)
    runs = [[0, 7, 3], [0, 0], [30, 0, 0, 1]]
    lengths = [np.array(n, np.int32) for n in runs]
    check_runs(model, tmp_path, [feeds_of(model, max(2, *n), len(n)) | {"lengths": n} for n in lengths])


def test_a_gru_that_multiplies_before_it_resets(tmp_path):
    model, _ = model_of("GRU", linear_before_reset=1)
    check_runs(model, tmp_path, [feeds_of(model, *size) for size in SIZES])


@KINDS
def test_weights_may_be_inputs(kind, tmp_path):
    model, weights = model_of(kind, optional=("b",), constant=False)
    check_runs(model, tmp_path, [feeds_of(model, *size) | weights for size in SIZES])


@KINDS
def test_the_batch_may_come_first(kind, tmp_path):
    """ONNX Runtime does not run this layout: the transposed results of the other."""
    first, _ = model_of(kind, layout=1)
    last, _ = model_of(kind)
    first, last = (
        onnxc.load(onnxc.compile(model, tmp_path / f"{name}.so"))
        for name, model in (("first", first), ("last", last))
    )
    for steps, batch in SIZES:
        feeds = feeds_of(model_of(kind)[0], steps, batch)
        y, *states = last.run(None, feeds)
        turned = {k: v if k == "lengths" else v.transpose(1, 0, 2).copy() for k, v in feeds.items()}
        got = first.run(None, turned)
        for a, b in zip(got, [y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in states)], strict=True):
            same(a, b, 1e-6)


@KINDS
def test_any_number_of_threads_gives_the_same_bits(kind, tmp_path):
    model, _ = model_of(kind)
    library = onnxc.compile(model, tmp_path / "model.so")
    feeds = feeds_of(model, 40, 60)
    one, three = (onnxc.load(library, threads=n).run(None, feeds) for n in (1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


@KINDS
def test_16_bit_floats_are_computed_in_float32(kind, tmp_path):
    """The results are as good as the type."""
    wide, _ = model_of(kind, optional=("b", "lengths", "h"))
    half, _ = model_of(kind, optional=("b", "lengths", "h"), dtype=np.float16)
    wide, half = (
        onnxc.load(onnxc.compile(model, tmp_path / f"{name}.so"))
        for name, model in (("wide", wide), ("half", half))
    )
    for size in SIZES:
        feeds = feeds_of(model_of(kind, optional=("b", "lengths", "h"))[0], *size)
        narrow = {k: v if k == "lengths" else v.astype(np.float16) for k, v in feeds.items()}
        for a, b in zip(half.run(None, narrow), wide.run(None, feeds), strict=True):
            assert a.dtype == np.float16
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-2)


@pytest.mark.parametrize("length", [-1, 6])
def test_a_length_beyond_the_steps_is_an_error_of_the_run(length, tmp_path):
    model, _ = model_of("LSTM", "forward", ("lengths",))
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    feeds = feeds_of(model, 5, 2)
    with pytest.raises(RunError, match=rf"^step .LSTM.: a sequence has {length} of T steps"):
        compiled.run(None, feeds | {"lengths": np.array([5, length], np.int32)})
    compiled.run(None, feeds)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_weights_of_a_wrong_shape_are_an_error_of_the_run(kind, tmp_path):
    model, weights = model_of(kind, optional=("b",), constant=False)
    for port in model.graph.input[1:]:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            if (port.name, axis) != ("r", 2):  # which says how many units there are
                dim.dim_param = f"{port.name}{axis}"
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    feeds = feeds_of(model_of(kind, optional=("b",))[0], 5, 2) | weights
    for name, array in weights.items():
        for wrong in (array[:1], array[:, 1:], np.concatenate([array, array])):
            with pytest.raises(RunError, match=rf"^input '{name}': expected shape "):
                compiled.run(None, feeds | {name: wrong.copy()})
    compiled.run(None, feeds)
