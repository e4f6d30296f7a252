"""Import rules of matrix products and what is made of them; each is a Contract, with the operands'
axes named.

Axes of size 1 that broadcast leave the operand that has them, so that a product's axes either agree
or stand alone.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence

from ...ir import dims, dtypes, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import TensorType, Value
from ..rule_builder import RuleBuilder
from ..rules import ANY_RANKS, onnx_op
from .common import drop_axes, fitted, floating, insert_axes, require_square, scalar, wide
from .quantization import centred, quantised, refuse_bad_scale

# Products ----------------------------------------------------------------------------------------


def product(b: Builder, x: Value, y: Value, accumulate: str | None = None, rounded: int = 0) -> Value:
    """numpy's matmul: the last two axes are matrices, those before broadcast; a vector is a row
    or a column. rounded: blocks of x in steps of their own (`Contract.rounded`)."""
    if not x.rank or not y.rank:
        raise ops.TypeMismatch(f"{x.type} and {y.type} are no matrices")
    batch = max(x.rank, y.rank, 2) - 2
    if batch > 20:
        raise ops.TypeMismatch(f"{batch} batch axes are too many")
    letters = "abcdefghijopqrstuvwx"[:batch]
    rows, columns = letters[batch - max(x.rank - 2, 0) :], letters[batch - max(y.rank - 2, 0) :]
    left, right = rows + ("mk" if x.rank > 1 else "k"), columns + ("kn" if y.rank > 1 else "k")
    out = letters + ("m" if x.rank > 1 else "") + ("n" if y.rank > 1 else "")
    inner = x.shape[-1], y.shape[max(y.rank - 2, 0)]
    if dims.equal(*inner) is False:
        raise ops.TypeMismatch(f"the sizes {inner[0]} and {inner[1]} of {x.type} and {y.type} do not match")
    (left, x), (right, y) = _agreed(b, [(left, x), (right, y)], letters)
    return b.contract(left, right, out, x, y, accumulate, rounded)


def _agreed(b: Builder, operands: Sequence[tuple[str, Value]], broadcasting: str) -> list[tuple[str, Value]]:
    """The operands with one size for each label in `broadcasting`: axes of size 1 go where
    another operand has that axis, and those of which only the run knows whether they are 1 are
    repeated."""
    common: dict[str, Dimension] = {}
    for labels, value in operands:
        for label, size in zip(labels, value.shape):
            if label in broadcasting:
                try:
                    common[label] = dims.broadcast(common.get(label, 1), size)
                except ValueError as error:
                    types = " and ".join(str(v.type) for _, v in operands)
                    raise ops.TypeMismatch(f"{error}, of {types}") from None
    seen: set[str] = set()
    result = []
    for labels, value in operands:
        drop = [
            a
            for a, (c, d) in enumerate(zip(labels, value.shape))
            if d == 1 and c in common and (common[c] != 1 or c in seen)
        ]
        labels, value = ("".join(c for a, c in enumerate(labels) if a not in drop), drop_axes(b, value, drop))
        seen |= set(labels)
        result.append((labels, b.broadcast(value, [common.get(c, d) for c, d in zip(labels, value.shape)])))
    return result


@onnx_op(since=1)
def MatMul(b, A, B):
    return product(b, A, B)


@onnx_op(since=7, ranks={"A": 2, "B": 2, "C": "<=2"})
def Gemm(b, A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """alpha * A B + beta * C"""
    if A.rank != 2 or B.rank != 2:
        raise ops.TypeMismatch(f"{A.type} and {B.type} are no matrices")
    y = b.contract("km" if transA else "mk", "nk" if transB else "kn", "mn", A, B)
    if alpha != 1:
        y = b.map(y, floating(lambda e: e * alpha, alpha))
    if C is None:
        return y
    y, C = fitted(b, y, C, "C")
    if beta == 0:
        return y
    if beta != 1:
        return b.map(y, C, floating(lambda e, c: e + c * beta, beta))
    return b.map(y, C, lambda e, c: e + c)


@onnx_op(since=1, name="Gemm")
def _gemm_1(b, A, B, C, *, alpha=1.0, beta=1.0, broadcast=0, transA=0, transB=0):
    return Gemm(b, A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)


# Quantised products ------------------------------------------------------------------------------


def _parameter(b: Builder, value: Value, operand: Value, rows: bool, name: str) -> Value:
    """A scale or zero point of that name in a shape that broadcasts to the matrices: a vector has one element
    a row or a column, also where only the run knows that it has more than one; with more axes it has one
    for each row or column of every matrix."""
    if value.tensor.count == 1 or operand.rank < 2:
        return scalar(b, value, name)
    count = operand.shape[-2 if rows else -1]
    fitting = (*operand.shape[:-1], 1) if rows else (*operand.shape[:-2], 1, count)
    needed = (count,) if value.rank == 1 else fitting[-value.rank :]
    sizes = zip(value.shape, needed)
    if value.rank > operand.rank or any(d != 1 and dims.equal(d, size) is False for d, size in sizes):
        raise ops.TypeMismatch(
            f"{name} is {value.type} where one element, a vector of length {count} or "
            f"{TensorType(value.dtype, fitting)} is needed"
        )
    value = value if value.shape == needed else b.emit(ops.Broadcast(needed), value)[0]
    return insert_axes(b, value, [1]) if rows and value.rank == 1 else value


def of_product(b: Builder, value: Value, x: Value, y: Value, rows: bool, name: str) -> Value:
    """A scale of x (rows) or y in a shape that broadcasts to their product, where a vector has no axis."""
    value = _parameter(b, value, x if rows else y, rows, name)
    if value.rank < 2 or min(x.rank, y.rank) > 1:
        return value
    return drop_axes(b, value, [value.rank - (2 if x.rank == 1 else 1)])


def _centred(b: Builder, x: Value, zero: Value | None, rows: bool, name: str) -> Value:
    """x - zero, or x itself without a zero point: products widen it."""
    known = b.known(zero)
    if zero is None or (known is not None and not known.any()):
        return x
    return b.map(x, _parameter(b, zero, x, rows, name), centred)


def _centred_product(
    b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None, accumulate: str
) -> Value:
    x, y = _centred(b, x, x_zero, True, "a_zero_point"), _centred(b, y, y_zero, False, "b_zero_point")
    return product(b, x, y, accumulate)


@onnx_op(since=10, ranks={"A": "a", "a_zero_point": "<=a rows", "B": "b", "b_zero_point": "<=b"})
def MatMulInteger(b, A, B, a_zero_point=None, b_zero_point=None):
    return _centred_product(b, A, B, a_zero_point, b_zero_point, "int32")


@onnx_op(since=10, ranks={"a": "a", "b_": "b", "b_scale": "<=b", "b_zero_point": "<=b", "*": "<=a rows"})
def QLinearMatMul(b, a, a_scale, a_zero_point, b_, b_scale, b_zero_point, y_scale, y_zero_point):
    for scale in (a_scale, b_scale, y_scale):
        refuse_bad_scale(b, scale, divides=scale is y_scale)
    accumulate = "int32" if dtypes.is_integer(a.dtype) else "float32"
    total = _centred_product(b, a, b_, a_zero_point, b_zero_point, accumulate)
    y = total if min(a.rank, b_.rank) > 1 else a  # whose rows are those of the result
    steps = ((a_scale, a, True, "a_scale"), (b_scale, a, False, "b_scale"), (y_scale, y, True, "y_scale"))
    scales = (b.cast(of_product(b, s, x, b_, rows, name), "float32") for s, x, rows, name in steps)
    factor = b.map(*scales, lambda p, q, r: p * q / r)
    zero = of_product(b, y_zero_point, y, b_, True, "y_zero_point")
    return b.map(total, factor, zero, lambda t, f, z: quantised(t.cast("float32") * f, z, y_zero_point.dtype))


# Einsum ------------------------------------------------------------------------------------------


@onnx_op(since=12, ranks=ANY_RANKS)
def Einsum(b, *Inputs, equation):
    """Operands are contracted one after the other; axes of one label that are known to be 1 repeat, open ones
    must agree in the run. Each keeps the axes that the output or later operands name; those that it alone has
    are summed before it is multiplied. What an ellipsis stands for broadcasts, open sizes too."""
    named = equation.replace(" ", "").partition("->")[0].split(",")
    if len(named) != len(Inputs):
        raise ops.TypeMismatch(f"'{equation}' has {len(named)} terms for {len(Inputs)} inputs")
    values = [_of_term(b, *pair) for pair in zip(named, Inputs)]
    terms, out, dots = _parsed(equation, [v.rank for v in values])
    operands = [_diagonal(b, term, value) for term, value in zip(terms, values)]
    ones = {c for labels, value in operands for c, size in zip(labels, value.shape) if size == 1}
    operands = _agreed(b, operands, dots + "".join(sorted(ones)))
    for label in out:
        if all(label not in labels for labels, _ in operands):
            raise ops.TypeMismatch(f"the output's axis {label} of '{equation}' is none of an input")
    labels, total = operands[0]
    for k, (more, value) in enumerate(operands[1:], 2):
        needed = set(out).union(*(later for later, _ in operands[k:]))
        labels, total = _summed(b, labels, total, needed.union(more))
        more, value = _summed(b, more, value, needed.union(labels))
        kept = out if k == len(operands) else "".join(c for c in dict.fromkeys(labels + more) if c in needed)
        labels, total = kept, b.contract(labels, more, kept, total, value)
    labels, total = _summed(b, labels, total, set(out))
    return b.transpose(b.cast(total, values[0].dtype), [labels.index(c) for c in out])


def _summed(b: RuleBuilder, labels: str, x: Value, needed: Collection[str]) -> tuple[str, Value]:
    """x summed along the axes that are not needed, in a type that is wide enough for sums."""
    axes = [a for a, c in enumerate(labels) if c not in needed]
    if not axes:
        return labels, x
    exact = wide(x.dtype)
    return "".join(c for c in labels if c in needed), b.reduce("sum", x, axes, False, lambda e: e.cast(exact))


def _of_term(b: RuleBuilder, term: str, x: Value) -> Value:
    """An operand of the rank that its term tells unless axes are left out there."""
    return b.site.ranked(b, x) if "..." in term else b.site.with_rank(b, x, len(term))


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str, str]:
    """Every operand's labels, the output's, and the letters that stand for ellipses."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in equation]
    depth = max([r - len(t.replace("...", "")) for t, r in zip(terms, ranks) if "..." in t], default=0)
    if depth > len(free):
        raise ops.TypeMismatch(f"'{equation}' has too many axes")
    dots = "".join(free[: max(depth, 0)])
    named = []
    for term, rank in zip(terms, ranks):
        covered = rank - len(term.replace("...", ""))
        labels = term.replace("...", dots[len(dots) - max(covered, 0) :], 1)
        if len(labels) != rank or not all(c in string.ascii_letters for c in labels):
            raise ops.TypeMismatch(f"the term '{term}' of '{equation}' does not name {rank} axes")
        named.append(labels)
    if not arrow:
        letters = "".join(terms).replace("...", "")
        right = ("..." if dots else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    out = right.replace("...", dots, 1)
    if len(set(out)) != len(out) or not all(c in string.ascii_letters for c in out):
        raise ops.TypeMismatch(f"the output '{right}' of '{equation}' does not name axes once")
    return named, out, dots


def _diagonal(b: Builder, labels: str, x: Value) -> tuple[str, Value]:
    """x with axes of the same label merged: their diagonal is every n + 1-th of their n * n elements. Where
    only the run knows that sizes agree as much is taken of each axis as the other has: neither is longer."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            n, m = x.shape[first], x.shape[second]
            if dims.equal(n, m) is False:
                raise ops.TypeMismatch(f"axes {first} and {second} of {x.type} differ in size")
            if dims.equal(n, m) is None:
                swapped = {first: m, second: n}
                x = b.slice(x, [0] * x.rank, [swapped.get(a, d) for a, d in enumerate(x.shape)])
            kept = [a for a in range(x.rank) if a not in (first, second)]
            sizes = [x.shape[a] for a in kept]
            flat = b.reshape(b.transpose(x, [*kept, first, second]), (*sizes, n * m))
            x = b.slice(flat, [0] * flat.rank, [*sizes, n], [1] * len(sizes) + [n + 1])
            labels = "".join(labels[a] for a in kept) + label
    return labels, x


# Determinants ------------------------------------------------------------------------------------


@onnx_op(since=11)
def Det(b, X):
    require_square(X)
    return b.call("determinant", [X], [TensorType(X.dtype, X.shape[:-2])])[0]
