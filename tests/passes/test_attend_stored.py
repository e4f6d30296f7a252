"""attend_stored: attention reads halves as they are stored, where their rows lie together."""

import pytest
from support.pass_text import becomes, clean, stays

from onnxc.passes.attend_stored import attend_stored

HALVES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def text(nodes, k, v, form="", dtype="float16"):
    return f"""graph g(%q: float32[b, 4, s, 8], %k: {dtype}[b, 4, t, 8], %v: {dtype}[b, 4, t, 16]) {{
        {nodes}
        %y = attention(%q, {k}, {v}) scale=0.5 {form}
        return %y
    }}"""


def widened(name, dtype="float16"):
    return f"%w{name} = map(%{name}) {{ cast($0, float32) }}"


@HALVES
def test_keys_and_values_in_halves_are_read_as_they_are(dtype):
    both = f"{widened('k')} {widened('v')}"
    becomes(clean(attend_stored), text(both, "%wk", "%wv", dtype=dtype), text("", "%k", "%v", dtype=dtype))


def test_both_or_none():
    """Beside values that are computed, keys are widened as before."""
    computed = "%wv = map(%v) { mul(cast($0, float32), 2.0:float32) }"
    stays(clean(attend_stored), text(f"{widened('k')} {computed}", "%wk", "%wv"))


def test_keys_whose_elements_lie_apart_are_widened_before():
    form = "q=bhqd k=bhdk v=bhke out=bhqe"
    apart = text(f"{widened('k')} {widened('v')}", "%wk", "%wv", form)
    stays(clean(attend_stored), apart.replace("%k: float16[b, 4, t, 8]", "%k: float16[b, 4, 8, t]"))


def test_products_that_may_be_rounded_take_what_they_round():
    stays(clean(attend_stored), text(f"{widened('k')} {widened('v')}", "%wk", "%wv", "narrow=true"))
