"""Templates of random graphs: reductions, normalisations and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from support.forests import MODES, ensemble
from support.random_elementwise import joined
from support.random_graphs import Dim, Random, Term, Unfit, limits, rounded

# Reductions ---------------------------------------------------------------------------------------


def extent(x: Term, axes: Sequence[int]) -> int:
    """Elements that one result combines, in the largest run."""
    return (
        max((math.prod(x.dims[a][run] for a in axes) for run in range(len(x.dims[0]))), default=1)
        if x.dims
        else 1
    )


def some_axes(r: Random, x: Term) -> list[int]:
    axes = r.subset(range(x.rank)) if not r.chance(6) else list(range(x.rank))
    return axes or ([r.integer(0, x.rank - 1)] if x.rank else [])


def without(r: Random, x: Term, axes: Sequence[int], keep: int) -> tuple[Dim, ...]:
    return tuple(d if a not in axes else r.fixed(1) for a, d in enumerate(x.dims) if keep or a not in axes)


def signed(r: Random, x: Term, axes: Sequence[int]) -> list[int]:
    return [a - x.rank if r.chance(3) else a for a in axes]


def reduce(r: Random):
    x = r.pick(dtypes=("float32", "float32", "float64", "float16", "int32", "int64", "bfloat16"))
    operator = r.choice(
        (
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSumExp",
            "ReduceProd",
        )
    )
    axes, keep = some_axes(r, x), r.integer(0, 1)
    empty = any(0 in x.dims[a] for a in axes)
    n = max(extent(x, axes), 1)
    if operator == "ReduceProd":
        x = r.within(x, -1, 1) if x.is_float else x
        if n > 16 and x.is_float:
            raise Unfit
        if not x.is_float and x.most > 100:
            raise Unfit  # ONNX Runtime's products of wide integers do not wrap
    if operator == "ReduceLogSumExp":
        x = r.within(x, -4, 4) if x.is_float else x
    if not x.is_float and operator not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
        raise Unfit
    if empty and operator in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceLogSumExp"):
        raise Unfit
    most = {
        "ReduceSum": n * x.most,
        "ReduceL1": n * x.most,
        "ReduceL2": n * x.most,
        "ReduceSumSquare": n * x.most**2,
        "ReduceLogSumExp": 5 + math.log(n),
    }.get(operator, x.most)
    if not x.is_float and operator == "ReduceProd":
        low, high = limits(x.dtype)
        x = replace(x, low=low, high=high)
        most = high
    error = {
        "ReduceSum": n,
        "ReduceL1": n,
        "ReduceL2": n,
        "ReduceProd": n,
        "ReduceSumSquare": 2 * n * x.most,
    }.get(operator, 1) * x.error
    grid = {
        "ReduceSum": x.grid,
        "ReduceL1": x.grid,
        "ReduceSumSquare": 2 * x.grid,
        "ReduceMax": x.grid,
        "ReduceMin": x.grid,
    }.get(operator, 99)
    if operator in ("ReduceMax", "ReduceMin"):
        new = replace(x, known=None)
    else:
        new = rounded(
            replace(x, low=-most, high=most, grid=grid if x.exact else 99, error=error, known=None),
            n + 4,
            {"ReduceMean": n * x.most, "ReduceL2": n * x.most**2}.get(operator, most),
        )
    if operator == "ReduceL2":  # the root of an error near nothing
        new = replace(new, error=max(new.error, math.sqrt(2 * n * x.most * x.error)))
    places = r.array(signed(r, x, axes))
    if len(axes) == x.rank and r.chance(2):
        places = None
    r.add(operator, [x, places], replace(new, dims=without(r, x, axes, keep)), keepdims=keep)


def arg_extreme(r: Random):
    x = r.pick(lambda t: t.rank and t.exact, ("float32", "int32", "float64", "float16"))
    axis, keep = r.integer(0, x.rank - 1), r.integer(0, 1)
    if 0 in x.dims[axis]:
        raise Unfit
    r.add(
        r.choice(("ArgMax", "ArgMin")),
        [x],
        Term("", "int64", without(r, x, [axis], keep), 0, max(x.dims[axis])),
        axis=signed(r, x, [axis])[0],
        keepdims=keep,
        select_last_index=r.integer(0, 1),
    )


def softmax(r: Random):
    x = r.within(r.pick(lambda t: t.rank, ("float32", "float32", "float64", "float16")), -16, 16)
    axis = r.choice((-1, r.integer(0, x.rank - 1)))
    operator = r.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    if operator == "Hardmax" and (not x.exact or 0 in x.dims[axis]):
        raise Unfit
    n = max(1, max(x.dims[axis]))
    if operator == "Hardmax":
        return r.add(operator, [x], replace(x, low=0, high=1, grid=0, known=None), axis=axis)
    most = 1 if operator == "Softmax" else 32 + math.log(n)
    r.add(
        operator,
        [x],
        rounded(replace(x, low=-most, high=most, grid=99, known=None, error=x.error * 2), n + 40),
        axis=axis,
    )


def normalize(r: Random):
    """Layer norms and their like; scaled so that errors are no larger than those of x times 1/sqrt(eps)."""
    x = r.within(r.pick(lambda t: t.rank >= 1 and (t.rank >= 2 or True), ("float32",)), -4, 4)
    operator = r.choice(
        (
            "LayerNormalization",
            "InstanceNormalization",
            "BatchNormalization",
            "GroupNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
        )
    )
    if operator == "LayerNormalization":
        axis = r.integer(0, x.rank - 1)
        n, shape = extent(x, range(axis, x.rank)), x.dims[axis:]
        scale, shift = (r.leaf(x.dtype, shape, -2, 2) for _ in range(2))
        inputs = [x, scale, shift if r.chance(2) else None]
        attributes = {"axis": axis - x.rank if r.chance(2) else axis, "epsilon": 0.25}
    elif operator in ("LpNormalization", "MeanVarianceNormalization"):
        raise Unfit
    else:
        if x.rank < 3 or (operator != "BatchNormalization" and any(0 in d for d in x.dims[2:])):
            raise Unfit
        channels, n = x.dims[1], extent(x, range(1, x.rank))
        scale, shift = (r.leaf(x.dtype, [channels], -2, 2) for _ in range(2))
        inputs, attributes = [x, scale, shift], {"epsilon": 0.25}
        if operator == "BatchNormalization":
            inputs += [r.leaf(x.dtype, [channels], -2, 2), r.leaf(x.dtype, [channels], 0.25, 2)]
        if operator == "GroupNormalization":
            divisors = [g for g in range(1, 9) if all(c % g == 0 and c for c in channels)]
            attributes["num_groups"] = r.choice(divisors)
    most = 2 * 8 * 2 + 2
    r.add(
        operator,
        inputs,
        rounded(replace(x, low=-most, high=most, grid=99, known=None, error=x.error * 40), n + 40),
        **attributes,
    )


def cumulate(r: Random):
    x = r.pick(lambda t: t.rank, ("float32", "float64", "int32", "int64"))
    axis = r.integer(0, x.rank - 1)
    n = max(1, *x.dims[axis])
    place = r.array(signed(r, x, [axis])[0])
    r.add(
        "CumSum",
        [x, place],
        rounded(replace(x, low=-n * x.most, high=n * x.most, error=n * x.error, known=None), n),
        exclusive=r.integer(0, 1),
        reverse=r.integer(0, 1),
    )


# Products -----------------------------------------------------------------------------------------


def product(x: Term, y: Term, n: int, dims: Sequence[Dim], extra: Sequence[Term] = ()) -> Term:
    """The bounds of sums of n products of elements of x and y, and of terms added."""
    most = n * x.most * y.most + sum(t.most for t in extra)
    error = n * (x.error * y.most + y.error * x.most + x.error * y.error) + sum(t.error for t in extra)
    grid = max([x.grid + y.grid, *(t.grid for t in extra)])
    return rounded(Term("", x.dtype, tuple(dims), -most, most, grid, error), n + 2)


PRODUCTS = ("float32", "float32", "float32", "float64", "float16", "int32", "int64")


def matmul(r: Random):
    x = r.pick(lambda t: t.rank, PRODUCTS)
    inner, batch = x.dims[-1], x.dims[:-2]
    form = r.integer(0, 3)
    if form == 0:
        y = r.leaf(x.dtype, [inner])
        dims = x.dims[:-1]
    else:
        before = (
            [d if r.chance(2) else r.fixed(1) for d in batch[r.integer(0, len(batch)) :]] if form > 1 else []
        )
        y = r.leaf(x.dtype, [*before, inner, r.size()])
        rows = [x.dims[-2]] if x.rank > 1 else []
        dims = (*joined(batch, before), *rows, y.dims[-1])
    candidates = [t for t in r.terms if t.dtype == x.dtype and t.rank == 2 and t.dims[0] == inner]
    if candidates and form and r.chance(2):
        y = r.choice(candidates)
        dims = (*x.dims[:-1], y.dims[-1])
    r.add("MatMul", [x, y], product(x, y, max(inner), dims))


def gemm(r: Random):
    x = r.pick(lambda t: t.rank == 2, ("float32", "float32", "float64", "float16"))
    turn_x, turn_y = r.integer(0, 1), r.integer(0, 1)
    inner, rows, columns = x.dims[1 - turn_x], x.dims[turn_x], r.size()
    y = r.leaf(x.dtype, [columns, inner] if turn_y else [inner, columns])
    shape = r.choice(([rows, columns], [columns], [r.fixed(1), columns], [rows, r.fixed(1)], [], None))
    c = [] if shape is None else [r.leaf(x.dtype, shape)]
    alpha, beta = r.choice((1.0, 0.5, 2.0)), r.choice((1.0, 0.5, 2.0))
    scaled = [replace(t, low=2 * t.low, high=2 * t.high, grid=t.grid + 1) for t in (x, *c)]
    new = product(scaled[0], y, max(inner), (rows, columns), scaled[1:])
    r.add("Gemm", [x, y, *c], new, alpha=alpha, beta=beta, transA=turn_x, transB=turn_y)


def einsum(r: Random):
    x = r.pick(lambda t: 1 <= t.rank <= 4, ("float32", "float32", "float64", "int32"))
    labels = "abcd"[: x.rank]
    size = dict(zip(labels, x.dims))
    other = r.subset(labels) + (["e"] if r.chance(2) else [])
    r.source.shuffle(other)
    size["e"] = r.size()
    y = r.leaf(x.dtype, [size[label] for label in other])
    out = r.subset(sorted({*labels, *other}))
    r.source.shuffle(out)
    summed = [size[label] for label in {*labels, *other} - set(out)]
    n = max((math.prod(s[run] for s in summed) for run in range(r.runs)), default=1)
    new = product(x, y, n, [size[label] for label in out])
    r.add("Einsum", [x, y], new, equation=f"{labels},{''.join(other)}->{''.join(out)}")


def attention(r: Random):
    """softmax(q k' * scale + mask) v as exporters write it, or, with fewer heads of keys, as a node."""
    batch, rows, columns = (r.choice(r.sizes) for _ in range(3))
    if 0 in columns:
        raise Unfit
    groups, repeat, depth = r.integer(1, 3), r.integer(1, 2), r.choice((1, 4, 8, 5))
    heads = groups * repeat
    fixed = [r.fixed(n) for n in (heads, groups, depth)]
    q = r.leaf("float32", [batch, fixed[0], rows, fixed[2]], -1, 1, anonymous=False)
    k, v = (r.leaf("float32", [batch, fixed[1], columns, fixed[2]], -1, 1, anonymous=False) for _ in range(2))
    new = rounded(Term("", "float32", (batch, fixed[0], rows, fixed[2]), -1, 1, 99), 4 * max(columns) + 80)
    if not r.chance(3):
        scores = Term("", "float32", (batch, fixed[0], rows, columns), -64, 64, 99, 1e-5)
        if repeat > 1:
            k, v = (repeated(r, t, repeat) for t in (k, v))
        turned = r.add(
            "Transpose", [k], replace(k, dims=(batch, fixed[0], fixed[2], columns)), perm=[0, 1, 3, 2]
        )
        s = r.add("Mul", [r.add("MatMul", [q, turned], scores), r.array(0.5, "float32")], scores)
        masked = r.choice(("float32", "bool", None))
        if masked:
            mask = r.leaf(masked, [r.fixed(1) if r.chance(2) else batch, r.fixed(1), rows, columns], -4, 4)
            lowest = r.array(r.choice((-1e9, np.finfo(np.float32).min)), "float32")
            operator, terms = ("Add", [s, mask]) if mask.is_float else ("Where", [mask, s, lowest])
            s = r.add(operator, terms, scores)
        p = r.add("Softmax", [s], replace(scores, low=0, high=1, error=1e-4), axis=-1)
        r.add("MatMul", [p, v], replace(new, error=2e-5))
        return
    r.opset = 23
    mask = r.leaf("float32", [rows, columns], -4, 4) if r.chance(2) else None
    causal = {"is_causal": 1} if mask is None and r.chance(2) else {}
    r.add("Attention", [q, k, v, mask], replace(new, error=2e-5), scale=r.choice((0.5, 0.25)), **causal)


def repeated(r: Random, x: Term, times: int) -> Term:
    """[b, g, n, d] with each of the groups `times` times."""
    b, g, n, d = x.dims
    apart = r.add("Unsqueeze", [x, r.array([2])], replace(x, dims=(b, g, r.fixed(1), n, d)))
    wide = (b, g, r.fixed(times), n, d)
    shape = r.numbers([[s[run] for s in wide] for run in range(r.runs)])
    apart = r.add("Expand", [apart, shape], replace(x, dims=wide))
    whole = (b, r.fixed(g[0] * times), n, d)
    if any(0 in s for s in whole):
        raise Unfit
    shape = r.array([0, g[0] * times, -1, d[0]])
    return r.add("Reshape", [apart, shape], replace(x, dims=whole))


# Trees --------------------------------------------------------------------------------------------


def trees(r: Random):
    """A forest over the rows of exact numbers, which lie on one side of every split."""
    x = r.pick(lambda t: t.rank == 2 and t.exact and min(t.dims[1]) == max(t.dims[1]) > 0, ("float32",))
    rng, count = np.random.default_rng(r.integer(0, 2**20)), r.integer(1, 4)
    modes = MODES if r.chance(3) else [r.choice(MODES[:4])]
    attributes = ensemble(
        rng,
        count,
        r.integer(1, 4),
        x.dims[1][0],
        r.choice((((0,),), ((0, 1), (2,)))),
        modes,
        missing=r.chance(2),
    )
    most = sum(map(abs, attributes["target_weights"]))
    new = Term("", "float32", (x.dims[0], r.fixed(1 + max(attributes["target_ids"]))), -most, most, 99)
    r.add(
        "TreeEnsembleRegressor",
        [x],
        rounded(replace(new, error=1e-30), count),
        domain="ai.onnx.ml",
        n_targets=new.dims[1][0],
        **{name: values for name, values in attributes.items() if values},
    )


TEMPLATES = (
    reduce,
    reduce,
    arg_extreme,
    softmax,
    normalize,
    cumulate,
    matmul,
    matmul,
    gemm,
    einsum,
    attention,
    trees,
)
