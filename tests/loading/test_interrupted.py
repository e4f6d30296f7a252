"""An exception that comes between two steps of a call, as signals' handlers raise them, loses nothing, and
the calls that follow are right."""

import contextlib
import ctypes
import gc
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import onnxc
from onnxc.errors import RunError
from onnxc.loading.c_values import Port, Slot, Spares

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, float[2] s) => (float[2] y, float[2] t) { y = Neg (x) t = Add (x, s) }"""
X = np.ones(2, np.float32)

#: Where sizes are open, results are the library's own memory, or that which was foreseen.
OPEN = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, m] x) => (float[n, m] y, int64[k, l] z) { y = Add (x, x) z = NonZero (x) }"""
OPTIONAL = """<ir_version: 10, opset_import: ["": 20]>
    g (float[n, m] x, optional(float[k]) o) => (float[n, m] y, bool h, int64[p, q] z)
    { h = OptionalHasElement (o) y = Add (x, x) z = NonZero (x) }"""
LISTS = """<ir_version: 8, opset_import: ["": 17]>
    g (seq(float[n, m]) x) => (seq(float[n, m]) y, int64[k, l] z)
    { i = Constant <value_int = 0> () a = SequenceAt (x, i) b = Add (a, a) y = SequenceConstruct (b, a)
      z = NonZero (a) }"""
GROWING = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n] x, float[p] s, float[q] r) => (float[t] s2, float[u] r2, float y)
    { s2 = Concat <axis = 0> (s, x) r2 = Concat <axis = 0> (x, r) y = ReduceSum <keepdims = 0> (s2) }"""
SMALL, LARGE = np.ones((2, 3), np.float32), np.ones((100, 90), np.float32)


class Interrupted(BaseException):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("interrupted")


@pytest.fixture(scope="module")
def path(folder):
    return onnxc.compile(onnx.parser.parse_model(MODEL), folder / "model.so", states={"s": "t"})


@pytest.fixture(scope="module")
def open_path(folder):
    return onnxc.compile(onnx.parser.parse_model(OPEN), folder / "open.so")


@pytest.fixture(scope="module")
def lists_path(folder):
    return onnxc.compile(onnx.parser.parse_model(LISTS), folder / "lists.so")


@pytest.fixture(scope="module")
def optional_path(folder):
    return onnxc.compile(onnx.parser.parse_model(OPTIONAL), folder / "optional.so")


def is_in_finaliser(frame):
    return frame is not None and (frame.f_code.co_name == "__del__" or is_in_finaliser(frame.f_back))


def interrupted(steps, n, where="onnxc", finalisers=True):
    """Whether `steps` has so many bytecodes of the package that the n-th raises. where: a part of the paths
    of files that count. finalisers: whether `__del__` and what it calls count, whose exceptions Python
    ignores."""
    left = n

    def trace(frame, event, _):
        nonlocal left
        code = frame.f_code
        if "onnxc" not in code.co_filename or where not in code.co_filename:
            return None
        if not finalisers and is_in_finaliser(frame):
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


def usual(model, x):
    return model.run(["y", "z"], {"x": x})


def in_python(model, x):
    """An array that is not in order, which `quick.c` leaves to Python."""
    return model.run(["y", "z"], {"x": np.asfortranarray(x)})


def to_memory(model, x):
    return model.run(["y", "z"], {"x": x}, out={"y": np.empty_like(x)})


def profiled(model, x):
    model.profile({"x": x})


def optional(model, x):
    """In Python, of a model that takes an optional."""
    return model.run(["y", "z"], {"x": np.asfortranarray(x), "o": None})


def lists(model, x):
    """In C, where what is large stays the library's."""
    (y, _), z = model.run(["y", "z"], {"x": [x]})
    return y, z


def lists_in_python(model, x):
    (y, _), z = model.run(["y", "z"], {"x": [np.asfortranarray(x)]})
    return y, z


#: What is interrupted, the calls before and after it, and of which model.
WAYS = pytest.mark.parametrize(
    ("steps", "call", "path"),
    [
        (usual, usual, "open_path"),
        (in_python, in_python, "open_path"),
        (to_memory, to_memory, "open_path"),
        (profiled, usual, "open_path"),
        (optional, optional, "optional_path"),
        (lists, lists, "lists_path"),
        (lists_in_python, lists, "lists_path"),
    ],
)


