"""Outputs that are bound to the memory of inputs: runs read inputs as they were when they began."""

import threading

import numpy as np
import onnx
import onnxruntime as theirs
import pytest
from onnx import helper
from support.agreement import floats

import onnxc
import onnxc.onnxruntime as ours
from onnxc.onnxruntime import sharing

CPU = ["CPUExecutionProvider"]
HEADS, PLACES, DEPTH = 2, 8, 16


def parsed(text: str, head: str = '<ir_version: 8, opset_import: ["": 17]>') -> bytes:
    return onnx.parser.parse_model(f"{head} {text}").SerializeToString()


STEP = "g (float[n] x, float[n] d) => (float[n] y) { y = Sub(x, d) }"


@pytest.fixture(scope="module")
def step():
    return ours.InferenceSession(parsed(STEP))


def bound(session, feeds, outputs, ort=ours):
    """A binding of arrays, or of their memory, as OrtValues; the outputs too, or by None in the run's own."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    for name, array in outputs.items():
        if array is None:
            binding.bind_output(name)
        else:
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
    return binding


def run(session, feeds, outputs):
    """Which outputs were copied to where they are bound; None where the session's own library ran."""
    binding = bound(session, feeds, outputs)
    session.run_with_iobinding(binding)
    way = binding._iobinding.way
    return way and set(way.copied)


# One memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ort", [ours, theirs], ids=["onnxc", "onnxruntime"])
@pytest.mark.parametrize("by", ["value", "address"])
def test_an_output_in_the_memory_of_an_input_is_its_next_value(ort, by):
    session = ort.InferenceSession(parsed(STEP), providers=CPU)
    value, d = ort.OrtValue.ortvalue_from_numpy(np.arange(6, dtype=np.float32)), floats(6)
    binding = session.io_binding()
    binding.bind_cpu_input("d", d)
    if by == "value":
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", value)
    else:
        where = ("cpu", 0, np.float32, (6,), value.data_ptr())
        binding.bind_input("x", *where)
        binding.bind_output("y", *where)
    expected = np.arange(6, dtype=np.float32)
    for _ in range(3):
        session.run_with_iobinding(binding)
        expected = expected - d
        np.testing.assert_array_equal(value.numpy(), expected)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    if ort is ours:
        assert not binding._iobinding.way.copied


def test_what_is_bound_later_counts(step):
    x, d = floats(6), np.ones(6, np.float32)
    before, apart = x.copy(), np.zeros_like(x)
    binding = bound(step, {"x": x, "d": d}, {"y": x})
    step.run_with_iobinding(binding)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_numpy(apart))
    step.run_with_iobinding(binding)
    np.testing.assert_array_equal(x, before - 1)
    np.testing.assert_array_equal(apart, before - 1 - 1)
    binding.bind_cpu_input("x", apart)
    step.run_with_iobinding(binding)
    np.testing.assert_array_equal(apart, before - 1 - 1 - 1)


def test_inputs_are_read_as_they_were_when_the_run_began():
    session = ours.InferenceSession(
        parsed("""g (float[n, n] x, float[n, n] w) => (float[n, n] y, float[n, n] v, float[n, n] z)
            { t = Transpose(x) y = MatMul(t, w) v = Add(w, t) z = MatMul(w, x) }""")
    )
    for new in ({"y": "x", "v": "w"}, {"y": "w", "v": "x"}, {"z": "x"}, {"z": "w", "y": "x"}):
        x, w = floats(5, 5), floats(5, 5) * 2
        expected = {"y": x.T @ w, "v": w + x.T, "z": w @ x}
        arrays = {"x": x, "w": w}
        memory = {name: arrays[new[name]] if name in new else np.empty_like(x) for name in "yvz"}
        assert run(session, arrays, memory) == set()
        for name, array in memory.items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)
    assert len(session._further) == 4


def test_a_scalar_counts_in_place():
    session = ours.InferenceSession(parsed("g (float x, float d) => (float y) { y = Add(x, d) }"))
    x, d = np.array(3, np.float32), np.array(2, np.float32)
    assert run(session, {"x": x, "d": d}, {"y": x}) == set()
    assert x == 5


