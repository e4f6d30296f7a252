"""Models that change their states in place: decoding with a cache of keys and values, a moving average, a
scattered cache. What they give is what ONNX Runtime gives when the states are passed along."""

import ctypes
import faulthandler
import signal
import subprocess

import numpy as np
import onnx
import pytest
from support.agreement import rival, same
from support.confined import run_confined
from support.small_models import Weights, parsed

import onnxc
from onnxc import ModelError, RunError
from onnxc.codegen.abi import ERRORS
from onnxc.codegen.library.compiler import find_compiler
from onnxc.commands.cli import main

HEADS, DEPTH, WIDTH = 3, 8, 24
PAGE, READ_ONLY, WRITABLE = 4096, 1, 2


def decoder():
    """One layer of attention over what was seen so far, which `present` adds to."""
    w = Weights(7)
    for name in ("wq", "wk", "wv"):
        w.add(name, WIDTH, WIDTH)
    return parsed(
        f"""decoder (float[batch, length, {WIDTH}] x, float[batch, {HEADS}, past, {DEPTH}] past_k,
            float[batch, {HEADS}, past, {DEPTH}] past_v)
        => (float[batch, length, {WIDTH}] y, float[batch, {HEADS}, total, {DEPTH}] present_k,
            float[batch, {HEADS}, total, {DEPTH}] present_v) {{
            shape = Constant <value = int64[4] {{0, 0, {HEADS}, {DEPTH}}}> ()
            back = Constant <value = int64[3] {{0, 0, {WIDTH}}}> ()
            scale = Constant <value = float {{0.35}}> ()
            q0 = MatMul (x, wq) q1 = Reshape (q0, shape) q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k0 = MatMul (x, wk) k1 = Reshape (k0, shape) k = Transpose <perm = [0, 2, 1, 3]> (k1)
            v0 = MatMul (x, wv) v1 = Reshape (v0, shape) v = Transpose <perm = [0, 2, 1, 3]> (v1)
            present_k = Concat <axis = 2> (past_k, k)
            present_v = Concat <axis = 2> (past_v, v)
            kt = Transpose <perm = [0, 1, 3, 2]> (present_k)
            scores = MatMul (q, kt) scaled = Mul (scores, scale) weights = Softmax <axis = -1> (scaled)
            mixed = MatMul (weights, present_v) turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
            y = Reshape (turned, back)
        }}""",
        w,
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder") / "decoder.so"
    return onnxc.load(onnxc.compile(decoder(), path, states={"past_*": "present_*"}), threads=2)


def tokens(batch, length, seed):
    return np.random.default_rng(seed).standard_normal((batch, length, WIDTH)).astype(np.float32)


def empty(batch):
    return {name: np.zeros((0, batch, HEADS, DEPTH), np.float32) for name in ("past_k", "past_v")}


def test_a_state_that_grows_has_its_growing_axis_first(compiled):
    _, keys, _ = compiled.inputs
    assert keys.shape == ("past", "batch", HEADS, DEPTH)
    assert keys.state == "present_k"


@pytest.mark.parametrize("batch", [1, 2])
def test_decoding_in_place_gives_what_passing_the_cache_along_does(compiled, batch):
    session, steps = rival(decoder()), compiled.stateful(capacity=40, initial=empty(batch))
    k = v = np.zeros((batch, HEADS, 0, DEPTH), np.float32)
    where = {name: array.ctypes.data for name, array in steps.states.items()}
    for step, length in enumerate((7, 1, 1, 3, 1)):
        x = tokens(batch, length, step)
        expected, k, v = session.run(None, {"x": x, "past_k": k, "past_v": v})
        same(steps({"x": x})["y"], expected, 1e-5)
        for name, cache in (("past_k", k), ("past_v", v)):
            same(np.ascontiguousarray(steps.states[name].transpose(1, 2, 0, 3)), cache, 1e-5)
            assert steps.states[name].ctypes.data == where[name]
    steps.close()


def decode_over_protected_rows(path, spoil):
    """A step with all whole pages of what was seen before protected; `spoil`: something writes there."""
    faulthandler.disable()
    steps = onnxc.load(path, threads=1).stateful(capacity=4096, initial=empty(1))
    steps({"x": tokens(1, 1024, 0)})
    keys = steps.states["past_k"]
    first, last = -(-keys.ctypes.data // PAGE) * PAGE, (keys.ctypes.data + keys.nbytes) // PAGE * PAGE
    assert last - first > 90_000
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), READ_ONLY) == 0
    if spoil:
        keys[512] = 0
    steps({"x": tokens(1, 1, 1)})
    assert len(steps.states["past_k"]) == 1025
    # Who frees memory may write into it.
    assert protect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), READ_ONLY | WRITABLE) == 0


