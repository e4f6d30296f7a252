"""fuse_attention: what the exporters write for attention becomes one node, and what only looks like it
does not."""

import re

import numpy as np
import pytest
from support.pass_text import agrees, array, becomes, clean, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.fuse_attention import fuse_attention

ATTENTION = """graph g(%q: float32[b, s, 4, 8], %k: float32[b, t, 4, 8], %v: float32[b, t, 4, 16],
                        %mask: bool[b, 1, 1, t], %bias: float32[4, s, t]) {
    %0 = contract(%q, %k) lhs=bqhd rhs=bkhd out=bhqk accumulate=float32
    %1 = map(%0, %mask, %bias) { SCORES }
    %2 = reduce(%1) kind=max axes=(3) keepdims=true
    %3 = map(%1, %2) { exp(sub($0, $1)) }
    %4 = reduce(%3) kind=sum axes=(3) keepdims=true
    %5 = map(%3, %4) { div($0, $1) }
    %6 = contract(%5, %v) lhs=xyqk rhs=xkye out=xqye accumulate=float32
    return %6
}"""
HEAD = ATTENTION[: ATTENTION.index("{") + 1]


def found_attention(scores="mul($0, 0.5)", tolerance=2e-6, text=ATTENTION, **sizes):
    """What the pass makes of the scores, after a comparison of the results; the mask hides no whole row."""
    b, s, t = (sizes.get(name, size) for name, size in (("b", 2), ("s", 3), ("t", 5)))
    random = np.random.default_rng(1)
    mask = array(random, "bool", (sizes.get("c", b), 1, 1, sizes.get("m", t)))
    mask[..., :1] = True
    shapes = ((b, s, 4, 8), (b, t, 4, 8), (b, t, 4, 16))
    inputs = [array(random, "float32", shape) for shape in (*shapes, (4, s, t))]
    inputs.insert(3, mask)
    return agrees(
        clean(fuse_attention),
        text.replace("SCORES", scores),
        inputs=inputs,
        tolerance=tolerance,
        **{**sizes, "b": b, "s": s, "t": t},
    )


def test_attention_is_found_behind_a_scale_and_a_mask():
    becomes(
        clean(fuse_attention),
        ATTENTION.replace("SCORES", "select($1, mul($0, 0.5), -inf:float32)"),
        HEAD
        + """
        %0 = map(%mask) { select($0, 0.0:float32, -inf:float32) }
        %1 = attention(%q, %k, %v, %0) scale=0.5 q=aqbd k=akbd v=akbe out=aqbe
        return %1
    }""",
    )


@pytest.mark.parametrize(
    "whole, spared",
    [
        (("%k: float32[1, ", "rhs=bkhd"), ("%k: float32[", "rhs=khd")),
        (("%v: float32[1, ", "rhs=xkye"), ("%v: float32[", "rhs=kye")),
    ],
)
def test_a_batch_of_one_may_be_spared_in_keys_or_values(whole, spared):
    """As products spare it in their second operand."""
    text = ATTENTION.replace("[b, ", "[1, ").replace("SCORES", "mul($0, 0.5)")
    for a, b in zip(whole, spared, strict=True):
        text = text.replace(a, b)
    assert ops(clean(fuse_attention)(parse(text))) == ["Reshape", "Attention"]


def test_attention_without_a_bias_has_three_operands():
    becomes(
        clean(fuse_attention),
        ATTENTION.replace("SCORES", "div($0, 2.0)"),
        HEAD
        + """
        %1 = attention(%q, %k, %v) scale=0.5 q=aqbd k=akbd v=akbe out=aqbe
        return %1
    }""",
    )


