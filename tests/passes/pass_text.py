"""Tests of passes: IR text in, IR text out."""
from onnxc.target import TARGETS
from onnxc.text import parse
from onnxc.verify import verify

TARGET = TARGETS["x86-64-v3"]


def becomes(step, before, after, constants=None):
    """Asserts that a pass turns one text into the other; names of values do not matter, since both are
    printed anew."""
    found = step(parse(before, constants), TARGET)
    verify(found)
    assert str(found) == str(parse(after, constants))
    return found


def stays(step, text, constants=None):
    becomes(step, text, text, constants)
