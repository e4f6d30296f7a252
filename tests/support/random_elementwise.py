"""Templates of random graphs: elementwise operators.

A template takes a `Random`, finds or makes operands, adds one or a few nodes and states the bounds and the
errors of what they give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from support.random_graphs import BITS, FLOATS, INTEGERS, Dim, Random, Term, Unfit, limits, onnx_type, rounded

USUAL = ("float32", "float32", "float32", "float16", "float64", "int32", "int64", "bfloat16")


# Operands -----------------------------------------------------------------------------------------


def joined(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape to which shapes broadcast in every run, else Unfit."""
    result = []
    for place in range(-max(map(len, shapes), default=0), 0):
        sizes = [s[place] for s in shapes if len(s) >= -place]
        joint = []
        for run in zip(*sizes):
            larger = {n for n in run if n != 1}
            if len(larger) > 1:
                raise Unfit
            joint.append(larger.pop() if larger else 1)
        result.append(tuple(joint))
    return tuple(result)


def fit(x: Term, y: Term) -> bool:
    try:
        joined(x.dims, y.dims)
    except Unfit:
        return False
    return True


def partner(r: Random, x: Term, **leaf) -> Term:
    """An operand of x's type that broadcasts with x: some term, or a new one."""
    found = [t for t in r.terms if t.dtype == x.dtype and t is not x and fit(x, t)]
    if found and not leaf and r.chance(2):
        return r.choice(found)
    if r.chance(8) and not leaf:
        return x
    dims = [d if not r.chance(4) else r.fixed(1) for d in x.dims]
    dims = dims[r.integer(0, len(dims)) if r.chance(3) else 0 :]
    if r.chance(8):
        dims = [r.size(), *dims]
    return r.leaf(x.dtype, dims, **leaf)


def result(x: Term, *others: Term, **changes) -> Term:
    """A term of the common shape."""
    dims = joined(x.dims, *(t.dims for t in others))
    return replace(Term("", x.dtype, dims), **changes)


def either(*terms: Term) -> dict:
    """The bounds of elements that are each one of some term's."""
    return {
        "low": min(t.low for t in terms),
        "high": max(t.high for t in terms),
        "known": None,
        "grid": max(t.grid for t in terms),
        "error": max(t.error for t in terms),
    }


# Operators ----------------------------------------------------------------------------------------


def add_sub(r: Random):
    x = r.pick(dtypes=USUAL)
    y = partner(r, x)
    low, high = (x.low + y.low, x.high + y.high)
    operator = r.choice(("Add", "Sub"))
    if operator == "Sub":
        low, high = x.low - y.high, x.high - y.low
    r.add(
        operator,
        [x, y],
        rounded(result(x, y, low=low, high=high, grid=max(x.grid, y.grid), error=x.error + y.error)),
    )


def mul(r: Random):
    x = r.pick(dtypes=USUAL)
    y = partner(r, x)
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    error = x.error * y.most + y.error * x.most + x.error * y.error
    r.add(
        "Mul",
        [x, y],
        rounded(result(x, y, low=min(corners), high=max(corners), grid=x.grid + y.grid, error=error)),
    )


def div(r: Random):
    x = r.pick(dtypes=(*USUAL, "int8", "uint8"))
    y = partner(r, x, low=1, high=5, grid=2)
    if x.is_float:
        r.add("Div", [x, y], rounded(result(x, y, low=-x.most, high=x.most, grid=99, error=x.error)))
    else:
        r.add("Div", [x, y], result(x, y, low=-x.most, high=x.most))


def mod(r: Random):
    x = r.pick(lambda t: t.exact, ("int32", "int64", "int8", "uint8", "float32"))
    y = partner(r, x, low=1, high=7, grid=2)
    fmod = 1 if x.is_float else r.integer(0, 1)
    r.add("Mod", [x, y], result(x, y, low=-7, high=7, grid=max(x.grid, 2)), fmod=fmod)


def power(r: Random):
    x = r.pick(dtypes=("float32", "float64"))
    exponent = r.choice((2.0, 3.0, 0.5, -1.0, -2.0, 1.0, 0.0))
    x = r.within(x, 0.25, 8) if exponent < 1 else r.within(x, -8, 8)
    most = 520 if exponent > 0 else 20
    slope = abs(exponent) * (200 if exponent > 0 else 64)
    y = r.array(exponent, r.choice((x.dtype, "float32")))
    r.add(
        "Pow",
        [x, y],
        rounded(replace(x, name="", low=-most, high=most, grid=99, known=None, error=x.error * slope), 4),
    )