def test_pairs_in_any_order_take_one_library():
    session = ours.InferenceSession(
        parsed("g (float[n] x, float[n] w) => (float[n] y, float[n] z) { y = Neg(x) z = Sub(w, x) }")
    )
    memory = floats(2, 6)
    for x, w in (memory, memory[::-1]):
        expected = -x, w - x
        assert run(session, {"x": x, "w": w}, {"y": x, "z": w}) == set()
        np.testing.assert_array_equal((x, w), expected)
    assert len(session._further) == 1


def test_threads_share_one_more_library():
    session, found = ours.InferenceSession(parsed(STEP)), {}
    gate = threading.Barrier(4)

    def work(k):
        x = floats(6) + k
        gate.wait()
        found[k] = run(session, {"x": x, "d": np.ones(6, np.float32)}, {"y": x}), x

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for k, (copied, x) in found.items():
        assert copied == set()
        np.testing.assert_array_equal(x, floats(6) + k - 1)
    assert len(session._further) == 1


def test_initializers_are_bound_and_changed_in_place():
    text = """agraph (float[n] x) => (float[n] y, float[1] v) <float[1] w = {2}>
        { y = Add(x, w) v = Add(w, w) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [1]))
    session, x = ours.InferenceSession(model), floats(3)
    for value, out in (3.0, None), (5.0, "v"):
        w = np.full(1, value, np.float32)
        memory = {"y": np.empty_like(x), "v": w if out else None}
        assert run(session, {"x": x, "w": w}, memory) == set()
        np.testing.assert_array_equal(memory["y"], x + np.float32(value))
        assert w == (2 * value if out else value)


def cache_model(past: object, total: object) -> bytes:
    """A GroupQueryAttention whose caches have room; past and total: their lengths before and after."""
    names = ["q", "k", "v", "past_k", "past_v", "last", "total"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "new_k", "new_v"], domain="com.microsoft",
        num_heads=HEADS, kv_num_heads=HEADS,
    )  # fmt: skip
    caches = [(n, [1, HEADS, p, DEPTH]) for n, p in (("k", past), ("v", past), ("k", total), ("v", total))]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g",
        [*(info(name, 1, [1, 1, HEADS * DEPTH]) for name in names[:3]),
         *(info(f"past_{name}", 1, shape) for name, shape in caches[:2]),
         info("last", 6, [1]), info("total", 6, [])],
        [info("y", 1, [1, 1, HEADS * DEPTH]), *(info(f"new_{n}", 1, shape) for n, shape in caches[2:])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize(("past", "total"), [(PLACES, PLACES), ("past", "total"), (None, None)])
def test_a_cache_with_room_is_changed_in_place(past, total):
    sessions = {ort: ort.InferenceSession(cache_model(past, total), providers=CPU) for ort in (ours, theirs)}
    q, k, v = (floats(3, 1, 1, HEADS * DEPTH) + n for n in range(3))
    keys, values = (floats(1, HEADS, PLACES, DEPTH) * n for n in (1, 2))
    caches = {ort: (keys.copy(), values.copy()) for ort in sessions}
    for at in range(3):
        results = []
        for ort, session in sessions.items():
            old = dict(zip(("past_k", "past_v"), caches[ort]))
            last, size = np.array([4 + at], np.int32), np.array(5 + at, np.int32)
            feeds = {"q": q[at], "k": k[at], "v": v[at], **old, "last": last, "total": size}
            memory = {"y": None, "new_k": old["past_k"], "new_v": old["past_v"]}
            binding = bound(session, feeds, memory, ort)
            session.run_with_iobinding(binding)
            results.append(binding.copy_outputs_to_cpu())
            if ort is ours:
                assert not binding._iobinding.way.copied
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
    for found, expected in zip(*caches.values(), strict=True):
        np.testing.assert_array_equal(found, expected)


# What cannot be changed in place ----------------------------------------------------------------------


def test_memory_that_overlaps_in_part_is_copied_to(step):
    memory, d = floats(9), floats(6)
    x = memory[:6].copy()
    assert run(step, {"x": memory[:6], "d": d}, {"y": memory[3:]}) == {"y"}
    np.testing.assert_array_equal(memory, np.concatenate([x[:3], x - d]))


def test_memory_of_two_inputs_is_copied_to(step):
    x = floats(6)
    assert run(step, {"x": x, "d": x}, {"y": x}) == {"y"}
    assert not x.any()


def test_memory_of_another_type_is_copied_to():
    session = ours.InferenceSession(parsed("g (int32[n] x) => (float[n] y) { y = Cast<to = 1>(x) }"))
    x = np.arange(6, dtype=np.int32)
    assert run(session, {"x": x}, {"y": x.view(np.float32)}) == {"y"}
    np.testing.assert_array_equal(x.view(np.float32), np.arange(6))


def test_a_library_that_is_opened_as_such_copies(tmp_path):
    place, x = tmp_path / "step.so", floats(6)
    onnxc.compile(onnx.load_model_from_string(parsed(STEP)), place)
    expected = x - 1
    with ours.InferenceSession(place) as session:
        assert run(session, {"x": x, "d": np.ones(6, np.float32)}, {"y": x}) == {"y"}
    np.testing.assert_array_equal(x, expected)


def test_a_program_that_shares_other_memory_in_every_run_is_not_compiled_for_without_end(monkeypatch):
    monkeypatch.setattr(sharing, "MOST", 1)
    session = ours.InferenceSession(parsed(STEP))
    x, d = floats(6), np.ones(6, np.float32)
    expected = d - x
    assert run(session, {"x": x, "d": np.zeros_like(d)}, {"y": x}) == set()
    assert run(session, {"x": d, "d": x}, {"y": x}) == {"y"}
    np.testing.assert_array_equal(x, expected)


def test_a_result_of_another_shape_is_refused_and_memory_stays():
    session = ours.InferenceSession(parsed("g (float[n] x) => (float[m] y) { y = Concat<axis = 0>(x, x) }"))
    x = floats(6)
    before = x.copy()
    with pytest.raises(onnxc.RunError, match="output 'y'"):
        run(session, {"x": x}, {"y": x})
    np.testing.assert_array_equal(x, before)


def test_one_memory_for_two_outputs_is_refused():
    session = ours.InferenceSession(
        parsed("g (float[n] x) => (float[n] y, float[n] z) { y = Neg(x) z = Abs(x) }")
    )
    x = floats(6)
    before = x.copy()
    with pytest.raises(RuntimeError, match="the memory of output 'z' overlaps output 'y'"):
        run(session, {"x": x}, {"y": x, "z": x})
    np.testing.assert_array_equal(x, before)


def test_binding_looks_at_the_ports_of_a_session_once(monkeypatch):
    session, looks = ours.InferenceSession(parsed(STEP)), []
    ports = session.get_inputs()
    monkeypatch.setattr(session, "get_inputs", lambda: looks.append(1) or ports)
    for _ in range(3):
        bound(session, {"x": floats(6), "d": floats(6)}, {"y": None})
    assert len(looks) == 1


def test_an_input_that_is_not_bound_is_told(step):
    with pytest.raises(RuntimeError, match="input 'd' is missing"):
        run(step, {"x": floats(6)}, {"y": None})


# Interruptions ----------------------------------------------------------------------------------------


class Interrupted(BaseException):
    pass


class Interrupting(dict):
    """Whose changes are followed by what a signal's handler raises."""

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        raise Interrupted

    def clear(self):
        super().clear()
        raise Interrupted


@pytest.mark.parametrize("what", ["inputs", "outputs"])
@pytest.mark.parametrize("clear", [False, True])
def test_how_a_binding_runs_is_found_anew_where_its_change_was_interrupted(step, what, clear):
    x, d = floats(8), floats(8)
    binding = bound(step, {"x": x, "d": d}, {"y": x})._iobinding
    binding.way = sharing.Way(step._model, ())
    setattr(binding, what, Interrupting(getattr(binding, what)))
    with pytest.raises(Interrupted):
        if clear:
            getattr(binding, f"clear_binding_{what}")()
        elif what == "inputs":
            binding.bind_input("x", d)
        else:
            binding.bind_output("y", ours.OrtDevice.make("cpu", 0)._get_c_device())
    assert binding.way is None


def test_options_end_no_runs_of_others_after_an_interrupted_one(step):
    class Running(list):
        def append(self, running):
            super().append(running)
            raise Interrupted

    options = ours.RunOptions()
    options._running = Running()
    with pytest.raises(Interrupted):
        step.run(None, {"x": floats(8), "d": floats(8)}, options)
    assert options._running == []
