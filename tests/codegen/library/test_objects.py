"""With what effort kernels are compiled."""

from types import SimpleNamespace

import pytest

from onnxc.codegen.library import objects
from onnxc.codegen.library.worker import CODE, LEAN, QUICK
from onnxc.target import TARGETS

WIDE = TARGETS["x86-64-v4"]
SUMS = "define i32 @entry(ptr %x) {\n  ret i32 1\n}\n"
PRODUCTS = f"{SUMS}declare <16 x i32> @{WIDE.widening.intrinsic}(<32 x i16>, <32 x i16>)\n"


@pytest.mark.parametrize(
    ("text", "target", "asked", "level"),
    [
        (SUMS, "x86-64-v4", CODE, LEAN),
        (PRODUCTS, "x86-64-v4", CODE, CODE),
        (SUMS, "x86-64-v3", CODE, CODE),
        (SUMS, "aarch64", CODE, CODE),
        (SUMS, "x86-64-v4", QUICK, QUICK),
    ],
)
def test_loops_are_reduced_in_strength_where_that_gains(tmp_path, monkeypatch, text, target, asked, level):
    added = []
    monkeypatch.setattr(objects.CodeGeneration, "add", lambda self, *how: added.append(how))
    generation = objects.CodeGeneration(tmp_path, 0, asked)
    generation.add_kernels(SimpleNamespace(steps=[SimpleNamespace(text=text)]), TARGETS[target])
    assert [how[-1] for how in added] == [level]
