"""Constant weights that stay stored in fewer bits than their numbers, as the passes leave them."""

import numpy as np

from onnxc.ir import dtypes, expr
from onnxc.ir.graph import Constant, Derivation
from onnxc.ir.interpret import run_op
from onnxc.ir.ops import Map, Reshape, Slice


def derived(op, *operands):
    """A constant that is made of others by an op, as fold_constants leaves it."""
    (array,) = run_op(op, [c.array for c in operands], {})
    constant = Constant.of(array)
    constant.derivation = Derivation(op, operands)
    return constant


def blocks_of(bits, n, k, block, zero, seed=0):
    """Weights [n, k] of `bits` in blocks along k: (code - zero) * scale, of zero points as `zero` says."""
    rng, count = np.random.default_rng([seed, bits, n, k]), -(-k // block)
    kind = dtypes.numpy_dtype("uint8" if bits == 8 else f"uint{bits}")
    codes = Constant.of(rng.integers(0, 1 << bits, (n, count, block)).astype(kind))
    scale = Constant.of(rng.uniform(0.01, 0.1, (n, count, 1)).astype(np.float32))
    e, s = expr.input_(0, codes.dtype), expr.input_(1, "float32")
    operands = [codes, scale]
    if zero == "middle":
        body = (e.cast("int32") - (1 << (bits - 1))).cast("float32") * s
    else:
        points = rng.integers(0, 1 << bits, (n, count, 1)).astype(kind)
        points = points.astype(np.uint8) + np.uint8(100) if zero == "beyond" else points
        points = points.astype(np.float32) + 0.25 if zero == "float" else points
        operands.append(Constant.of(points))
        z = expr.input_(2, operands[2].dtype)
        body = (e.cast("float32") - z.cast("float32")) * s
    wide = derived(Reshape((n, count * block)), derived(Map(body), *operands))
    return derived(Slice((0, 0), (n, k), (1, 1)), wide) if k % block else wide
