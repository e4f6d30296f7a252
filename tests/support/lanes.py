"""Runs expressions as vector code over arrays, and holds them against their meaning in numpy."""

import numpy as np
from support import harness

from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text import scalar
from onnxc.codegen.text.memory import load_lanes, store_lanes
from onnxc.ir import dtypes, expr

INTEGERS = (*dtypes.SIGNED, *dtypes.UNSIGNED)
NARROW = ("float16", "bfloat16")


def run(target, roots, arrays, lanes=None, index=None, sizes=None, bounds=None):
    """The roots for each element of the arrays of one length, or (code, value) of a failed check."""
    lanes = lanes or target.lanes("float32")
    kinds, kernel = [dtypes.from_numpy(a.dtype) for a in arrays], KernelText(target)
    with kernel.entry() as f:
        inputs, outputs = ([f.input(i) for i in range(len(arrays))], [f.output(i) for i in range(len(roots))])
        with f.loop("%first", "%last") as loop:

            def place(pointer, dtype):
                return f.element(pointer, loop.index, dtypes.itemsize(dtype) * lanes)

            def numbers(axis):
                base = f.broadcast("i64", f.mul(loop.index, lanes), lanes)
                if lanes == 1:
                    return base
                return f.value(f"add <{lanes} x i64> {base}, <{', '.join(f'i64 {k}' for k in range(lanes))}>")

            values = scalar.lower(
                f,
                roots,
                lambda i: load_lanes(f, kinds[i], place(inputs[i], kinds[i]), lanes),
                lanes,
                lambda d: f.size(d),
                numbers,
                scalar.Checks(f),
                bounds=bounds or {},
            )
            for root, output, value in zip(roots, outputs, values):
                store_lanes(f, root.dtype, value, place(output, root.dtype), lanes)
    count = len(arrays[0])
    vectors = -(-count // lanes)
    memory = {
        "input": [],
        "output": [harness.aligned(vectors * lanes * dtypes.itemsize(r.dtype)) for r in roots],
    }
    for array in arrays:
        memory["input"].append(harness.aligned(vectors * lanes * array.itemsize, fill=0))
        memory["input"][-1][: array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
        if vectors * lanes > count:  # idle lanes repeat the last element
            padding = np.repeat(array[-1:], vectors * lanes - count).view(np.uint8)
            memory["input"][-1][array.nbytes :] = padding
    words = [
        sizes[str(a.dimension)] if a.kind == "size" else memory[a.kind][a.index] for a in kernel.arguments
    ]
    scratch = harness.aligned(64)
    if failed := harness.prepared_call(str(kernel), target, words, scratch)([(0, vectors)]):
        return failed, int(scratch[:8].view(np.int64)[0])
    return [m.view(dtypes.numpy_dtype(r.dtype))[:count].copy() for m, r in zip(memory["output"], roots)]


def meaning(root, arrays):
    return expr.evaluate(root, arrays, arrays[0].shape, lambda d: d, lambda code: None)


def samples(dtype, count=1000, seed=0):
    """Every bit pattern is as likely as another, and special values come first."""
    generator, kind = np.random.default_rng(seed), dtypes.numpy_dtype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, count).astype(bool)
    if dtypes.is_integer(dtype):
        low, high = dtypes.integer_range(dtype)
        special = [n for n in (0, 1, -1, 2, 3, -3, low, high, low + 1) if low <= n <= high]
        wide = generator.integers(low, high, count, endpoint=True, dtype=np.int64 if low < 0 else np.uint64)
        small = generator.integers(max(low, -7), 8 if high > 8 else high, count)
        return np.concatenate([np.array(special * 9).astype(kind), wide.astype(kind), small.astype(kind)])
    bits = generator.integers(0, 2 ** min(32, 8 * kind.itemsize), count, dtype=np.uint64)
    if kind.itemsize == 8:
        bits = bits << np.uint64(32) | generator.integers(0, 2**32, count, dtype=np.uint64)
    if dtypes.bits(dtype) < 8:
        bits &= np.uint64((1 << dtypes.bits(dtype)) - 1)
    patterns = bits.astype(f"u{kind.itemsize}").view(kind)
    with np.errstate(all="ignore"):
        special = np.array(
            [
                0.0,
                -0.0,
                1,
                -1,
                np.inf,
                -np.inf,
                np.nan,
                0.5,
                1.5,
                2.5,
                -2.5,
                2**31,
                -(2.0**31),
                2.0**63,
                1e300,
                255.5,
            ]
        )
        small = generator.uniform(-9, 9, count)
        return np.concatenate([special.astype(kind), patterns, small.astype(kind)])


def same(got, want):
    """Equal element for element, NaN with NaN; numbers of narrow types are compared exactly in float64."""
    if got.dtype.kind in "fV":
        got, want = got.astype(np.float64), want.astype(np.float64)
        return bool(np.all((got == want) | (np.isnan(got) & np.isnan(want))))
    return np.array_equal(got, want)


def check_exact(target, roots, *arrays, lanes=None, bounds=None):
    """One kernel for all the roots, which must give what they mean to the last bit."""
    for root, got in zip(roots, run(target, roots, arrays, lanes, bounds=bounds), strict=True):
        want = meaning(root, arrays)
        if not same(got, want):
            wrong = [i for i in range(len(got)) if not same(got[i : i + 1], want[i : i + 1])]
            raise AssertionError(f"{root}: {[(*(a[i] for a in arrays), got[i], want[i]) for i in wrong[:5]]}")


def pair(dtype):
    a = samples(dtype)
    return a, samples(dtype, seed=1)[np.random.default_rng(2).permutation(len(a))]
