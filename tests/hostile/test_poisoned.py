"""A run reads nothing that neither it nor the caller wrote, and writes nothing but its results: in memory
full of garbage, with a gap after every buffer, models give the bits that they always give. The backend suite
(tests/conformance) runs every operator in garbage too."""

from unittest import mock

import numpy as np
import pytest
from support import faults, poison, small_models
from support.handmade_models import AFFINE, build, scale_bytes

import onnxc


def image(batch, height, width):
    return {"image": np.random.default_rng(0).standard_normal((batch, 3, height, width)).astype(np.float32)}


def tokens(batch, length):
    ids = np.arange(batch * length).reshape(batch, length) % small_models.WORDS
    return {"ids": ids, "mask": np.ones((batch, length), np.int64)}


MODELS = {
    **{name: (small_models.parsed(text), runs) for name, (text, runs) in faults.MODELS.items()},
    "images": (small_models.images(), [image(1, 9, 8), image(3, 33, 17), image(1, 8, 8)]),
    "text": (small_models.text(), [tokens(1, 3), tokens(3, 37), tokens(2, 2)]),
}


@pytest.fixture(scope="module", params=MODELS)
def library(request, tmp_path_factory):
    """(path, inputs of its runs) of each model."""
    model, runs = MODELS[request.param]
    return onnxc.compile(model, tmp_path_factory.mktemp(request.param) / "model.so"), runs


def test_garbage_in_memory_changes_nothing(library):
    path, runs = library
    assert [poison.unlike_poisoned(path, feeds) for feeds in runs] == [""] * len(runs)


def test_what_earlier_runs_left_changes_nothing(library):
    path, runs = library
    with onnxc.load(path, threads=2) as used:
        for feeds in (*runs, *reversed(runs)):
            with onnxc.load(path, threads=1) as fresh:
                assert poison.same_bits(used.run(None, feeds), fresh.run(None, feeds))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_written_between_buffers(name, tmp_path):
    model, runs = MODELS[name]
    with poison.apart() as plans:
        path = onnxc.compile(model, tmp_path / "model.so")
    assert [poison.unlike_poisoned(path, feeds, plan=plans[0]) for feeds in runs] == [""] * len(runs)


# The checks themselves


def test_a_write_beyond_a_buffer_is_noticed(tmp_path):
    plan_memory = poison.planning.plan_memory

    def shrunk(graph, codes):
        plan = plan_memory(graph, codes)
        for buffer in plan.buffers:
            buffer.nbytes = buffer.nbytes - 4
        return plan

    with mock.patch.object(poison.planning, "plan_memory", shrunk), poison.apart() as plans:
        path = onnxc.compile(MODELS["chain"][0], tmp_path / "model.so")
    problem = poison.unlike_poisoned(path, MODELS["chain"][1][0], plan=plans[0])
    assert "byte 0 after buffer" in problem and "was written" in problem


@pytest.mark.slow
def test_a_read_of_what_nobody_wrote_is_noticed(tmp_path):
    source = tmp_path / "source.c"
    source.write_text("""
        #include "internal.h"
        int32_t affine__bind(onnxc_context *context, const onnxc_value *inputs) {
            context->dims[0] = inputs[0].dims[0];
            context->sizes[0] = context->sizes[1] = 64;
            return 0;
        }
        int32_t affine__run(onnxc_context *context, const onnxc_value *inputs, onnxc_value *outputs) {
            char *y = context->api->output(context, outputs, 0, 1, context->dims);
            for (int64_t i = 0; y && i < 4 * context->dims[0]; i++) y[i] = context->arena[i];
            return y == 0;
        }""")
    path = build(tmp_path, source, AFFINE, scale_bytes(1))
    x = np.ones(5, np.float32)
    problem = poison.unlike_poisoned(path, {"x": x, "b": x, "fail_at": np.int64(0)})
    assert problem == "output 0 differs, memory full of 0xff, 1 threads"
