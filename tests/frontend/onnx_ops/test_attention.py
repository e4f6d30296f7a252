"""FlexAttention: attention whose scores and probabilities graphs change."""

import numpy as np
import onnx.parser
import pytest
from onnx import helper
from support.interpreting import close, normal
from support.one_node import evaluate

from onnxc.diagnostics import ModelErrors

Q, K, V = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
OPSETS = '"" : 23, "ai.onnx.preview" : 1'
SIZES = "float[N, 4, L, 8] q, float[N, 2, S, 8] k, float[N, 2, S, 6] v"
ADDS = """m (float[] s) => (float[] r) <float "/a.b/c" = {0.5}, float "7" = {2}> {
    t = Mul (s, "7")
    r = Add (t, "/a.b/c")
}"""
CAPTURES = 'm (float[] s) => (float[] r) { r = Mul (s, "out/er") }'
#: The branches read the scores, a value around the node, and what has the name of one around them.
NESTS = """m (float[] s) => (float[] r) <float c = {2}, bool yes = {1}> {
    r = If (yes) <
        then_branch = t () => (float[] u) <float c = {3}> { w = Mul (s, c) u = Add (w, "out/er") },
        else_branch = e () => (float[] u) { u = Add (s, c) }
    >
}"""
WRONG = {
    r"float32\[4, L, S\]": (
        "m (float[] s) => (float[] r) <int64[1] a = {0}> { r = ReduceMax <keepdims = 0> (s, a) }"
    ),
    "float64": "m (float[] s) => (double[] r) { r = Cast <to = 11> (s) }",
}


def flex(**graphs):
    given = ", ".join(f"{name} = {text}" for name, text in graphs.items())
    return (
        f'"out/er" = Constant <value = float {{4}}> () y = ai.onnx.preview.FlexAttention <{given}> (q, k, v)'
    )


def model(nodes):
    return onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{OPSETS}]> g ({SIZES}) => (float[] y) {{ {nodes} }}"
    )


def expected(scores=lambda s: s, chances=lambda p: p):
    k, v = (np.repeat(x.astype(np.float64), 2, axis=1) for x in (K, V))
    products = scores(Q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(8))
    powers = np.exp(products - products.max(3, keepdims=True))
    return (chances(powers / powers.sum(3, keepdims=True)) @ v).astype(np.float32)


@pytest.mark.parametrize(
    ("graphs", "wanted"),
    [
        ({"scale": "0.35355339"}, expected()),
        ({"score_mod": ADDS}, expected(lambda s: 2 * s + 0.5)),
        ({"prob_mod": ADDS}, expected(chances=lambda p: 2 * p + 0.5)),
        ({"score_mod": CAPTURES}, expected(lambda s: 4 * s)),
        ({"score_mod": CAPTURES, "prob_mod": CAPTURES}, expected(lambda s: 4 * s, lambda p: 4 * p)),
        ({"score_mod": NESTS}, expected(lambda s: 3 * s + 4)),
    ],
)
def test_graphs_change_scores_and_probabilities(graphs, wanted):
    close(evaluate(model(flex(**graphs)), [Q, K, V])[0], wanted)


def test_graphs_change_them_inside_a_function():
    call = model("y = local.Flex (q, k, v)")
    call.opset_import.append(helper.make_opsetid("local", 1))
    body = model(flex(score_mod=NESTS, prob_mod=ADDS))
    call.functions.append(
        helper.make_function("local", "Flex", ["q", "k", "v"], ["y"], body.graph.node, body.opset_import)
    )
    wanted = expected(lambda s: 3 * s + 4, lambda p: 2 * p + 0.5)
    close(evaluate(call, [Q, K, V])[0], wanted)


@pytest.mark.parametrize("precision", [1, 11])
def test_graphs_have_the_precision_of_the_softmax(precision):
    kind = {1: "float", 11: "double"}[precision]
    exact = f"m ({kind}[] s) => ({kind}[] r) {{ r = Mul (s, s) }}"
    proto = model(flex(prob_mod=exact, softmax_precision=precision))
    close(evaluate(proto, [Q, K, V])[0], expected(chances=lambda p: p * p))


@pytest.mark.parametrize("reason", WRONG)
def test_graphs_that_give_another_type_are_refused(reason):
    with pytest.raises(ModelErrors, match=f"the graph that changes the scores .* gives {reason}"):
        evaluate(model(flex(score_mod=WRONG[reason])), [Q, K, V])