@pytest.mark.parametrize(
    "scores, body",
    [
        ("add(mul($0, 0.5), $2)", "$0"),
        ("add($2, div($0, 2.0))", "$0"),
        ("mul(add($0, $2), 0.5)", "mul($0, 0.5)"),
        (
            "add(mul($0, 0.5), mul(sub(1.0, cast($1, float32)), -10000.0))",
            "mul(sub(1.0, cast($0, float32)), -10000.0)",
        ),
        ("select($1, add(mul($0, 0.5), $2), -3.4028235e+38:float32)", "select($0, $1, -3.4028235e+38)"),
        (
            "select(not($1), -3e+38:float32, select($1, mul($0, 0.5), -3e+38:float32))",
            "select(not($0), -3e+38, select($0, 0.0:float32, -3e+38:float32))",
        ),
        ("mul(select($1, add($0, $2), -inf:float32), 0.5)", "mul(select($0, $1, -inf), 0.5)"),
        ("select(not($1), -inf:float32, $0)", "select(not($0), -inf:float32, 0.0:float32)"),
        ("add(select($1, mul($0, 0.5), -inf:float32), $2)", "add($1, select($0, 0.0:float32, -inf:float32))"),
    ],
)
def test_what_is_added_or_masked_becomes_a_bias(scores, body):
    found = found_attention(scores)
    assert ops(found) == ["Map", "Attention"]
    assert str(found.nodes[0].op.body) == body


@pytest.mark.parametrize(
    "scores",
    [
        "select($1, tanh($0), -inf:float32)",
        "select($1, $0, 0.0:float32)",
        "select(gt($0, 0.0), $0, -inf:float32)",
        "mul($0, $2)",
        "mul($0, $0)",
        "add($0, mul($0, $2))",
        "div(1.0, $0)",
        "sub($2, $0)",
        "max($0, $2)",
        "mul(select($1, $0, -inf:float32), -0.5)",
    ],
)
def test_scores_that_are_not_scaled_and_shifted_alone_are_no_attention(scores):
    stays(clean(fuse_attention), ATTENTION.replace("SCORES", scores))


@pytest.mark.parametrize(
    "what, instead",
    [
        ("kind=max", "kind=min"),
        ("div($0, $1)", "div($1, $0)"),
        ("exp(sub($0, $1))", "exp(sub($1, $0))"),
        ("reduce(%3) kind=sum axes=(3)", "reduce(%3) kind=sum axes=(2)"),
        ("reduce(%3)", "reduce(%0)"),
        ("lhs=xyqk rhs=xkye", "lhs=xykq rhs=xkye"),
        ("return %6", "return %6, %5"),
        ("return %6", "return %6, %0"),
        ("return %6", "%7 = map(%5) { neg($0) } return %6, %7"),
    ],
)
def test_what_is_not_quite_attention_stays(what, instead):
    text = ATTENTION.replace("SCORES", "mul($0, 0.5)").replace(what, instead)
    if "axes=(2)" in instead or "kq" in instead:
        text = text.replace("[b, s, 4, 8]", "[b, t, 4, 8]").replace("[4, s, t]", "[4, t, t]")
    stays(clean(fuse_attention), text)


def test_a_row_that_is_masked_whole_keeps_its_result():
    text = ATTENTION.replace("SCORES", "select($1, mul($0, 0.5), -3.4028235e+38:float32)")
    random = np.random.default_rng(1)
    inputs = [array(random, "float32", shape) for shape in ((1, 3, 4, 8), (1, 5, 4, 8), (1, 5, 4, 16))]
    inputs += [np.zeros((1, 1, 1, 5), bool), np.zeros((4, 3, 5), np.float32)]
    agrees(clean(fuse_attention), text, inputs=inputs, tolerance=2e-6, b=1, s=3, t=5)


