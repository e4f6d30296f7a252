"""Attention on registers that hold matrices against the interpreter, within what bfloat16s lose; where the
machine lacks them, their assembly."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import attention, attention_matrix
from onnxc.ir import dims
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Attention
from onnxc.target import TARGETS, runs_here

TARGET = TARGETS["sapphirerapids"]
HEADS_INSIDE = ("bqhd", "bkhd", "bkhe", "bqhe")  # as a projection writes them, nothing transposed


def node_of(queries, keys, depth, extent, forms=(), bias=None, symbolic="", defined=False):
    """symbolic: the labels whose sizes the run tells; "=" makes queries and keys the same."""
    op = Attention(0.25, *forms, narrow=True, defined=defined)
    sizes = {"b": 2, "h": 2, "q": queries, "k": keys, "d": depth, "e": extent}
    random = np.random.default_rng([queries, keys, depth])
    labels = [op.q, op.k, op.v, *([bias] if bias is not None else [])]
    shapes = [[1 if x.isupper() else sizes[x] for x in text] for text in labels]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    named = {"k": "q"} if "=" in symbolic else {}
    types = [
        tuple(dims.symbol(named.get(x, x)) if x in symbolic else n for x, n in zip(text, shape))
        for text, shape in zip(labels, shapes)
    ]
    return make_node(op, [Value(TensorType("float32", type_)) for type_ in types]), arrays


def check(*sizes, masked=0.0, **options):
    node, arrays = node_of(*sizes, **options)
    if masked:
        arrays[3][np.random.default_rng(1).random(arrays[3].shape) < masked] = -np.inf
    (choice,) = choices_of(attention_matrix, node, TARGET)
    if not runs_here(TARGET):
        (step,) = attention_matrix.emit(node, choice, TARGET).steps
        assert "tdpbf16ps" in harness.assembly(step.text, TARGET)
        return
    env = {"q": sizes[0], "b": 2}
    ((got, _),) = harness.run_choice(node, choice, arrays, TARGET, env)
    with np.errstate(all="ignore"):
        (expected,) = run_node(node, arrays, env)
    np.testing.assert_allclose(got, expected, atol=0.03)


@pytest.mark.parametrize("queries", [1, 16, 17, 33, 150])
def test_any_number_of_queries(queries):
    check(queries, 40, 32, 32)


def test_any_number_of_keys_and_depths():
    for keys, depth, extent in ((1, 32, 32), (33, 8, 16), (70, 64, 64), (31, 40, 100), (300, 33, 7)):
        check(20, keys, depth, extent)


def test_heads_inside_and_a_bias():
    check(21, 50, 32, 48, forms=HEADS_INSIDE)
    for bias in ("qk", "BHQk", "bhqK", "hqk"):
        check(21, 50, 32, 32, bias=bias, forms=HEADS_INSIDE)


def test_keys_that_a_mask_hides_count_for_nothing():
    check(21, 50, 32, 32, bias="BHQk", masked=0.5)
    check(21, 50, 32, 32, bias="BHqk", masked=0.97, defined=True)


@pytest.mark.parametrize("tokens", [1, 17, 70, 512, 530])
def test_a_sequence_whose_length_the_run_tells(tokens):
    check(tokens, tokens, 32, 32, symbolic="=bqk")
    check(tokens, tokens, 24, 40, symbolic="=qk", forms=HEADS_INSIDE, bias="bhqk", masked=0.3)


def test_its_work_follows_queries_times_keys():
    node, _ = node_of(64, 64, 32, 32, symbolic="=bqk")
    (choice,) = choices_of(attention_matrix, node, TARGET)
    (step,) = attention_matrix.emit(node, choice, TARGET).steps
    short, long = (dims.evaluate(step.work, {"b": 1, "q": tokens}) for tokens in (256, 1024))
    assert long == pytest.approx(16 * short, rel=0.2)


def test_more_keys_than_one_block_has():
    check(40, 1100, 32, 32)
    check(3, 1030, 32, 32, bias="BHQk", masked=0.5)


def test_what_the_op_does_not_allow_and_few_queries_of_many_keys_are_left_to_others():
    node, _ = node_of(64, 64, 32, 32)
    wide = make_node(replace(node.op, narrow=False), node.inputs)
    symbolic, _ = node_of(64, 64, 32, 32, symbolic="qk")
    for other in (wide, symbolic):
        assert not choices_of(attention_matrix, other, TARGET)
        assert choices_of(attention, other, TARGET)


def test_it_is_chosen_for_many_rows():
    node, _ = node_of(128, 128, 32, 32)
    offers = [*choices_of(attention, node, TARGET), *choices_of(attention_matrix, node, TARGET)]
    assert min(offers, key=lambda offer: offer.time).kernel is attention_matrix
