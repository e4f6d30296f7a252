"""Maps and sequences of maps, as outputs and inputs, in Python as ONNX Runtime has them and in C."""

import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.codegen.library.compiler import find_compiler
from onnxc.errors import RunError


def model(nodes, inputs, outputs, name="maps"):
    graph = helper.make_graph(nodes, name, inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def zip_maps():
    nodes = [
        node("ZipMap", ["x"], ["numbered"], classlabels_int64s=[7, 3, 5]),
        node("ZipMap", ["x"], ["named"], classlabels_strings=["a", "", "c"]),
        node("ZipMap", ["v"], ["one"], classlabels_int64s=[1, 2]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    return model(
        nodes, [x, helper.make_tensor_value_info("v", TensorProto.FLOAT, [2])], ["numbered", "named", "one"]
    )


def map_input(name, key, value):
    type_ = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None))
    return helper.make_value_info(name, type_)


def test_rows_become_dicts_as_in_onnxruntime(tmp_path):
    proto = zip_maps()
    compiled = onnxc.load(onnxc.compile(proto, tmp_path / "maps.so"))
    assert [(port.kind, port.key, port.dtype) for port in compiled.outputs[:2]] == [
        ("sequence", "int64", "float32"),
        ("sequence", "string", "float32"),
    ]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    kept = []
    for rows in (1, 3, 20, 0):  # few are read one by one, many at once
        x = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3) / 7
        feeds = {"x": x, "v": np.array([0.5, 2], np.float32)}
        found = compiled.run(None, feeds)
        if rows:
            assert found == session.run(None, feeds)
        kept.append((found, [dict(zip(["a", "", "c"], row)) for row in x.tolist()]))
    assert all(found[1] == named for found, named in kept)


def test_dicts_become_rows(tmp_path):
    nodes = [
        node("DictVectorizer", ["s"], ["words"], string_vocabulary=["b", "a", "none"]),
        node("DictVectorizer", ["i"], ["numbers"], int64_vocabulary=[5, -1]),
        node("CastMap", ["i"], ["dense"], cast_to="TO_INT64", map_form="DENSE"),
    ]
    inputs = [map_input(name, key, TensorProto.FLOAT) for name, key in (("s", 8), ("i", 7))]
    proto = model(nodes, inputs, ["words", "numbers", "dense"])
    compiled = onnxc.load(onnxc.compile(proto, tmp_path / "maps.so"))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {}
    for feeds in ({"s": {"a": 1.5, "x": 9.0}, "i": {5: 2.5, 1: -1.0}}, {"s": {"none": 1.0}, "i": {-1: 4.0}}):
        for found, wanted in zip(compiled.run(None, feeds), session.run(None, feeds), strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            assert found.tolist() == wanted.tolist()
    for wrong in (7, {"a": "text"}, {"a": [1.0]}):
        with pytest.raises(RunError, match="input 's'"):
            compiled.run(None, {**feeds, "s": wrong})


def test_texts_of_dicts_become_numbers(tmp_path):
    """ONNX Runtime cannot be given such a map from Python."""
    nodes = [
        node("CastMap", ["t"], ["sparse"], cast_to="TO_FLOAT", map_form="SPARSE", max_map=4),
        node("CastMap", ["t"], ["texts"], cast_to="TO_STRING", map_form="SPARSE", max_map=3),
        node("CastMap", ["t"], ["dense"], cast_to="TO_STRING"),
        node("DictVectorizer", ["t"], ["words"], int64_vocabulary=[7, 1]),
    ]
    proto = model(nodes, [map_input("t", 7, 8)], ["sparse", "texts", "dense", "words"])
    compiled = onnxc.load(onnxc.compile(proto, tmp_path / "maps.so"))
    found = compiled.run(None, {"t": {2: "0.5", 7: "1", 0: "-2"}})
    assert [array.tolist() for array in found] == [
        [[-2, 0, 0.5, 0]],
        [["-2", "0.f", "0.5"]],
        [["-2", "0.5", "1"]],
        [["1", ""]],
    ]
    with pytest.raises(RunError, match="value"):
        compiled.run(None, {"t": {-1: "1"}})


PROGRAM = """
#include "maps.h"
#include <string.h>

int main(void) {
    onnxc_context *context;
    float x[2][3] = {{1, 2, 3}, {4, 5, 6}}, v[2] = {7, 8};
    int64_t rows[] = {2, 3}, two = 2;
    if (maps_model()->create(NULL, &context) != ONNXC_OK) return 1;
    onnxc_value in[2] = {{sizeof *in, ONNXC_TENSOR, ONNXC_FLOAT32, 2, rows, x, 0, 0, NULL},
                         {sizeof *in, ONNXC_TENSOR, ONNXC_FLOAT32, 1, &two, v, 0, 0, NULL}};
    onnxc_value out[3] = {{sizeof *out}, {sizeof *out}, {sizeof *out}};
    if (maps_model()->run(context, in, 2, out, 3) != ONNXC_OK) return 2;
    maps_model()->destroy(context);
    if (out[1].kind != ONNXC_SEQUENCE || out[1].dims[0] != 2) return 3;
    const onnxc_value *map = (const onnxc_value *)out[1].data + 1;
    if (map->kind != ONNXC_MAP || map->rank != 1 || map->dims[0] != 2) return 4;
    const onnxc_value *keys = map->data, *values = keys + 1;
    const onnxc_string *names = keys->data;
    const float *scores = values->data;
    if (keys->dtype != ONNXC_STRING || keys->dims[0] != 3 || *names[2].data != 'c') return 5;
    if (values->dtype != ONNXC_FLOAT32 || values->dims[0] != 3 || scores[2] != 6) return 6;
    for (int k = 0; k < 3; k++) maps_model()->release(&out[k]);
    return 0;
}
"""


def test_a_program_reads_maps(tmp_path):
    onnxc.compile(zip_maps(), tmp_path / "maps.o", header=tmp_path / "maps.h", name="maps")
    assert "sequence of maps from string to float32" in (tmp_path / "maps.h").read_text()
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    command = [*find_compiler(), f"-I{tmp_path}", source, tmp_path / "maps.o", "-o", program]
    subprocess.run([*map(str, command), "-lm", "-pthread"], check=True)
    assert subprocess.run([program]).returncode == 0
