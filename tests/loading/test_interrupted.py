"""An exception that comes between two steps of a call, as signals' handlers raise them, loses no context."""

import contextlib
import sys

import numpy as np
import onnx.parser
import pytest

import onnxc
from onnxc.errors import RunError

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float[2] s) => (float[2] y, float[2] t) { y = Neg (x) t = Add (x, s) }"""
X = np.ones(2, np.float32)


class Interrupted(BaseException):
    pass


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted")
    return onnxc.compile(onnx.parser.parse_model(MODEL), folder / "model.so", states={"s": "t"})


def interrupted(steps, n):
    """Whether `steps` has so many bytecodes of the package that the n-th raises."""
    left = n

    def trace(frame, event, _):
        nonlocal left
        if "onnxc" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(Interrupted):
            steps()
    finally:
        sys.settrace(before)
    return left < 0


def run(model):
    model.run(None, {"x": X, "s": X})


def profile(model):
    model.profile({"x": X, "s": X})


def bound(model):
    calls = model.bind()
    calls()
    calls.close()


def stateful(model):
    calls = model.stateful(initial={"s": X})
    calls({"x": X})
    calls.close()


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of __del__


@pytest.mark.parametrize("steps", [run, profile, bound, stateful, onnxc.loading.loader.Model.workspace_bytes])
def test_a_model_closes_whatever_bytecode_of_a_call_raises(path, steps):
    n = 0
    going_on = True
    while going_on:
        with onnxc.load(path, threads=1) as model:
            run(model)
            going_on = interrupted(lambda model=model: steps(model), n)
            assert len({id(context) for context in model._free}) == len(model._free)
            run(model)
        n += 1
    assert n > 20


def test_a_call_beside_another_may_be_interrupted_too(path):
    n = 0
    going_on = True
    while going_on:
        with onnxc.load(path, threads=1) as model:
            other = model.acquire()
            going_on = interrupted(lambda model=model: run(model), n)
            with pytest.raises(RunError, match="running"):
                model.close()
            model.give_back(other)
        n += 1
    assert n > 100


def test_what_an_interrupted_close_leaves_the_next_does(path):
    n = 0
    going_on = True
    while going_on:
        model = onnxc.load(path, threads=2)
        run(model)
        going_on = interrupted(model.close, n)
        with contextlib.suppress(RunError):  # closed already, or usable as before
            run(model)
        model.close()
        assert not model._library.handles and not model._library.pool
        with pytest.raises(RunError, match="closed"):
            run(model)
        n += 1
    assert n > 20


def test_contexts_that_were_lost_are_freed_by_the_next_call_that_needs_one(path):
    with onnxc.load(path, threads=1) as model:
        for _ in range(3):
            model.acquire()
        run(model)
        assert len(model._library.handles) == 1


def test_what_is_closed_while_it_is_closed_gives_its_context_back_once(path):
    with onnxc.load(path, threads=1) as model:
        calls = model.bind()
        give_back = model.give_back
        model.give_back = lambda context: (calls.close(), give_back(context))
        calls.close()
        assert len(model._free) == 1