@pytest.mark.parametrize("lowest", ["-3.4028235e+38", "-1e+30"])
@pytest.mark.parametrize(
    "hidden", ["select($1, mul($0, 0.5), LOW)", "add(mul($0, 0.5), select($1, 0.0:float32, LOW))"]
)
def test_keys_that_are_hidden_twice_are_so_once(lowest, hidden):
    """Of rows all of whose keys are hidden, some by one mask, some by both."""
    scores = f"select(gt($2, 0.5), {hidden}, LOW)".replace("LOW", f"{lowest}:float32")
    random = np.random.default_rng(1)
    inputs = [array(random, "float32", shape) for shape in ((1, 3, 4, 8), (1, 5, 4, 8), (1, 5, 4, 16))]
    inputs += [np.array([False, False, False, True, True]).reshape(1, 1, 1, 5)]
    inputs += [np.broadcast_to(np.tri(3, 5, dtype=np.float32), (4, 3, 5))]
    found = agrees(
        clean(fuse_attention),
        ATTENTION.replace("SCORES", scores),
        inputs=inputs,
        tolerance=2e-6,
        b=1,
        s=3,
        t=5,
    )
    assert ops(found) == ["Map", "Attention"]


def test_scales_beyond_what_numbers_hold_stay_where_they_are():
    for factor in ("1e+20", "1e-20"):
        scores = f"mul($0, {factor}:float32)"
        stays(clean(fuse_attention), ATTENTION.replace("SCORES", scores))


@pytest.mark.parametrize(
    "body", ["map(%5) { select(isnan($0), 0.0:float32, $0) }", "map(%8, %5) { select($0, 0.0:float32, $1) }"]
)
def test_weights_that_are_no_numbers_may_be_zeros(body):
    first = "%8 = map(%5) { isnan($0) }\n" if "%8" in body else ""
    scores = "select($1, mul($0, 0.5), -inf:float32)"
    text = ATTENTION.replace("%6 = contract(%5,", f"{first}%7 = {body}\n%6 = contract(%7,")
    found = found_attention(scores, text=text)
    assert ops(found) == ["Map", "Attention"]
    assert found.nodes[1].op.defined
    stays(clean(fuse_attention), text.replace("0.0:float32, $", "1.0:float32, $").replace("SCORES", scores))


def test_numbers_before_the_scores_join_the_scale():
    text = ATTENTION.replace(
        "%0 = contract(%q, %k)",
        """%7 = map(%q) { mul($0, 0.5) }
    %8 = map(%k) { div($0, 4.0) }
    %0 = contract(%7, %8)""",
    )
    found = found_attention("mul($0, 2.0)", text=text)
    assert ops(found) == ["Attention"]
    assert found.nodes[0].op.scale == 0.25


def test_a_negative_number_before_the_scores_stays_there():
    text = ATTENTION.replace("%0 = contract(%q, %k)", "%7 = map(%q) { mul($0, -0.5) } %0 = contract(%7, %k)")
    found = found_attention("$0", text=text)
    assert ops(found) == ["Map", "Attention"]
    assert found.nodes[1].op.scale == 1.0


def test_keys_may_come_first():
    text = ATTENTION.replace("contract(%q, %k) lhs=bqhd rhs=bkhd", "contract(%k, %q) lhs=bkhd rhs=bqhd")
    assert ops(found_attention(text=text)) == ["Attention"]


def test_values_may_come_first():
    text = ATTENTION.replace("contract(%5, %v) lhs=xyqk rhs=xkye", "contract(%v, %5) lhs=xkye rhs=xyqk")
    assert ops(found_attention(text=text)) == ["Attention"]


def test_the_power_may_be_a_map_of_its_own():
    text = ATTENTION.replace("{ exp(sub($0, $1)) }", "{ sub($0, $1) } %7 = map(%3) { exp($0) }")
    text = text.replace("reduce(%3)", "reduce(%7)").replace("map(%3, %4)", "map(%7, %4)")
    assert ops(found_attention(text=text)) == ["Attention"]