def is_right(results, x):
    y, z = results
    return np.array_equal(y, x + x) and np.array_equal(z, np.nonzero(x))


@WAYS
def test_the_calls_after_an_interrupted_one_are_right(steps, call, path, request):
    n = 0
    going_on = True
    with onnxc.load(request.getfixturevalue(path), threads=1) as model:
        while going_on:
            assert is_right(call(model, SMALL), SMALL)
            going_on = interrupted(lambda: steps(model, LARGE), n, finalisers=False)
            for x in (LARGE, LARGE, SMALL):
                assert is_right(call(model, x), x), n
            n += 1
    assert n > 100


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        ("counts", ctypes.c_size_t * 4),
        ("mapped", ctypes.c_size_t),
        ("greatest", ctypes.c_size_t * 2),
        ("in_arenas", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    ]


def bytes_in_use():
    """Those that C has taken."""
    gc.collect()
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Mallinfo2
    told = ask()
    return told.mapped + told.in_arenas


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc tells what is in use")
@WAYS
def test_an_interrupted_call_leaves_no_memory(steps, call, path, request):
    result = 2 * 8 * LARGE.size
    n = 0
    going_on = True
    with onnxc.load(request.getfixturevalue(path), threads=1) as model:
        for _ in range(8):
            call(model, LARGE)
        before = bytes_in_use()
        while going_on:
            going_on = interrupted(lambda: steps(model, LARGE), n, finalisers=False)
            call(model, LARGE)
            n += 1
        assert bytes_in_use() - before < 4 * result
    assert bytes_in_use() - before < 4 * result


def test_a_context_that_was_lost_takes_the_results_that_it_holds_along(open_path):
    with onnxc.load(open_path, threads=1) as model:
        released = []
        release = model._library.table.release
        model._library.table.release = lambda address: (released.append(address), release(address))
        context = model.acquire()
        context.inputs[0].fill(LARGE, [])
        context.call()  # and no more of a run
        assert context.outputs[1][0].object
        del context
        usual(model, SMALL)
        assert len(released) == 2


def test_states_grow_all_or_none_in_an_interrupted_call(folder):
    states = {"s": "s2", "r": "r2"}
    path = onnxc.compile(onnx.parser.parse_model(GROWING), folder / "growing.so", states=states)
    n = 0
    going_on = True
    with onnxc.load(path, threads=1) as model:
        while going_on:
            calls = model.stateful(capacity=4)
            calls({"x": X})
            going_on = interrupted(lambda calls=calls: calls({"x": X}), n)
            held = {name: array.size for name, array in calls.states.items()}
            assert held in ({"s": 2, "r": 2}, {"s": 4, "r": 4}), n
            calls.close()
            n += 1
    assert n > 100


def is_mapped(path):
    return str(Path(path).resolve()) in Path("/proc/self/maps").read_text()


def test_nothing_is_left_of_a_library_whose_opening_or_end_was_interrupted(path, tmp_path):
    path = shutil.copy(path, tmp_path)

    def steps():
        with onnxc.load(path, threads=1) as model:
            run(model)

    steps()
    gc.collect()
    assert not is_mapped(path)
    descriptors = len(os.listdir("/proc/self/fd"))
    n = 0
    while interrupted(steps, n, where="library.py", finalisers=False):
        n += 1
    gc.collect()
    assert n > 100
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not is_mapped(path)


def test_memory_for_results_is_kept_after_interruptions_too():
    spares = Spares(1)
    slot = Slot.of(Port("y", (1 << 22,), "float32"), 1)
    n = 0
    while interrupted(lambda: spares.empty(0, slot, slot.shape), n, finalisers=False):
        n += 1
    assert n > 50
    spares.empty(0, slot, slot.shape)
    assert spares.kept[0]


def test_a_library_looks_at_no_memory_of_timings_that_is_replaced(path):
    with onnxc.load(path, threads=1) as model:
        (context,) = model._free
        table = model._library.table
        set_profile = table.set_profile
        seen = []
        table.set_profile = lambda handle, told: (
            seen.append((told, context.timed)),
            set_profile(handle, told),
        )
        context.timed = left = object()  # as an interrupted run leaves it
        profile(model)
        assert seen[0] == (None, left)
        assert [told is None for told, _ in seen] == [True, False, True]