def extreme(r: Random):
    x = r.pick(dtypes=(*USUAL, "int8", "uint8"))
    terms = [x, *(partner(r, x) for _ in range(r.integer(0, 2)))]
    operator = r.choice(("Max", "Min", "Sum", "Mean")) if x.is_float else r.choice(("Max", "Min"))
    if operator in ("Max", "Min"):
        if not x.is_float and max(t.most for t in terms) >= 2**31:
            raise Unfit  # ONNX Runtime 1.31 mistakes int64 numbers of more than 32 bits
        r.add(operator, terms, result(*terms, **either(*terms)))
        return
    total, share = sum(t.most for t in terms), len(terms) if operator == "Mean" else 1
    r.add(
        operator,
        terms,
        rounded(
            result(
                *terms,
                low=-total / share,
                high=total / share,
                error=sum(t.error for t in terms),
                grid=max(t.grid for t in terms) if share == 1 else 99,
            ),
            len(terms),
            total,
        ),
    )


def plain_unary(r: Random):
    """Operators that leave exact values exact."""
    x = r.pick(dtypes=USUAL)
    operator = r.choice(("Neg", "Abs", "Relu", "Identity", "LeakyRelu", "Clip", "PRelu"))
    if operator == "Neg":
        new = rounded(replace(x, low=-x.high, high=-x.low))
    elif operator == "Abs":
        new = rounded(replace(x, low=0, high=x.most))
    elif operator == "Relu":
        new = replace(x, low=max(x.low, 0), high=max(x.high, 0))
    elif operator == "Clip":
        return clip(r, x)
    else:
        new = replace(x, grid=x.grid + 1)
    if operator == "PRelu" and x.is_float:
        dims = [d if r.chance(2) else r.fixed(1) for d in x.dims[r.integer(0, x.rank) :]]
        slope = r.leaf(x.dtype, dims, 0.5, 1, 1)
        return r.add("PRelu", [x, slope], rounded(new))
    if operator == "LeakyRelu" and x.is_float:
        return r.add("LeakyRelu", [x], rounded(new), alpha=0.5)
    if operator in ("LeakyRelu", "PRelu") or (operator == "Relu" and not x.is_float):
        raise Unfit
    return r.add(operator, [x], replace(new, known=None))


def clip(r: Random, x: Term):
    low, high = sorted((r.integer(-4, 4), r.integer(-4, 4)))
    if x.dtype == "uint8":
        low, high = abs(low), abs(high)
    ends = [r.array(end, x.dtype) if r.chance(2) else r.leaf(x.dtype, (), end, end) for end in (low, high)]
    keep_low, keep_high = not r.chance(4), not r.chance(4)
    new = replace(x, known=None, grid=max(x.grid, 0))
    if keep_low:
        new = replace(new, low=max(new.low, low), high=max(new.high, low))
    if keep_high:
        new = replace(new, low=min(new.low, high), high=min(new.high, high))
    return r.add("Clip", [x, ends[0] if keep_low else None, ends[1] if keep_high else None], new)


#: operator: (least, greatest argument, greatest slope there, greatest result, attributes)
SMOOTH = {
    "Exp": (-9, 4, 55, 55),
    "Log": (0.125, 1e4, 8, 10),
    "Sqrt": (0.0625, 1e4, 2, 100),
    "Tanh": (-9, 9, 1, 1),
    "Sigmoid": (-20, 20, 0.25, 1),
    "Erf": (-6, 6, 1.2, 1),
    "Sin": (-50, 50, 1, 1),
    "Cos": (-50, 50, 1, 1),
    "Tan": (-1, 1, 3.5, 1.6),
    "Atan": (-50, 50, 1, 1.6),
    "Asin": (-0.875, 0.875, 2.1, 1.1),
    "Acos": (-0.875, 0.875, 2.1, 3),
    "Sinh": (-4, 4, 28, 28),
    "Cosh": (-4, 4, 28, 28),
    "Asinh": (-50, 50, 1, 5),
    "Acosh": (1.25, 50, 1.7, 5),
    "Atanh": (-0.875, 0.875, 4.3, 1.4),
    "Softplus": (-20, 20, 1, 21),
    "Softsign": (-50, 50, 1, 1),
    "Elu": (-20, 50, 1, 50),
    "Selu": (-20, 50, 1.8, 60),
    "Celu": (-20, 50, 1, 50),
    "Gelu": (-20, 50, 1.2, 50),
    "Mish": (-20, 50, 1.1, 50),
    "HardSwish": (-20, 50, 1.5, 50),
    "HardSigmoid": (-20, 50, 0.2, 1),
    "Reciprocal": (0.25, 50, 16, 4),
}


