"""What the body of a Map changes with its operands: a rule for each scalar operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...errors import UnsupportedError
from ...ir import dtypes, expr
from ...ir.expr import Expr

#: Of a scalar operation, for each argument what its result changes with that, from arguments and result.
_SLOPES: dict[str, Callable[..., tuple[Expr, ...]]] = {
    "neg": lambda x, y: (expr.const(-1, x.dtype),),
    "abs": lambda x, y: (expr.apply("sign", x),),
    "exp": lambda x, y: (y,),
    "expm1": lambda x, y: (y + 1,),
    "log": lambda x, y: (1 / x,),
    "log1p": lambda x, y: (1 / (x + 1),),
    "sqrt": lambda x, y: (0.5 / y,),
    "sin": lambda x, y: (expr.apply("cos", x),),
    "cos": lambda x, y: (-expr.apply("sin", x),),
    "tan": lambda x, y: (1 + y * y,),
    "asin": lambda x, y: (1 / expr.sqrt(1 - x * x),),
    "acos": lambda x, y: (-1 / expr.sqrt(1 - x * x),),
    "atan": lambda x, y: (1 / (1 + x * x),),
    "sinh": lambda x, y: (expr.apply("cosh", x),),
    "cosh": lambda x, y: (expr.apply("sinh", x),),
    "tanh": lambda x, y: (1 - y * y,),
    "asinh": lambda x, y: (1 / expr.sqrt(x * x + 1),),
    "acosh": lambda x, y: (1 / expr.sqrt(x * x - 1),),
    "atanh": lambda x, y: (1 / (1 - x * x),),
    "erf": lambda x, y: (expr.apply("exp", -(x * x)) * (2 / math.sqrt(math.pi)),),
    "add": lambda a, b, y: (expr.const(1, a.dtype), expr.const(1, a.dtype)),
    "sub": lambda a, b, y: (expr.const(1, a.dtype), expr.const(-1, a.dtype)),
    "mul": lambda a, b, y: (b, a),
    "div": lambda a, b, y: (1 / b, -y / b),
    "pow": lambda a, b, y: (b.cast(a.dtype) * expr.power(a, b - 1), y * expr.apply("log", a)),
    "min": lambda a, b, y: (_one_where(a <= b), _one_where(b < a)),
    "max": lambda a, b, y: (_one_where(a >= b), _one_where(b > a)),
}

#: Operations whose results do not change with their arguments, almost everywhere.
_FLAT = frozenset(
    ("sign", "floor", "ceil", "trunc", "round", "not", "isnan", "isinf", "and", "or", "xor", "shl", "shr")
    + ("eq", "ne", "lt", "le", "gt", "ge", "input", "const", "index", "size")
)


def _one_where(condition: Expr) -> Expr:
    return condition.cast("float32")


def slope(body: Expr, operand: int, cotangent: Expr) -> Expr | None:
    """cotangent times what the body changes with an operand; None where it does not."""
    adjoints: dict[int, Expr] = {id(body): cotangent}
    found: list[Expr] = []
    for node in reversed(expr.topological(body)):
        adjoint = adjoints.pop(id(node), None)
        if adjoint is None:
            continue
        if node.op == "input" and node.value == operand:
            found.append(adjoint)
        for argument, part in zip(node.args, _parts(node, adjoint), strict=False):
            if part is not None and dtypes.is_float(argument.dtype):
                before = adjoints.get(id(argument))
                adjoints[id(argument)] = part if before is None else before + part
    return expr.sum_of(found) if found else None


def _parts(node: Expr, adjoint: Expr) -> Sequence[Expr | None]:
    """What belongs to each argument of a scalar operation."""
    if node.op in _FLAT:
        return ()
    if node.op == "cast":
        return (adjoint.cast(node.args[0].dtype),)
    if node.op == "check":
        return (None, adjoint)
    if node.op == "select":
        condition, zero = node.args[0], expr.const(0, adjoint.dtype)
        return (None, expr.where(condition, adjoint, zero), expr.where(condition, zero, adjoint))
    if node.op not in _SLOPES:
        raise UnsupportedError(f"the gradient of the scalar operation {node.op}")
    return [adjoint * s.cast(adjoint.dtype) for s in _SLOPES[node.op](*node.args, node)]
