"""Constants that an op makes of others: at once, or when somebody reads them.

They tell what they were made of (`Constant.derivation`), for those who can do better than with the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import dims, interpret
from .graph import Constant, Derivation
from .ops import LOOKED_THROUGH, Op, Reshape


def computed(op: Op, constants: Sequence[Constant]) -> list[Constant] | None:
    """What the op makes of them, now; None where that fails."""
    arrays = interpret.fold(op, [c.array for c in constants])
    if arrays is None:
        return None
    made = [Constant.of(a) for a in arrays]
    if isinstance(op, LOOKED_THROUGH):
        made[0].derivation = Derivation(op, tuple(constants))
    return made


def put_off(
    op: Op, constants: Sequence[Constant], dtype: str, shape: Sequence[int], make: Callable[[], np.ndarray]
) -> Constant:
    """What the op makes of them, by `make` when the array is asked for."""
    made = Constant(dtype, shape, make)
    made.derivation, made.steps = Derivation(op, tuple(constants)), steps_of(constants)
    return made


def reshaped(op: Reshape, constant: Constant) -> Constant:
    """The constant in another shape, whatever its size: it is the same bytes."""
    shape = dims.numbers(op.shape)
    if constant.splat is not None:
        return Constant(constant.dtype, shape, splat=constant.splat)
    if constant.materialised:
        made = Constant.of(constant.array.reshape(shape))
    else:
        made = Constant(constant.dtype, shape, lambda: constant.array.reshape(shape))
    made.derivation, made.steps = Derivation(op, (constant,)), constant.steps
    return made


def steps_of(constants: Sequence[Constant]) -> int:
    """How many constants are computed when one is made of these: what two of them share is computed twice."""
    return 1 + sum(c.steps for c in {id(c): c for c in constants}.values())
