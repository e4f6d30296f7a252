"""Registers know their types: what does not agree is refused where it is written."""

import pytest

from onnxc.codegen.text.emitter import Function, Text, splat, vector_constant
from onnxc.codegen.text.memory import first_lanes, store_lanes
from onnxc.codegen.text.shuffles import transpose
from onnxc.target import find_target


def written(body):
    text = Text(find_target("x86-64-v4"), Function)
    with text.function("f", ["ptr %a"]) as f:
        body(f)
    return str(text)


def test_an_instruction_takes_its_type_from_its_operands():
    def body(f):
        x = f.load("<4 x float>", "%a")
        y = f.binary("fadd", x, splat(1, "float32", 4))
        assert f.compare("slt", f.load("i32", "%a"), 0).type == "i1"
        assert f.cast("bitcast", y, "<4 x i32>").type == "<4 x i32>"
        assert f.extract(y, 2).type == "float"
        assert f.shuffle(y, "poison", [3, None]).type == "<2 x float>"
        assert f.compare("eq", vector_constant("i32", range(4)), f.load("<4 x i32>", "%a")).type == "<4 x i1>"

    assert "fadd <4 x float> %v1, splat (float 0x3FF0000000000000)" in written(body)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (lambda f, x: f.add(x, 1), "add: %v1 is <4 x float>, not i64"),
        (lambda f, x: f.binary("fadd", x, splat(1, "float32", 8)), "is <8 x float>, not <4 x float>"),
        (lambda f, x: f.binary("and", 1, 2), "and: none of 1, 2 has a type"),
        (lambda f, x: f.offset(x, 8), "getelementptr: %v1 is <4 x float>, not ptr"),
        (lambda f, x: f.store("i64", x, "%a"), "store: %v1 is <4 x float>, not i64"),
        (lambda f, x: f.branch_if(x, "a", "b"), "br: %v1 is <4 x float>, not i1"),
        (lambda f, x: f.select("true", "i64", x, "0"), "select: %v1 is <4 x float>, not i64"),
        (lambda f, x: f.intrinsic("smin", "i64", x, "0"), "smin: %v1 is <4 x float>, not i64"),
    ],
)
def test_operands_that_do_not_agree_are_refused_where_they_are_written(body, complaint):
    with pytest.raises(TypeError) as error:
        written(lambda f: body(f, f.load("<4 x float>", "%a")))
    assert complaint in str(error.value)


def test_what_a_loop_carries_keeps_its_type():
    def body(f):
        with f.loop(0, 4, carried=[("float", "0.0")]) as loop:
            assert (loop.index.type, loop.carried[0].type) == ("i64", "float")
            loop.carry(f.load("i64", "%a"))

    with pytest.raises(TypeError, match="phi: %v5 is i64, not float"):
        written(body)


def test_a_single_lane_is_stored_without_a_mask():
    """LLVM 22 stores the untruncated element where a truncation is merged into a masked store of one lane."""

    def body(f):
        value = f.cast("trunc", f.load("<4 x i32>", "%a"), "<4 x i8>")
        store_lanes(f, "uint8", value, "%a", 4, first_lanes(f, 1, 4))
        store_lanes(f, "uint8", value, "%a", 4, first_lanes(f, 2, 4))

    text = written(body)
    assert "store i8 %v3, ptr %a" in text
    assert text.count("call void @llvm.masked.store") == 1


def test_squares_side_by_side_are_transposed_by_the_shuffles_of_one():
    def body(f):
        rows = [f.load("<16 x i8>", "%a") for _ in range(4)]
        assert [row.type for row in transpose(f, rows)] == ["<16 x i8>"] * 4

    assert written(body).count("shufflevector") == 8


def test_a_square_with_rows_of_zeros_is_transposed_by_shuffles_alone():
    def body(f):
        rows = [f.load("<4 x i32>", "%a"), "zeroinitializer", f.load("<4 x i32>", "%a"), "zeroinitializer"]
        assert [row.type for row in transpose(f, rows)] == ["<4 x i32>"] * 4

    assert written(body).count("shufflevector") == 8


def test_either_computes_one_of_two():
    def body(f):
        positive = f.compare("sgt", f.load("i64", "%a"), "0", "i64")
        (found,) = f.either(positive, "float", lambda: [f.load("float", "%a")], lambda: ["1.0"])
        assert found.type == "float"
        f.store("float", found, "%a")

    text = written(body)
    assert "br i1 %v2, label %then3, label %else4" in text
    assert "phi float [%v6, %then3], [1.0, %else4]" in text
