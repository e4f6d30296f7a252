"""Constants that are strings: as operands of every kind of node and as outputs, in a library, with a side
file and in an object. The oracle is onnx.reference."""

import subprocess

import numpy as np
import onnx.parser
import onnx.reference
import pytest
from support.small_models import parsed

import onnxc
from onnxc.codegen.library.compiler import find_compiler

OPERANDS = """
    strings (string[N] x, int64[M] at, bool[N] chosen, bool decision, int64[2] sizes, int64 rounds) => (
        bool[N] equal, string[M] gathered, string[K] joined, string[N] selected, string[2] branch,
        string[3] plain, string[A, B] shaped, string[C, D] repeated, string[E] padded, string[N] placed,
        string[1] carried, string[U] unique, float[2] number, string[F] listed) {
        words = Constant <value = string[4] {"abc", "", "d\u00e9f", "abc"}> ()
        abc = Constant <value = string[1] {"abc"}> ()
        other = Constant <value = string {"other"}> ()
        pair = Constant <value = string[2] {"1.5", "-2"}> ()
        plain = Constant <value = string[3] {"an", "output", ""}> ()
        equal = Equal (x, abc)
        gathered = Gather (words, at)
        joined = Concat <axis = 0> (x, words, abc)
        selected = Where (chosen, abc, other)
        branch = If (decision) <
            then_branch = yes () => (string[2] a) { a = Constant <value = string[2] {"then", "1"}> () },
            else_branch = no () => (string[2] b) { b = Identity (pair) }>
        shaped = Reshape (words, sizes)
        repeated = Expand (abc, sizes)
        padded = Pad (x, sizes, other)
        first = Constant <value = int64[1] {0}> ()
        placed = ScatterElements <axis = 0> (x, first, abc)
        go = Constant <value = bool {1}> ()
        carried = Loop (rounds, go, abc) <body = step (int64 i, bool c, string[1] before)
            => (bool again, string[1] after) {
            again = Identity (c)
            after = Constant <value = string[1] {"later"}> ()
        }>
        unique = Unique (words)
        number = Cast <to = 1> (pair)
        list = SequenceConstruct (x, words)
        listed = ConcatFromSequence <axis = 0> (list)
    }"""


def feeds(decision, rounds):
    return {
        "x": np.array(["abc", "", "\u00e9"], object),
        "at": np.array([2, -1, 0, 1]),
        "chosen": np.array([True, False, True]),
        "decision": np.array(decision),
        "sizes": np.array([2, 2]),
        "rounds": np.array(rounds),
    }


@pytest.mark.parametrize("side_file", [False, True])
def test_every_operand_may_be_a_constant_string(side_file, tmp_path):
    model = parsed(OPERANDS)
    weights = tmp_path / "model.weights" if side_file else None
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so", weights_file=weights))
    reference = onnx.reference.ReferenceEvaluator(model)
    for given in (feeds(True, 0), feeds(False, 2)):
        for port, got, expected in zip(
            compiled.outputs, compiled.run(None, given), reference.run(None, given), strict=True
        ):
            expected = np.asarray(expected)
            assert got.shape == expected.shape, port.name
            assert got.tolist() == expected.tolist(), port.name


def test_a_string_alone_is_found_in_tables_and_tensors_while_compiling(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 4]>
        alone (bool x) => (string a, string b, float c, bool d, bool e) {
            word = Constant <value = string {"ab"}> () number = Constant <value = int64 {1}> ()
            words = Constant <value = string[2] {"p", "q"}> () at = Constant <value = int64[1] {1}> ()
            a = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["p", "q"]> (number)
            b = GatherND (words, at)
            c = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "ab"], values_floats = [1.0, 2.0]> (word)
            d = Equal (b, word) e = Identity (x) }""")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    found = compiled.run(None, {"x": np.array(True)})
    assert [f.shape for f in found] == [()] * 5
    assert [f.tolist() for f in found] == ["q", "q", 2.0, False, True]


def test_results_keep_their_strings_when_the_library_is_gone(tmp_path):
    model = parsed('plain (bool x) => (string[2] y) { y = Constant <value = string[2] {"kept", "so"}> () }')
    with onnxc.load(onnxc.compile(model, tmp_path / "model.so")) as compiled:
        (result,) = compiled.run(None, {"x": np.array(True)})
    assert result.tolist() == ["kept", "so"]


def test_bytes_that_are_no_text_come_through(tmp_path):
    model = parsed(
        'odd (string[N] x) => (bool[N] y) { c = Constant <value = string[1] {"?"}> () y = Equal (x, c) }'
    )
    model.graph.node[0].attribute[0].t.string_data[0] = b"\xff\x00\xfe"
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    (result,) = compiled.run(None, {"x": np.array([b"\xff\x00\xfe", b"\xff"], object)})
    assert result.tolist() == [True, False]


PROGRAM = """
#include "words.h"
#include <string.h>

int main(void) {
    onnxc_context *contexts[2];
    int64_t at[] = {1, 0}, count = 2;
    for (int k = 0; k < 2; k++)
        if (words_model()->create(NULL, &contexts[k]) != ONNXC_OK) return 1;
    for (int k = 0; k < 2; k++) {
        onnxc_value in = {sizeof in, ONNXC_TENSOR, ONNXC_INT64, 1, &count, at, 0, 0, NULL};
        onnxc_value out = {sizeof out, 0, 0, 0, NULL, NULL, 0, 0, NULL};
        if (words_model()->run(contexts[k], &in, 1, &out, 1) != ONNXC_OK) return 2;
        words_model()->destroy(contexts[k]);
        const onnxc_string *text = out.data;
        if (text[0].length != 4 || memcmp(text[0].data, "much", 4) != 0) return 3;
        if (text[1].length != 6 || memcmp(text[1].data, "little", 6) != 0) return 4;
        words_model()->release(&out);
    }
    return 0;
}
"""


def test_a_program_with_the_model_in_it_finds_its_strings(tmp_path):
    model = parsed("""words (int64[N] at) => (string[N] y) {
        words = Constant <value = string[2] {"little", "much"}> ()
        y = Gather (words, at)
    }""")
    onnxc.compile(model, tmp_path / "words.o", header=tmp_path / "words.h", name="words")
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    command = [*find_compiler(), f"-I{tmp_path}", source, tmp_path / "words.o", "-o", program]
    subprocess.run([*map(str, command), "-lm", "-pthread"], check=True)
    assert subprocess.run([program]).returncode == 0