def test_what_is_there_is_not_written_again(compiled):
    assert run_confined(lambda: decode_over_protected_rows(compiled.path, False)).status == 0
    assert run_confined(lambda: decode_over_protected_rows(compiled.path, True)).status == -signal.SIGSEGV


def test_a_state_apart_from_its_next_value_is_copied(compiled):
    x = tokens(2, 3, 0)
    past = {n: tokens(5, 2, k).reshape(5, 2, HEADS, DEPTH) for k, n in enumerate(("past_k", "past_v"))}
    kept = {name: array.copy() for name, array in past.items()}
    y, keys, _ = compiled.run(None, {"x": x, **past})
    steps = compiled.stateful(capacity=8, initial=past)
    same(steps({"x": x})["y"], y)
    same(steps.states["past_k"], keys)
    steps.close()
    for name, array in past.items():
        same(array, kept[name])


def test_memory_that_is_too_small_is_refused_in_words(compiled):
    steps = compiled.stateful(capacity=4, initial=empty(1))
    steps({"x": tokens(1, 4, 0)})
    with pytest.raises(RunError, match="output 'present_k': 480 bytes are needed for shape") as caught:
        steps({"x": tokens(1, 1, 0)})
    assert caught.value.status == ERRORS["buffer_too_small"]
    steps.close()


def test_states_of_unknown_size_need_a_first_value(compiled):
    with pytest.raises(RunError, match=r"'past_k' of shape .* has no known size: give its first value"):
        compiled.stateful(capacity=8)
    with pytest.raises(RunError, match="'x' is no state of the model"):
        compiled.stateful(capacity=8, initial={**empty(1), "x": tokens(1, 1, 0)})
    compiled.stateful(capacity=8, initial=empty(1)).close()


def test_what_states_do_not_take_is_refused_in_one_sentence(compiled):
    for given in ({"capacity": -1}, {"capacity": 2.5}, {"capacity": "8"}, {"capacity": None}):
        with pytest.raises(RunError, match=r"^capacity=.* is no count"):
            compiled.stateful(initial=empty(1), **given)
    with pytest.raises(RunError, match="expected a mapping of states to arrays, got a list"):
        compiled.stateful(capacity=8, initial=[1])
    steps = compiled.stateful(capacity=8, initial=empty(1))
    with pytest.raises(RunError, match="expected a mapping of input names to arrays, got a int"):
        steps(1)
    steps.close()