def test_a_mask_shared_by_layers_is_computed_by_one_map_each():
    one = ATTENTION.replace("SCORES", "select($1, mul($0, 0.5), -inf:float32)")
    nodes = one[one.index("{") + 1 : one.rindex("return")]
    again = re.sub(r"%(\d)", r"%1\1", nodes)
    text = one.replace("return %6", f"{again} return %6, %16")
    assert ops(found_attention(text=text)) == ["Map", "Attention", "Map", "Attention"]


@pytest.mark.parametrize("b, s, t", [(1, 1, 1), (0, 3, 5), (2, 0, 5), (3, 7, 2)])
def test_attention_means_the_same_at_every_size(b, s, t):
    scores = "select($1, add(mul($0, 0.125), $2), -3.4028235e+38:float32)"
    assert "Attention" in ops(found_attention(scores, b=b, s=s, t=t))


def test_attention_of_another_type_stays():
    stays(clean(fuse_attention), ATTENTION.replace("SCORES", "mul($0, 0.5)").replace("float32", "float64"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_rounded_on_the_way_is_attention_of_wider_numbers(dtype):
    text = f"""graph g(%q: float32[2, 3, 8], %k: float32[2, 5, 8], %v: float32[2, 5, 4], %b: {dtype}[3, 5]) {{
        %0 = contract(%q, %k) lhs=bqd rhs=bkd out=bqk accumulate=float32
        %1 = map(%0) {{ cast($0, {dtype}) }}
        %2 = map(%1, %b) {{ add(mul($0, 0.5), $1) }}
        %3 = reduce(%2) kind=max axes=(2) keepdims=true
        %4 = map(%2, %3) {{ exp(sub(cast($0, float32), cast($1, float32))) }}
        %5 = reduce(%4) kind=sum axes=(2) keepdims=true
        %6 = map(%4, %5) {{ cast(div($0, $1), {dtype}) }}
        %7 = map(%6) {{ cast($0, float32) }}
        %8 = contract(%7, %v) lhs=bqk rhs=bke out=bqe accumulate=float32
        return %8
    }}"""
    found = agrees(clean(fuse_attention), text, tolerance=3e-2)
    assert ops(found) == ["Map", "Attention"]


def test_attention_in_a_branch_is_found():
    inputs = HEAD[HEAD.index("(") + 1 : HEAD.rindex(")")]
    lines = ATTENTION[ATTENTION.index("{") + 1 :].replace("SCORES", "mul($0, 0.5)")
    text = f"""graph g(%c: bool[], {inputs}) {{
        %r = if(%c, %q, %k, %v, %mask, %bias) then=({inputs}) {{ {lines} otherwise=({inputs}) {{
            %0 = constant float32[] (0.0)
            %1 = broadcast(%0) shape=(b, s, 4, 16)
            return %1
        }} : float32[b, s, 4, 16]
        return %r
    }}"""
    found = clean(fuse_attention)(parse(text))
    assert ops(found.nodes[0].op.then) == ["Attention"]


def test_an_axis_that_only_the_keys_have_is_no_attention():
    stays(
        clean(fuse_attention),
        """graph g(%q: float32[3, 2, s, d], %k: float32[3, 1, 2, t, 5], %v:
            float32[3, 2, t, 5]) {
        %0 = contract(%q, %k) lhs=abmk rhs=acbnk out=abmn accumulate=float32
        %2 = reduce(%0) kind=max axes=(3) keepdims=true
        %3 = map(%0, %2) { exp(sub($0, $1)) }
        %4 = reduce(%3) kind=sum axes=(3) keepdims=true
        %5 = map(%3, %4) { div($0, $1) }
        %6 = contract(%5, %v) lhs=abmk rhs=abkn out=abmn accumulate=float32
        return %6
    }""",
    )


@pytest.mark.parametrize("depth, extent", [("d", "e"), ("d", "64"), ("64", "e")])
def test_attention_over_heads_of_an_open_length_stays_products(depth, extent):
    """No kernel of attention takes these, those of products do."""
    text = """graph g(%q: float32[b, s, DEPTH], %k: float32[b, t, DEPTH], %v: float32[b, t, EXTENT]) {
        %0 = contract(%q, %k) lhs=bqd rhs=bkd out=bqk accumulate=float32
        %1 = reduce(%0) kind=max axes=(2) keepdims=true
        %2 = map(%0, %1) { exp(sub($0, $1)) }
        %3 = reduce(%2) kind=sum axes=(2) keepdims=true
        %4 = map(%2, %3) { div($0, $1) }
        %5 = contract(%4, %v) lhs=bqk rhs=bke out=bqe accumulate=float32
        return %5
    }"""
    stays(clean(fuse_attention), text.replace("DEPTH", depth).replace("EXTENT", extent))
    known = text.replace("DEPTH", "64").replace("EXTENT", "32")
    assert ops(clean(fuse_attention)(parse(known))) == ["Attention"]


def test_attention_between_channels_stays_products():
    """Its values have the keys, which are channels, side by side."""
    text = """graph g(%q: float32[2, 50, 8], %k: float32[2, 50, 8], %v: float32[2, 50, 8]) {
        %0 = contract(%q, %k) lhs=bdq rhs=bdk out=bqk accumulate=float32
        %1 = reduce(%0) kind=max axes=(2) keepdims=true
        %2 = map(%0, %1) { exp(sub($0, $1)) }
        %3 = reduce(%2) kind=sum axes=(2) keepdims=true
        %4 = map(%2, %3) { div($0, $1) }
        %5 = contract(%4, %v) lhs=bqk rhs=VALUES out=bqe accumulate=float32
        return %5
    }"""
    stays(clean(fuse_attention), text.replace("VALUES", "bek"))
    assert ops(
        clean(fuse_attention)(
            parse(text.replace("VALUES", "bke").replace("%v: float32[2, 50, 8]", "%v: float32[2, 8, 50]"))
        )
    ) == ["Attention"]


MASKED = "select($1, mul($0, 0.5), -inf:float32)"


@pytest.mark.parametrize("m", [1, 5])
def test_a_mask_may_have_one_number_for_all_keys(m):
    text = ATTENTION.replace("bool[b, 1, 1, t]", "bool[b, 1, 1, m]")
    assert ops(found_attention(MASKED, text=text, m=m)) == ["Map", "Attention"]


#: Only the run knows whether the mask has as many rows as the queries, or one of both has one.
OTHER_BATCH = ATTENTION.replace("bool[b, 1, 1, t]", "bool[c, 1, 1, t]").replace(
    "%6 = contract(%5, %v)", "%w = broadcast(%v) shape=(broadcast(b, c), t, 4, 16) %6 = contract(%5, %w)"
)


@pytest.mark.parametrize("b, c", [(1, 2), (2, 1), (2, 2)])
def test_queries_and_keys_repeat_to_the_batch_of_a_mask(b, c):
    found = found_attention(MASKED, text=OTHER_BATCH, b=b, c=c)
    assert ops(found) == ["Broadcast", "Broadcast", "Broadcast", "Map", "Attention"]


@pytest.mark.parametrize("b, c", [(1, 2), (2, 2)])
def test_scores_that_say_where_they_stand_do_not_repeat(b, c):
    """A score's place in the batch is another where it repeats."""
    placed = OTHER_BATCH.replace(
        "%1 = map(%0, %mask", "%p = map(%0) { select(eq(index(0), 0), $0, 1.0:float32) } %1 = map(%p, %mask"
    )
    assert "Attention" not in ops(found_attention(MASKED, text=placed, b=b, c=c))


def test_a_mask_known_to_have_more_rows_makes_no_attention():
    text = OTHER_BATCH.replace("[b,", "[1,").replace("[c,", "[2,").replace("broadcast(b, c)", "2")
    assert "Attention" not in ops(found_attention(MASKED, text=text, b=1, c=2))