def smooth_unary(r: Random):
    """Operators whose results are rounded; their arguments are brought to where they are well conditioned."""
    operator = r.choice(sorted(SMOOTH))
    low, high, slope, most = SMOOTH[operator]
    x = r.within(r.pick(dtypes=("float32", "float32", "float32", "float64", "float16")), low, high)
    most = max(most, slope * min(x.most, high))  # rounding inside is felt through the slope
    if (x.dtype == "float64" and operator == "HardSwish") or (x.dtype != "float32" and operator == "Celu"):
        raise Unfit  # of float32 alone, or with numbers of float32
    r.add(
        operator,
        [x],
        rounded(replace(x, low=-most, high=most, grid=99, known=None, error=x.error * slope), 8),
    )


def step_unary(r: Random):
    """Operators that jump: their arguments are exact."""
    x = r.pick(lambda t: t.exact and t.is_float, ("float32", "float64", "float16"))
    operator = r.choice(("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf", "ThresholdedRelu", "Shrink"))
    new = replace(x, low=math.floor(x.low), high=math.ceil(x.high), known=None)
    if operator in ("IsNaN", "IsInf"):
        new = replace(new, dtype="bool", low=0, high=1, grid=0)
    elif operator in ("Floor", "Ceil", "Round"):
        new = rounded(replace(new, grid=0))
    elif operator == "Sign":
        new = replace(new, low=-1, high=1, grid=0)
    attributes = {"alpha": 0.5} if operator == "ThresholdedRelu" else {}
    if operator == "Shrink":
        attributes = {"lambd": 0.5, "bias": 0.25}
        new = rounded(replace(new, low=x.low - 1, high=x.high + 1, grid=max(x.grid, 2)))
    r.add(operator, [x], new, **attributes)


def compare(r: Random):
    x = r.pick(lambda t: t.exact, ("float32", "float64", "int32", "int64", "float16"))
    y = partner(r, x)
    if not y.exact:
        raise Unfit
    operator = r.choice(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
    r.add(operator, [x, y], result(x, y, dtype="bool"))


def logic(r: Random):
    x = r.pick(dtypes=("bool",))
    if r.chance(4):
        r.add("Not", [x], replace(x, known=None))
    else:
        y = partner(r, x)
        r.add(r.choice(("And", "Or", "Xor")), [x, y], result(x, y))


def bits(r: Random):
    x = r.pick(dtypes=("int32", "int64", "uint8", "int8", "uint32"))
    low, high = limits(x.dtype)
    if r.chance(4):
        r.add("BitwiseNot", [x], replace(x, low=low, high=high, known=None))
    elif x.dtype in ("uint8", "uint32") and r.chance(2):
        y = partner(r, x, low=0, high=7)
        r.add("BitShift", [x, y], result(x, y, low=low, high=high), direction=r.choice(("LEFT", "RIGHT")))
    else:
        y = partner(r, x)
        r.add(r.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), [x, y], result(x, y, low=low, high=high))


def where(r: Random):
    x = r.pick(dtypes=(*USUAL, "uint8", "bool"))
    y = partner(r, x)
    condition = r.pick(lambda t: fit(t, result(x, y)), ("bool",))
    r.add("Where", [condition, x, y], result(x, y, condition, **either(x, y)))


def cast(r: Random):
    x = r.pick(dtypes=(*USUAL, "bool", "uint8", "int8"))
    to = r.choice((*FLOATS, *INTEGERS, "bool"))
    if to in BITS:
        new = rounded(replace(x, dtype=to, known=None))
    elif to == "bool" or x.is_float:
        low, high = limits(to)
        if not x.exact or (to != "bool" and not (low <= x.low and x.high <= high)) or x.dtype == "float16":
            raise Unfit
        new = (
            replace(x, dtype=to, low=0, high=1, grid=0, known=None)
            if to == "bool"
            else replace(x, dtype=to, low=math.floor(x.low), high=math.ceil(x.high), grid=0, known=None)
        )
    else:
        new = rounded(replace(x, dtype=to, known=None))
    r.add("Cast", [x], new, to=onnx_type(to))


TEMPLATES = (
    add_sub,
    add_sub,
    mul,
    mul,
    div,
    mod,
    power,
    extreme,
    plain_unary,
    plain_unary,
    smooth_unary,
    smooth_unary,
    step_unary,
    compare,
    logic,
    bits,
    where,
    cast,
    cast,
)
