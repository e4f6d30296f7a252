"""attend_inputs: few queries attend to what keys and values are made of, many to keys and values."""

import numpy as np
import pytest
from support.pass_text import agrees, clean

from onnxc.passes.attend_inputs import attend_inputs
from onnxc.passes.eliminate_dead import eliminate_dead

RANDOM = np.random.default_rng(3)
SHAPES = {"u": (6, 32), "w": (6, 32), "c": 32, "d": 32}
NUMBERS = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def network(queries=1, key="%0", value="%1", mask="", q="aqbd", out="abqe", returned="%y"):
    sizes = {"a": "n", "b": 2, "q": queries, "d": 16, "g": 3}
    query = ", ".join(str(sizes[label]) for label in q)
    masks = "%m: float32[n, 1, 1, s], %h: float32[2, 1, s], %t: float32[2, s]"
    return f"""graph g(%x: float32[n, s, 6], %q: float32[{query}], {masks}) {{
    %u = constant float32[6, 32] #u
    %w = constant float32[6, 32] #w
    %c = constant float32[32] #c
    %d = constant float32[32] #d
    %0 = contract(%x, %u) lhs=amk rhs=kn out=amn accumulate=float32
    %1 = contract(%x, %w) lhs=amk rhs=kn out=amn accumulate=float32
    %2 = map(%0, %c) {{ add($0, $1) }}
    %3 = map(%d, %1) {{ add($0, $1) }}
    %k = reshape({key}) shape=(n, s, 2, 16)
    %v = reshape({value}) shape=(n, s, 2, 16)
    %y = attention(%q, %k, %v{mask}) scale=0.5 q={q} k=akbd v=akbe out={out}
    return {returned}
}}"""


def attended(text, tokens=300):
    """The lengths of what the queries attend to; results are what they were."""
    found = agrees(
        lambda graph: clean(attend_inputs)(eliminate_dead(graph)),
        text,
        NUMBERS,
        tolerance=1e-5,
        n=2,
        s=tokens,
    )
    (node,) = [n for n in found.nodes if type(n.op).__name__ == "Attention"]
    return [v.shape[-1] for v in node.inputs[1:3]]


@pytest.mark.parametrize(("key", "value"), [("%0", "%1"), ("%2", "%1"), ("%0", "%3"), ("%2", "%3")])
@pytest.mark.parametrize("mask", ["", ", %m"])
def test_one_query_attends_to_the_tokens(key, value, mask):
    assert attended(network(key=key, value=value, mask=mask)) == [6, 6]


@pytest.mark.parametrize(("q", "out"), [("aqbd", "aqbe"), ("abqd", "abqe"), ("abqd", "aqbe")])
def test_heads_may_lie_on_either_side_of_queries(q, out):
    assert attended(network(2, value="%3", q=q, out=out)) == [6, 6]


def test_a_bias_of_values_is_not_added_where_there_are_no_tokens():
    assert attended(network(value="%3"), tokens=0) == [6, 6]


def test_queries_of_several_batches_over_the_same_tokens_attend_to_keys():
    assert attended(network(q="gaqbd", out="gaqbe")) == [16, 16]


def test_many_queries_attend_to_keys():
    assert attended(network(8)) == [16, 16]


@pytest.mark.parametrize("mask", [", %h", ", %t"])
def test_scores_that_differ_from_head_to_head_or_query_to_query_stay(mask):
    assert attended(network(2, mask=mask)) == [16, 16]


@pytest.mark.parametrize("returned", ["%y, %0", "%y, %k"])
def test_keys_that_others_read_stay(returned):
    assert attended(network(returned=returned)) == [16, 16]
