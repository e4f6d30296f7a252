"""How long signals usually are, by what a graph makes of them."""

import pytest
from support.small_models import parsed

from onnxc.frontend.importer import import_model
from onnxc.ir import dims
from onnxc.options import DEFAULTS, Options

FRAMES = 128  # a usual length


def usual_shape(text, options=DEFAULTS):
    """Of the input x, which these nodes read."""
    (x,) = import_model(parsed(text), options).graph.inputs
    return tuple(map(dims.typical, x.shape))


def strided(x, stride, options=DEFAULTS):
    return usual_shape(
        f"""m (float[{x}] x) => (float y)
        <float[1, 1, 4] w = {{1, 2, 3, 4}}> {{ y = Conv <strides = [{stride}]> (x, w) }}""",
        options,
    )


def test_a_sound_has_a_usual_number_of_strides():
    assert strided("n, 1, samples", 160) == (1, 1, 160 * FRAMES)


def test_one_without_a_name_too():
    assert strided("n, 1, ?", 160) == (1, 1, 160 * FRAMES)


def test_strides_of_one_leave_a_usual_length():
    assert strided("n, 1, samples", 1) == (1, 1, FRAMES)


def test_a_stride_over_all_there_usually_is_tells_no_length():
    assert strided("n, 1, samples", 16000)[2] == 1024 * FRAMES


def test_the_user_s_word_comes_first():
    assert strided("n, 1, samples", 160, Options(typical={"samples": 999})) == (1, 1, 999)


def test_strides_one_after_the_other_multiply():
    text = """m (float[n, 1, samples] x) => (float y) {
        a = AveragePool <kernel_shape = [8], strides = [5]> (x)
        b = MaxPool <kernel_shape = [4], strides = [4]> (a)
        y = Relu (b)
    }"""
    assert usual_shape(text) == (1, 1, 20 * FRAMES)


@pytest.mark.parametrize("given, usual", [("float[2, n, 8]", 160), ("float[2, n, 16]", 160 * FRAMES)])
def test_one_that_comes_with_a_state_has_one_stride(given, usual):
    text = f"""m (float[n, 1, samples] x, float[2, n, 8] state) => (float y, {given} next)
    <float[1, 1, 4] w = {{1, 2, 3, 4}}> {{
        y = Conv <strides = [160]> (x, w)
        next = {"Tanh (state)" if given == "float[2, n, 8]" else "Concat <axis = 2> (state, state)"}
    }}"""
    x, _ = import_model(parsed(text), DEFAULTS).graph.inputs
    assert dims.typical(x.shape[2]) == usual


def test_one_that_comes_with_a_state_is_long_enough_for_its_windows():
    text = """m (float[n, 1, samples] x, float[2, n, 8] state) => (float y, float[2, n, 8] next) {
        a = AveragePool <kernel_shape = [400], strides = [160]> (x)
        y = MaxPool <kernel_shape = [5], strides = [2]> (a)
        next = Tanh (state)
    }"""
    x, _ = import_model(parsed(text), DEFAULTS).graph.inputs
    assert dims.typical(x.shape[2]) == 4 * 320


@pytest.mark.parametrize("shape, usual", [("samples", (256 * FRAMES,)), ("n, samples", (1, 256 * FRAMES))])
def test_frames_are_counted_where_sizes_are_computed(shape, usual):
    text = f"""m (float[{shape}] x) => (float y)
    <int64[2] frames = {{-1, 256}}, int64[1] zero = {{0}}, int64 hop = {{256}}, int64[1] flat = {{-1}}> {{
        all = Reshape (x, flat)
        size = Shape (all)
        count = Div (size, hop)
        used = Mul (count, hop)
        kept = Slice (all, zero, used)
        y = Reshape (kept, frames)
    }}"""
    assert usual_shape(text) == usual


@pytest.mark.parametrize(
    "shape, window, stride, usual",
    [
        ("n, 3, h, w", "2, 2", "32, 32", (1, 3, 224, 224)),
        ("n, 1, d, h, w", "2, 2, 2", "8, 8, 8", (1, 1, 128, 128, 128)),
    ],
)
def test_images_and_volumes_keep_their_usual_sizes(shape, window, stride, usual):
    pool = f"y = MaxPool <kernel_shape = [{window}], strides = [{stride}]> (x)"
    assert usual_shape(f"m (float[{shape}] x) => (float y) {{ {pool} }}") == usual


def test_what_is_picked_of_tokens_says_nothing():
    text = """m (int64[n, length] x) => (int64 y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, int64[1] end = {10000}> {
        y = Slice (x, zero, end, one, four)
    }"""
    assert usual_shape(text) == (1, 128)
