"""Names: a prefix for any model's name, and hostile text in every place of a library."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.handmade_models import AFFINE, HERE, NOWHERE, Parts, cc, scale_bytes

from onnxc.codegen.library.header import c_string, model_header
from onnxc.codegen.library.interface import LibraryDescription, LoweredDescription, Port, symbol_prefix
from onnxc.loading.loader import load


@pytest.mark.parametrize(
    "name, prefix", [("resnet50", "resnet50"), ("resnet50-v1.5", "resnet50_v1_5"), ("Model 1", "Model_1")]
)
def test_ordinary_names_are_prefixes(name, prefix):
    assert symbol_prefix(name) == prefix


@pytest.mark.slow
@settings(max_examples=300)
@given(st.text(min_size=0, max_size=100), st.text(min_size=0, max_size=100))
def test_any_name_gives_an_identifier_and_hostile_ones_do_not_meet(one, other):
    first, second = symbol_prefix(one), symbol_prefix(other)
    assert first.isidentifier() and first.isascii() and len(first) <= 60 and first[0].isalpha()
    plain = {"-": "_", ".": "_", " ": "_"}
    if [plain.get(c, c) for c in one] != [plain.get(c, c) for c in other]:
        assert first != second


def test_any_text_survives_a_c_literal(tmp_path):
    texts = ["", "plain", 'a"b\\c??/d', "ü€😀", "1\t2\n3", "\x01\x7f9", "%s %n", "*/ //", "x" * 20000]
    lines = "".join(f"puts({c_string(t)});\n" for t in texts)
    (tmp_path / "a.c").write_text(f"#include <stdio.h>\nint main(void) {{\n{lines}}}\n", encoding="ascii")
    cc("-trigraphs", tmp_path / "a.c", "-o", tmp_path / "a")
    output = subprocess.run([tmp_path / "a"], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert output == "".join(f"{t}\n" for t in texts)


def test_hostile_names_in_every_place(tmp_path):
    evil = 'x"; system("false"); /* \\ ??/ */ \n%s%n é'
    description = replace(
        AFFINE,
        prefix=symbol_prefix(evil),
        name=evil,
        metadata={evil: evil},
        version=evil,
        inputs=tuple(replace(p, name=f"{p.name}{evil}", shape=(evil,) * len(p.shape)) for p in AFFINE.inputs),
        outputs=(replace(AFFINE.outputs[0], name=evil),),
        lowered=(replace(AFFINE.lowered[0], node_names=(evil,) * 3),),
        details={evil: evil},
    )
    parts = Parts(tmp_path / "work", HERE / "affine.c", description, scale_bytes(3))
    model = load(parts.link(tmp_path / "model.so"))
    assert (model.name, model.metadata, model.outputs[0].name) == (evil, {evil: evil}, evil)
    assert model([2], [1], NOWHERE) == 7
    with pytest.raises(Exception, match="index 0 is out of range"):
        model([2], [1], 0)


@pytest.mark.slow
def test_models_may_have_no_inputs_weights_or_metadata(tmp_path):
    (tmp_path / "constant.c").write_text("""
#include "internal.h"
ONNXC_HIDDEN int32_t constant__bind(onnxc_context *c, const onnxc_value *i) { return 0; }
ONNXC_HIDDEN int32_t constant__run(onnxc_context *c, const onnxc_value *i, onnxc_value *o) {
    float *y = c->api->output(c, o, 0, 0, 0);
    return y ? (*y = 42, 0) : 1;
}
""")
    description = LibraryDescription(
        prefix="constant",
        name="constant",
        version="test",
        inputs=(),
        outputs=(Port("y", "float32", ()),),
        lowered=(LoweredDescription(""),),
    )
    parts = Parts(tmp_path / "work", tmp_path / "constant.c", description, b"")
    model = load(parts.link(tmp_path / "model.so"))
    result = model.run(None, {})[0]
    assert (result.dtype, result.shape, float(result)) == (np.float32, (), 42)
    (tmp_path / "main.c").write_text(
        model_header(description)
        + """
int main(void) {
    onnxc_context *context;
    float y;
    return constant_model()->create(0, &context) || constant_run(context, &y) || y != 42;
}
"""
    )
    parts.link(tmp_path / "model.o")
    cc(tmp_path / "main.c", tmp_path / "model.o", "-o", tmp_path / "main", "-lm", "-pthread")
    subprocess.run([tmp_path / "main"], check=True)
