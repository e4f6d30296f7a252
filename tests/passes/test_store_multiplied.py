"""store_multiplied: integers are stored with the sign that products need."""

import pytest
from support.pass_text import agrees, becomes, stays

from onnxc.passes import store_multiplied as passes
from onnxc.target import TARGETS

DEQUANTISE = "mul(cast(sub(cast($0, int32), 3), float32), 0.125)"


def store_multiplied(graph, target="cascadelake"):
    return passes.store_multiplied(graph, TARGETS[target])


def test_the_clip_and_the_zero_point_move():
    becomes(
        store_multiplied,
        f"""graph g(%x: float32[8]) {{
        %0 = map(%x) {{ cast(min(max(add(round(mul($0, 8.0)), 3.0), -128.0), 127.0), int8) }}
        %1 = map(%0) {{ {DEQUANTISE} }}
        return %1
    }}""",
        """graph g(%x: float32[8]) {
        %0 = map(%x) { cast(min(max(add(round(mul($0, 8.0)), 131.0), 0.0), 255.0), uint8) }
        %1 = map(%0) { mul(cast(sub(cast($0, int32), 131), float32), 0.125) }
        return %1
    }""",
    )


@pytest.mark.parametrize(
    "made",
    [
        "cast(min(max(round(mul($0, 90.0)), -128.0), 127.0), int8)",
        "cast(min(max(add(round(mul($0, 90.0)), 3.0), -127.0), 100.0), int8)",
        "cast(mul($0, 50.0), int8)",
        "cast(cast($0, int32), int8)",
    ],
)
def test_no_number_changes(made):
    found = agrees(
        store_multiplied,
        f"""graph g(%x: float32[n]) {{
        %0 = map(%x) {{ {made} }}
        %1 = map(%0) {{ {DEQUANTISE} }}
        %2 = map(%0) {{ mul(cast(cast($0, int32), float32), 2.0) }}
        return %1, %2
    }}""",
        n=1000,
    )
    assert found.nodes[0].outputs[0].dtype == "uint8"


@pytest.mark.parametrize("zero", [0, 999, 1 << 15, 65535])
def test_unsigned_words_become_signed_ones(zero):
    found = agrees(
        store_multiplied,
        f"""graph g(%x: float32[n]) {{
        %0 = map(%x) {{ cast(min(max(add(round(mul($0, 9000.0)), {zero}.0), 0.0), 65535.0), uint16) }}
        %1 = map(%0) {{ mul(cast(sub(cast($0, int32), {zero}), float32), 0.125) }}
        return %1
    }}""",
        n=1000,
    )
    assert found.nodes[0].outputs[0].dtype == "int16"


@pytest.mark.parametrize("last", ["return %0, %1", "%2 = map(%0) { neg($0) }\n return %1, %2"])
def test_bytes_that_others_read_stay_signed(last):
    stays(
        store_multiplied,
        f"""graph g(%x: float32[8]) {{
        %0 = map(%x) {{ cast($0, int8) }}
        %1 = map(%0) {{ {DEQUANTISE} }}
        {last}
    }}""",
    )


@pytest.mark.parametrize("target", ["aarch64", "neoverse-n1"])
def test_they_stay_signed_where_signed_ones_are_multiplied_or_none(target):
    stays(
        lambda graph: store_multiplied(graph, target),
        f"""graph g(%x: float32[8]) {{
        %0 = map(%x) {{ cast($0, int8) }}
        %1 = map(%0) {{ {DEQUANTISE} }}
        return %1
    }}""",
    )