def overlapping(compiled, at):
    """A call whose memory for `present_k` begins `at` bytes behind the state's."""
    room = np.zeros((64, 1, HEADS, DEPTH), np.float32)
    context = compiled.acquire()
    try:
        values = [tokens(1, 1, 0), room[:4], np.zeros((4, 1, HEADS, DEPTH), np.float32)]
        memory = room.reshape(-1)[at // 4 :]
        context.run(values, {1: memory})
    finally:
        compiled.give_back(context)


def test_only_the_very_memory_of_a_state_may_be_its_next_values(compiled):
    overlapping(compiled, 0)
    with pytest.raises(RunError, match="the memory of output 'present_k' overlaps input 'past_k'") as caught:
        overlapping(compiled, 64)
    assert caught.value.status == ERRORS["overlap"]


# States that do not grow


AVERAGE = """average (float[4] x, float[4] mean, float[4] old)
    => (float[4] out, float[4] next, float[4] kept) {
    half = Constant <value = float {0.5}> ()
    a = Mul (mean, half) b = Mul (x, half) next = Add (a, b)
    out = Sub (x, mean)
    kept = Add (mean, next)
}"""


def test_states_that_do_not_grow_begin_as_zeros(tmp_path):
    """What is read after its next value is there (`mean`) keeps its value until then."""
    path = onnxc.compile(parsed(AVERAGE), tmp_path / "m.so", states={"mean": "next", "old": "kept"})
    steps, mean = onnxc.load(path).stateful(), np.zeros(4, np.float32)
    for k in range(3):
        x = np.arange(4, dtype=np.float32) + k
        assert np.array_equal(steps({"x": x})["out"], x - mean)
        before, mean = mean, mean * np.float32(0.5) + x * np.float32(0.5)
        assert np.array_equal(steps.states["mean"], mean)
        assert np.array_equal(steps.states["old"], before + mean)
    steps.close()


def test_a_state_of_one_number_is_an_array_that_may_be_written_to(tmp_path):
    model = parsed(
        "count (float[length] x, int64 seen) => (float[length] y, int64 next) {"
        "size = Size (x) next = Add (seen, size) s = Cast <to = 1> (seen) y = Add (x, s) }"
    )
    library = onnxc.load(onnxc.compile(model, tmp_path / "m.so", states={"seen": "next"}))
    steps = library.stateful(initial={"seen": 5})
    seen, x = steps.states["seen"], np.zeros(3, np.float32)
    assert steps({"x": x})["y"].tolist() == [5] * 3 and seen == 8
    seen[...] = 20
    assert steps({"x": x})["y"].tolist() == [20] * 3 and seen == 23
    steps.close()


def test_calls_that_nobody_can_make_any_more_are_ended(tmp_path):
    states = {"mean": "next", "old": "kept"}
    model = onnxc.load(onnxc.compile(parsed(AVERAGE), tmp_path / "m.so", states=states))
    with pytest.raises(RunError, match="'x' is no state of the model"):
        model.stateful(initial={"x": [0, 0, 0, 0]})
    model.stateful(initial={"mean": [1, 2, 3, 4]})({"x": np.zeros(4, np.float32)})
    model.close()


def test_a_step_whose_inputs_are_still_being_converted_can_be_cancelled(tmp_path):
    model = onnxc.load(onnxc.compile(parsed(AVERAGE), tmp_path / "m.so", states={"mean": "next"}))

    class Cancelling:
        def __array__(self, dtype=None, copy=None):
            model.cancel()
            return np.ones(4, np.float32)

    steps = model.stateful()
    given = {"x": Cancelling(), "old": np.zeros(4, np.float32)}
    with pytest.raises(RunError, match="cancelled"):
        steps(given)
    model.cancel()  # nothing that is under way
    assert steps({**given, "x": np.ones(4, np.float32)})["out"].tolist() == [1] * 4
    steps.close()


def test_a_bound_state_and_its_next_value_are_one_array(tmp_path):
    path = onnxc.compile(parsed(AVERAGE), tmp_path / "m.so", states={"mean": "next"})
    bound = onnxc.load(path).bind()
    bound.inputs["x"][:] = 8
    bound._model.cancel()  # nothing that is under way
    bound()
    bound()
    assert bound.inputs["mean"].tolist() == bound.outputs["next"].tolist() == [6.0] * 4
    bound.close()


def test_rows_are_scattered_into_a_cache(tmp_path):
    model = parsed("""cache (float[16, 4] rows, int64[n, 1] at, float[n, 4] new)
        => (float[4] sum, float[16, 4] after) {
        after = ScatterND (rows, at, new)
        zero = Constant <value = int64[1] {0}> ()
        sum = ReduceSum <keepdims = 0> (after, zero)
    }""")
    steps = onnxc.load(onnxc.compile(model, tmp_path / "m.so", states={"rows": "after"})).stateful()
    expected = np.zeros((16, 4), np.float32)
    for k in range(3):
        new = np.full((2, 4), k + 1, np.float32)
        expected[[k, k + 5]] = new
        same(steps({"at": np.array([[k], [k + 5]]), "new": new})["sum"], expected.sum(0), 1e-6)
        same(steps.states["rows"], expected)
    steps.close()


def test_a_cache_of_fixed_size_is_written_where_its_tokens_belong(tmp_path):
    model = parsed(
        """cache (float[2, 3, 16, 8] keys, float[2, 3, n, 8] new, int64[2] at)
        => (float[2, 3, 8] sum, float[2, 3, 16, 8] after) {
            after = TensorScatter <axis = 2> (keys, new, at)
            two = Constant <value = int64[1] {2}> ()
            sum = ReduceSum <keepdims = 0> (after, two)
        }""",
        opset=24,
    )
    steps = onnxc.load(onnxc.compile(model, tmp_path / "m.so", states={"keys": "after"})).stateful()
    expected, where = np.zeros((2, 3, 16, 8), np.float32), steps.states["keys"].ctypes.data
    for k, length in enumerate((5, 1, 2)):
        new = np.random.default_rng(k).standard_normal((2, 3, length, 8)).astype(np.float32)
        at = np.array([3 * k, 3 * k + 4])
        for batch in range(2):
            expected[batch, :, at[batch] : at[batch] + length] = new[batch]
        same(steps({"new": new, "at": at})["sum"], expected.sum(2), 1e-5)
        same(steps.states["keys"], expected)
    assert steps.states["keys"].ctypes.data == where
    steps.close()


GROUPED = """grouped (float[batch, n, 64] q, float[batch, n, 32] k, float[batch, n, 32] v,
    float[batch, 2, past, 16] past_k, float[batch, 2, past, 16] past_v, int32[batch] last, int32[1] most)
=> (float[batch, n, 64] y, float[batch, 2, total, 16] present_k, float[batch, 2, total, 16] present_v) {
    y, present_k, present_v = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
        (q, k, v, past_k, past_v, last, most)
}"""
ROOM = 1024


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    model = parsed(GROUPED, opset='17, "com.microsoft" : 1')
    path = tmp_path_factory.mktemp("grouped") / "grouped.so"
    onnxc.compile(model, path, dims={"past": ROOM}, states={"past_*": "present_*"})
    return model, onnxc.load(path, threads=1)


def grouped_rows(length, last, seed):
    rng, batch = np.random.default_rng(seed), len(last)
    rows = {n: rng.standard_normal((batch, length, 64 if n == "q" else 32)) for n in ("q", "k", "v")}
    feeds = {name: array.astype(np.float32) for name, array in rows.items()}
    return feeds | {"last": np.array(last, np.int32), "most": np.array([max(last) + 1], np.int32)}


def grouped_caches(batch):
    return {name: np.zeros((batch, 2, ROOM, 16), np.float32) for name in ("past_k", "past_v")}


def test_group_query_attention_keeps_a_cache_of_a_known_size_in_place(grouped):
    model, library = grouped
    session, steps = rival(model), library.stateful(initial=grouped_caches(2))
    assert steps.states["past_k"].shape == (2, 2, ROOM, 16)
    k, v = grouped_caches(2).values()
    for seed, (length, last) in enumerate(((5, (4, 4)), (1, (5, 5)), (1, (6, 6)))):
        feeds = grouped_rows(length, last, seed)
        expected, k, v = session.run(None, {**feeds, "past_k": k, "past_v": v})
        same(steps(feeds)["y"], expected, 1e-5)
        for name, cache in (("past_k", k), ("past_v", v)):
            same(steps.states[name], cache)
    with pytest.raises(RunError, match=f"index {ROOM} is out of range"):
        steps(grouped_rows(1, (ROOM, 7), 9))
    steps.close()


def attend_over_protected_rows(library):
    """A step with all whole pages of each head's rows but the last ones protected."""
    faulthandler.disable()
    steps = library.stateful(initial=grouped_caches(1))
    keys = steps.states["past_k"]
    for head in keys[0]:
        first, last = -(-head.ctypes.data // PAGE) * PAGE, (head.ctypes.data + head.nbytes - 1) // PAGE * PAGE
        protect = ctypes.CDLL(None).mprotect
        assert protect(ctypes.c_void_p(first), ctypes.c_size_t(last - first), READ_ONLY) == 0
    steps(grouped_rows(1, (ROOM - 1,), 0))
    assert keys[0, :, -1].all()


def test_group_query_attention_writes_a_row_for_each_head(grouped):
    assert run_confined(lambda: attend_over_protected_rows(grouped[1])).status == 0


def test_the_operator_attention_keeps_its_cache_in_place(tmp_path):
    model = parsed(
        """attend (float[1, 4, n, 8] q, float[1, 2, n, 8] k, float[1, 2, n, 8] v, float[1, 2, past, 8] past_k,
            float[1, 2, past, 8] past_v)
        => (float[1, 4, n, 8] y, float[1, 2, total, 8] present_k, float[1, 2, total, 8] present_v) {
            y, present_k, present_v = Attention <is_causal = 1> (q, k, v, , past_k, past_v)
        }""",
        opset=23,
    )
    plain = onnxc.load(onnxc.compile(model, tmp_path / "plain.so"))
    path = onnxc.compile(model, tmp_path / "kept.so", states={"past_*": "present_*"})
    steps, past = onnxc.load(path).stateful(capacity=16), [np.zeros((1, 2, 0, 8), np.float32)] * 2
    for seed, length in enumerate((6, 1, 1)):
        rng = np.random.default_rng(seed)
        q = rng.standard_normal((1, 4, length, 8)).astype(np.float32)
        k, v = rng.standard_normal((2, 1, 2, length, 8)).astype(np.float32)
        expected, *past = plain(q, k, v, *past)
        same(steps({"q": q, "k": k, "v": v})["y"], expected, 1e-6)
        same(np.ascontiguousarray(steps.states["past_k"].transpose(1, 2, 0, 3)), past[0])
    steps.close()


PROGRAM = """
#include "average.h"

int main(void) {
    static float x[4] = {8, 8, 8, 8}, mean[4], old[4], out[4];
    onnxc_context *context;
    if (average_model()->inputs[1].state != 2 || average_model()->inputs[0].state != 0) return 1;
    if (average_model()->create(NULL, &context) != ONNXC_OK) return 2;
    for (int k = 0; k < 3; k++)
        if (average_run(context, x, mean, old, out, mean, old) != ONNXC_OK) return 3;
    if (mean[0] != 7 || mean[3] != 7 || old[1] != 13 || out[2] != 2) return 4;
    if (average_run(context, x, mean, old, out, old, mean) != ONNXC_OVERLAP) return 5;
    average_model()->destroy(context);
    return 0;
}
"""


def test_a_program_gives_one_memory_for_a_state_and_its_next_value(tmp_path):
    states = {"mean": "next", "old": "kept"}
    header = tmp_path / "average.h"
    onnxc.compile(parsed(AVERAGE), tmp_path / "average.o", states=states, header=header, name="average")
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    command = [*find_compiler(), f"-I{tmp_path}", source, tmp_path / "average.o", "-o", program]
    subprocess.run([*map(str, command), "-lm", "-pthread"], check=True)
    assert subprocess.run([program]).returncode == 0


# How they are named


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (
            {"past": "present_k"},
            "the model has no input 'past' to be a state; it has 'x', 'past_k', 'past_v'",
        ),
        ({"past_k": "present"}, "the model has no output 'present' to be a state; it has 'y', 'present_k'"),
        ({"pest_*": "present_*"}, "no input of the model matches 'pest_*'"),
        ({"past_k": "present_k", "past_v": "present_k"}, "one of the two has another already"),
        ({"past_k": "y"}, "they are not tensors of one element type and rank"),
    ],
)
def test_names_and_types_that_do_not_fit_are_refused_in_one_sentence(states, sentence, tmp_path):
    with pytest.raises(ModelError) as caught:
        onnxc.compile(decoder(), tmp_path / "m.so", states=states)
    assert sentence in str(caught.value)
    assert not (tmp_path / "m.so").exists()


def test_the_command_line_names_states(tmp_path, capsys):
    onnx.save(parsed(AVERAGE), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so")]
    assert main([*command, "--state", "mean=next"]) == 0
    assert "a state: output 1 is its next value" in (tmp_path / "m.h").read_text()
    assert main([*command, "--state", "meen=next"]) == 1
    assert "no input 'meen' to be a state" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--state", "mean"])


def test_check_and_inspect_take_the_states_that_compile_takes(tmp_path, capsys):
    onnx.save(parsed(AVERAGE), tmp_path / "m.onnx")
    for command in ("check", "inspect"):
        assert main([command, str(tmp_path / "m.onnx"), "--state", "mean=next"]) == 0
        capsys.readouterr()
        assert main([command, str(tmp_path / "m.onnx"), "--state", "meen=next"]) == 1
        said = capsys.readouterr()
        assert "no input 'meen' to be a state" in said.out + said.err
