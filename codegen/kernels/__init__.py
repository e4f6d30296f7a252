"""The kernels, in the order that breaks ties between equal estimates; `loop_nest`, which takes everything,
is last."""

from ..kernel import Kernel
from . import (
    attention,
    conv,
    conv_grouped,
    conv_stem,
    conv_transpose,
    depthwise,
    gemm,
    gemm_matrix,
    loop_nest,
    pool,
    random,
    recurrent,
    reorder,
    rows,
    sort,
    trees,
    winograd,
)

KERNELS: tuple[Kernel, ...] = (
    gemm,
    gemm_matrix,
    conv,
    winograd,
    conv_stem,
    depthwise,
    conv_grouped,
    conv_transpose,
    pool,
    attention,
    rows,
    recurrent,
    reorder,
    sort,
    trees,
    random,
    loop_nest,
)
