"""Tables looked up by vectors of bytes, on every processor that runs here, in few instructions on all."""

import re

import numpy as np
import pytest
from support import harness
from support.lanes import check_exact, samples

from onnxc.codegen import costs
from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text import scalar
from onnxc.codegen.text.memory import load_lanes, store_lanes
from onnxc.ir import dtypes, expr
from onnxc.target import TARGETS

CODES = ("uint8", "int8", "int4", "uint2", "float8e5m2")
ELEMENTS = ("uint8", "bool", "float8e4m3fn", "bfloat16", "float32")
LARGE = TARGETS["icelake-server"]  # has an instruction for large tables
RUNNABLE = [*harness.RUNNABLE, *([LARGE] if harness.runs(LARGE) else [])]


def lookup(code, element, operand=0):
    """A lookup in a table of anything."""
    generator = np.random.default_rng(len(code + element))
    count, size = 1 << dtypes.bits(code), dtypes.itemsize(element)
    values = generator.integers(0, 2 if element == "bool" else 256, count * size).astype(np.uint8)
    return expr.lookup(expr.input_(operand, code), element, values.tobytes())


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
def test_every_element_is_that_of_its_number(target):
    roots = [lookup(code, ELEMENTS[k - n], k) for k, code in enumerate(CODES) for n in range(2)]
    arrays = [samples(code)[:900] for code in CODES]
    for lanes in (1, 5, target.lanes("int8"), 2 * target.lanes("int8")):
        check_exact(target, roots, *arrays, lanes=lanes)


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
def test_integers_of_fewer_bits_than_a_byte_are_the_numbers_that_those_are(target):
    """Whatever else is in their bytes: a 4-bit -8 is 0x08 as well as 0xf8."""
    roots = [lookup("uint8", dtype).cast("int32") * 3 for dtype in ("int4", "uint4", "int2", "uint2")]
    for lanes in (1, 5, target.lanes("int8"), 2 * target.lanes("int8")):
        check_exact(target, roots, samples("uint8")[:900], lanes=lanes)


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
def test_what_is_looked_up_is_computed_with(target):
    x = lookup("int8", "float8e4m3fn")
    roots = [x.cast("float32") * 3, x + x, expr.lookup(x, "int8", bytes(range(256))).cast("int32") + 1]
    check_exact(target, roots, samples("int8"))


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_a_table_of_bytes_takes_as_many_instructions_as_are_estimated(target):
    root, kernel, lanes = lookup("uint8", "uint8"), KernelText(target), target.lanes("uint8")
    with kernel.entry() as f, f.loop("%first", "%last", lanes) as loop:
        x = load_lanes(f, "uint8", f.offset(f.input(0), loop.index), lanes)
        (value,) = scalar.lower(f, [root], lambda i: x, lanes)
        store_lanes(f, "uint8", value, f.offset(f.output(), loop.index), lanes)
    code = re.findall(r"^\t[a-z]\S*", harness.assembly(str(kernel), target), re.M)
    assert 0 < len(code) <= 1.2 * costs.weight(target, root) + 50  # two for each register of a table
