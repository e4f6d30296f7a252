"""Compiling a model once and holding it against ONNX Runtime at several sizes."""

import numpy as np

import onnxc
from onnxc.commands.comparison import onnxruntime_session

_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float16)": np.float16,
}


def rival(model):
    return onnxruntime_session(model, threads=1)


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def inputs_of(session, shapes, given=None, seed=0):
    """Seeded inputs of the given shapes; those without one have the shape that the model declares."""
    rng, feeds = np.random.default_rng(seed), dict(given or {})
    for port in session.get_inputs():
        if port.name in feeds:
            continue
        shape = shapes.get(port.name, port.shape)
        dtype = _NUMPY[port.type]
        if np.issubdtype(dtype, np.floating):
            feeds[port.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[port.name] = np.asarray(rng.integers(0, 9, shape)).astype(dtype)
    return feeds


def agree(got, expected, names, classification=False):
    """Every output within 1e-3 of the largest magnitude, and the same classes."""
    for name, x, y in zip(names, got, expected, strict=True):
        assert x.shape == y.shape, name
        assert x.dtype == y.dtype, name
        if y.size:
            largest = np.abs(y.astype(np.float64)).max()
            assert np.abs(x.astype(np.float64) - y.astype(np.float64)).max() <= 1e-3 * largest, name
        if classification:
            assert np.array_equal(x.argmax(-1), y.argmax(-1)), name


def check_model(model, folder, sizes, classification=False, given=None):
    """One library, compiled with every dimension as the model has it, against ONNX Runtime at each of the
    sizes."""
    library = onnxc.compile(model, folder / "model.so")
    compiled, session = onnxc.load(library, threads=2), rival(model)
    names = [output.name for output in session.get_outputs()]
    for seed, shapes in enumerate(sizes):
        feeds = inputs_of(session, shapes, given(shapes) if callable(given) else given, seed)
        agree(compiled.run(None, feeds), session.run(None, feeds), names, classification)


def check_runs(model, folder, runs, tolerance=1e-5):
    """One library gives what ONNX Runtime gives for each of the runs' inputs; the library, loaded."""
    compiled = onnxc.load(onnxc.compile(model, folder / "model.so"), threads=2)
    session = rival(model)
    for given in runs:
        feeds = {k: v if isinstance(v, list) else np.asarray(v) for k, v in given.items()}
        for got, expected in zip(compiled.run(None, feeds), session.run(None, feeds), strict=True):
            same(got, expected, tolerance)
    return compiled


def same(got, expected, tolerance=0.0):
    """Equal in type and shape, and in value up to tolerance times the largest magnitude; sequences item
    by item."""
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for x, y in zip(got, expected, strict=True):
            same(x, y, tolerance)
        return
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if tolerance == 0 or not expected.size or expected.dtype == bool:
        assert np.array_equal(got, expected)
    else:
        x, y = got.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * max(1.0, np.abs(y).max()))
