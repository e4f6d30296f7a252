"""Libraries and kernels for processors that this machine is not, run in qemu: the results are those that are
expected here, and a processor that lacks something is told so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import forms, small_models, suite
from support.emulated import Emulator, emulator
from support.side_by_side import feeds_of, side_by_side

import onnxc
from onnxc.errors import LoadError
from onnxc.target import find_target

pytestmark = pytest.mark.outside
TARGETS = ("aarch64", "neoverse-n1", "neoverse-v1", "x86-64-v2", "x86-64-v3")
ROOT = Path(__file__).parents[2]
SHARE = 48  # one of so many cases of the suite, another for each target


@pytest.mark.parametrize("target", TARGETS)
def test_cases_of_the_backend_suite(target):
    names = sorted(suite.all_cases().keys() - dict(suite.listed()).keys())
    groups = forms.together([n for n in names if "image_decoder" not in n][TARGETS.index(target) :: SHARE])
    several = [group for group in groups if len(group) > 1]
    assert several
    for cases in several:
        assert forms.compiled(cases, forms.AS_WRITTEN, emulator(target)) == {}


# Products of bytes -----------------------------------------------------------------------------------

BYTES = [(a, b) for a in ("uint8", "int8") for b in ("uint8", "int8")]
GIVEN = """g ({0}[3, k] a, {1}[k, 17] b, {0} s, {1} z) => (int32[3, 17] y)
    {{ y = MatMulInteger (a, b, s, z) }}"""
STORED = """g ({0}[3, {2}] a) => (int32[3, 17] y) <{1}[{2}, 17] b = {{{3}}}, {0} s = {{{4}}}, {1} z = {{{5}}}>
    {{ y = MatMulInteger (a, b, s, z) }}"""
DEPTHS = (1, 3, 4, 7, 16, 17, 33, 66, 70)  # of matrices that models hold


def extremes(shape, dtype, seed):
    """Bytes, half of them at the ends of the range."""
    draw, (low, high) = np.random.default_rng(seed), (np.iinfo(dtype).min, np.iinfo(dtype).max)
    ends = np.where(draw.random(shape) < 0.5, low, high)
    return np.where(draw.random(shape) < 0.5, ends, draw.integers(low, high + 1, shape)).astype(dtype)


def operands(types, k):
    """Two matrices, their zero points at the ends of the ranges, and the sums of their products."""
    a, b = (extremes(shape, t, k) for t, shape in zip(types, ((3, k), (k, 17))))
    s, z = (np.array(getattr(np.iinfo(t), "max" if k % n else "min"), t) for t, n in zip(types, (2, 3)))
    return (a, b, s, z), (a.astype(np.int32) - np.int32(s)) @ (b.astype(np.int32) - np.int32(z))


def holding(types, k):
    """(the model that holds the second matrix and the zero points, its inputs, its result)"""
    (a, b, s, z), sums = operands(types, k)
    stored = ", ".join(map(str, b.reshape(-1)))
    return small_models.parsed(STORED.format(*types, k, stored, s, z)), [a], sums


@pytest.mark.parametrize("target", TARGETS)
def test_products_of_bytes_are_exact(target, tmp_path):
    """Of every pair of types, at both ends of their ranges, to every depth up to 70."""
    held = [holding(types, k) for types in BYTES for k in DEPTHS]
    models = [*(model for model, *_ in held), *(small_models.parsed(GIVEN.format(*t)) for t in BYTES)]
    whole = side_by_side(models)
    library = onnxc.compile(whole, tmp_path / "products.so", target=target)
    products = emulator(target).load(library)
    for k in range(1, 71):
        given = [operands(types, k) for types in BYTES]
        inputs = [*(inputs for _, inputs, _ in held), *(inputs for inputs, _ in given)]
        found = products.run(None, feeds_of(whole, list(zip(models, inputs))))
        for got, sums in zip(found, [*(sums for *_, sums in held), *(sums for _, sums in given)]):
            np.testing.assert_array_equal(got, sums)


# Kernels ---------------------------------------------------------------------------------------------


def test_tests_of_kernels():
    """One case of every test, as `pytest -m quick` chooses them, where there is most to go wrong."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n0", "-m", "quick", "-p", "no:cacheprovider"]
    rooms = [f"tests/codegen/{room}" for room in ("kernels", "text")]
    done = subprocess.run(
        [*command, *rooms],
        cwd=ROOT,
        env={**os.environ, "ONNXC_TESTS_EMULATED": "neoverse-v1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


# Processors ------------------------------------------------------------------------------------------

FAMILIES = {
    "neoverse-v1,neoverse-n1,aarch64": {
        "cortex-a53": "aarch64",
        "a64fx": "aarch64",
        "neoverse-n1": "neoverse-n1",
        "max,sve=off": "neoverse-n1",
        "max,sve-max-vq=1": "neoverse-v1",
        "max,sve-max-vq=4": "neoverse-v1",
    },
    "x86-64-v3,x86-64-v2": {"Nehalem": "x86-64-v2", "Haswell": "x86-64-v3"},
}
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 45, 19)).astype(np.float32)


@pytest.mark.parametrize("targets", FAMILIES)
def test_a_library_takes_the_best_that_a_processor_has(targets, tmp_path):
    """To the same bits for any width of scalable vectors, which no code depends on."""
    library = onnxc.compile(small_models.images(), tmp_path / "images.so", target=targets)
    here = onnxc.compile(small_models.images(), tmp_path / "here.so")
    (expected,) = onnxc.load(here).run(None, {"image": IMAGE})
    bits: dict[str, bytes] = {}
    for processor, chosen in FAMILIES[targets].items():
        model = Emulator(find_target(chosen), processor).load(library, threads=2)
        (found,) = model.run(None, {"image": IMAGE})
        assert model.target == chosen
        assert found.tobytes() == bits.setdefault(chosen, found.tobytes())
        np.testing.assert_allclose(found, expected, atol=1e-5)


LACKING = [
    ("neoverse-n1", "cortex-a57", "fullfp16, dotprod"),
    ("neoverse-v1", "neoverse-n1", "i8mm, bf16, sve"),
    ("x86-64-v3", "Nehalem", "avx, avx2, fma, f16c, bmi, bmi2, lzcnt, movbe"),
    ("x86-64-v2", "core2duo", "sse4.1, sse4.2, popcnt"),
]


@pytest.mark.parametrize("target, processor, lacking", LACKING)
def test_a_lesser_processor_is_told_what_it_lacks(target, processor, lacking, tmp_path):
    library = onnxc.compile(small_models.fragile(), tmp_path / "model.so", target=target)
    assert emulator(target).load(library).target == target
    with pytest.raises(LoadError, match=f"for another processor: this one lacks {lacking}$"):
        Emulator(find_target(target), processor).load(library)
