"""How a rule of com.microsoft says what its operator takes: there the rule is the only schema.

    @contrib_op(outputs="Y mean?")
    def Name(b, X: T, B: T | None = None, *, axis=-1, clip: float | None = None): ...

Inputs are annotated with a type variable, keywords without a default value with their type. The reference is
ONNX Runtime's behaviour: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ...ir.graph import Value
from ..rules import Types, onnx_op

contrib_op = partial(onnx_op, since=1, domain="com.microsoft")

FLOATS = ("float", "double", "float16")
#: What most fused operators compute in.
FUSED_FLOATS = ("float", "float16", "bfloat16")
BYTES = ("int8", "uint8")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

#: The type variables that many schemas share.
T = Annotated[Value, Types.of("T", *FUSED_FLOATS)]
Half = Annotated[Value, Types.of("T", "float", "float16")]
Wide = Annotated[Value, Types.of("T", *FLOATS)]
Bytes = Annotated[Value, Types.of("T", *BYTES)]
Scale = Annotated[Value, Types.of("tensor(float)", "float")]
Int64 = Annotated[Value, Types.of("tensor(int64)", "int64")]
