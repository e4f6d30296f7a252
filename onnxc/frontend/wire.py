"""Protobuf's wire format, read just far enough to leave tensor data where it is.

`scan` walks model > graph > nodes > attributes > tensors through messages of at least `LARGE`
bytes and returns the model without its large tensor data (the skeleton) and where that data lies.
In the skeleton's `raw_data` stands a marker of 24 bytes: 16 random bytes drawn for this scan, which
no file can contain by intent or accident, and the payload's number. It survives copying a message.
Needs neither protobuf nor onnx. Source: protobuf.dev/programming-guides/encoding, onnx.proto.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ModelError

Bytes = Any  # bytes, a mapping of a file, or a memoryview of either

LARGE = 4096  # bytes; smaller messages and tensor data stay in the skeleton
MAX_LEVELS = 100  # nested messages that protobuf itself accepts, about 32 nested subgraphs

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR, SPARSE, FUNCTION, TRAINING = (
    "model",
    "graph",
    "node",
    "attribute",
    "tensor",
    "sparse tensor",
    "function",
    "training info",
)

# The fields through which a message leads to tensors: message -> field number -> message.
CHILDREN: Mapping[str, Mapping[int, str]] = {
    MODEL: {7: GRAPH, 20: TRAINING, 25: FUNCTION},
    GRAPH: {1: NODE, 5: TENSOR, 15: SPARSE},
    NODE: {5: ATTRIBUTE},
    ATTRIBUTE: {5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH, 22: SPARSE, 23: SPARSE},
    SPARSE: {1: TENSOR, 2: TENSOR},
    FUNCTION: {7: NODE, 11: ATTRIBUTE},
    TRAINING: {1: GRAPH, 2: GRAPH},
    TENSOR: {},
}
RAW_DATA = 9
# Packed floats and doubles lie in the file exactly as raw_data would hold them.
PAYLOADS = {4: "float_data", RAW_DATA: "raw_data", 10: "double_data"}
DATA_FIELDS = {**PAYLOADS, 5: "int32_data", 6: "string_data", 7: "int64_data", 11: "uint64_data"}
# An attribute's numbers and short strings, which lead nowhere, many at once: a list has a field for each. A
# field begins with 8 * number + wire type; what is read amiss here, protobuf's own reader refuses.
SCALARS = re.compile(
    rb"(?>[\x08\x10\x18\x20\x28\x30\x38\x40\x48\x50\x58\x60\x68\x70\x78][\x80-\xff]{0,9}[\x00-\x7f]"
    rb"|[\x0d\x15\x1d\x25\x2d\x35\x3d\x45\x4d\x55\x5d\x65\x6d\x75\x7d].{4}"
    rb"|\x4a(?>" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(32)) + rb")){1,4096}",
    re.DOTALL,
)
SINGLE_IN_MODEL = {
    1: "ir_version",
    2: "producer_name",
    3: "producer_version",
    4: "domain",
    5: "model_version",
    7: "graph",
}


@dataclass(frozen=True)
class Payload:
    """Tensor data left in the file: the TensorProto field it was in, and its bytes' place."""

    field: str
    offset: int
    length: int


@dataclass(frozen=True)
class Skeleton:
    """A serialized model without its large tensor data, and where that data lies."""

    data: bytes
    payloads: tuple[Payload, ...]
    token: bytes

    def payload(self, raw_data: bytes) -> Payload | None:
        """The payload that `raw_data` of a tensor of the skeleton stands for, if it is a marker."""
        if len(raw_data) != len(self.token) + 8 or not raw_data.startswith(self.token):
            return None
        return self.payloads[int.from_bytes(raw_data[len(self.token) :], "little")]


@dataclass(slots=True)
class _Message:
    """A message being walked; bytes before `copied` are in `pieces` already."""

    kind: str
    tag: bytes
    end: int
    copied: int
    pieces: list[bytes] = field(default_factory=list)
    data_field: int = 0
    payload: bool = False


def read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """The unsigned varint at `position` and the position after it; at most 64 bits."""
    value = shift = 0
    start = position
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
        shift += 7
        if shift > 63:
            break
    if position >= end and end == len(data):
        raise ModelError(f"the file is truncated: it ends within a number at byte {start}")
    raise ModelError(f"malformed protobuf: bad number at byte {start}")


def write_varint(value: int) -> bytes:
    """`value` (not negative) as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_field(data: Bytes, position: int, end: int, where: str) -> tuple[int, int, int, int]:
    """The field at `position` of a message that ends at `end`: (number, wire type, begin, end).

    `begin` and `end` bound the field's content. `where` names the message in errors."""
    start = position
    tag, position = read_varint(data, position, end)
    number, wire_type = tag >> 3, tag & 7
    if not 0 < number < 1 << 29:
        raise ModelError(f"malformed protobuf: field number {number} in the {where} at byte {start}")
    begin = position
    if wire_type == VARINT:
        _, position = read_varint(data, position, end)
    elif wire_type == BYTES:
        length, begin = read_varint(data, position, end)
        position = begin + length
    elif wire_type == FIXED64:
        position += 8
    elif wire_type == FIXED32:
        position += 4
    else:
        raise ModelError(f"malformed protobuf: wire type {wire_type} in the {where} at byte {start}")
    if position > end:
        size = len(data)
        if position > size:
            raise ModelError(
                f"the file is truncated: field {number} of the {where} at byte "
                f"{start} ends at byte {position}, the file at {size}"
            )
        raise ModelError(
            f"malformed protobuf: field {number} of the {where} at byte {start} runs "
            f"past the end of its message"
        )
    return number, wire_type, begin, position


def scan(data: Bytes) -> Skeleton:
    """The skeleton of the serialized model `data` (bytes, mmap or memoryview of bytes).

    Touches only the headers of what it leaves out. Raises ModelError on malformed protobuf, on
    messages nested deeper than `MAX_LEVELS` and on several models in one file."""
    token = os.urandom(16)
    payloads: list[Payload] = []
    seen_in_model: set[int] = set()
    position = 0
    stack = [_Message(MODEL, b"", len(data), 0)]
    while True:
        message = stack[-1]
        if position == message.end:
            body = b"".join([*message.pieces, data[message.copied : position]])
            stack.pop()
            if not stack:
                return Skeleton(body, tuple(payloads), token)
            stack[-1].pieces += (message.tag, write_varint(len(body)), body)
            stack[-1].copied = position
            continue
        if message.kind == ATTRIBUTE and (scalars := SCALARS.match(data, position, message.end)):
            position = scalars.end()
            continue
        start = position
        number, wire_type, begin, position = read_field(data, start, message.end, message.kind)
        if message.kind == MODEL and number in SINGLE_IN_MODEL:
            if number in seen_in_model:
                raise ModelError(
                    f"the file holds more than one model: {SINGLE_IN_MODEL[number]} "
                    f"occurs again at byte {start}"
                )
            seen_in_model.add(number)
        elif message.kind == TENSOR and number in DATA_FIELDS and position > begin:
            large = wire_type == BYTES and number in PAYLOADS and position - begin >= LARGE
            _check_single_data_field(message, number, large, start)
            if large:
                _cut(data, message, start, position)
                marker = token + len(payloads).to_bytes(8, "little")
                message.pieces += (bytes([RAW_DATA << 3 | BYTES, len(marker)]), marker)
                payloads.append(Payload(PAYLOADS[number], begin, position - begin))
        child = CHILDREN[message.kind].get(number)
        if child and wire_type == BYTES and position - begin >= LARGE:
            if len(stack) > MAX_LEVELS:
                raise nested_too_deep(start)
            _cut(data, message, start, start)
            stack.append(_Message(child, write_varint(number << 3 | BYTES), position, begin))
            position = begin


def nested_too_deep(position: int) -> ModelError:
    """The error for messages nested deeper than protobuf accepts."""
    return ModelError(
        f"messages nest deeper than {MAX_LEVELS} levels at byte {position}, the "
        f"limit of protobuf; subgraphs may nest about {MAX_LEVELS // 3} levels deep"
    )


def _cut(data: Bytes, message: _Message, start: int, resume: int) -> None:
    """Keep the message's bytes up to `start`, and go on from `resume`."""
    message.pieces.append(data[message.copied : start])
    message.copied = resume


def _check_single_data_field(message: _Message, number: int, large: bool, start: int) -> None:
    """Refuse tensors with two data fields, or with large data in several pieces."""
    previous = message.data_field
    if previous and (previous != number or large or message.payload):
        raise ModelError(
            f"the tensor around byte {start} has its data twice: in "
            f"{DATA_FIELDS[previous]} and in {DATA_FIELDS[number]}"
        )
    message.data_field = number
    message.payload = message.payload or large


def explain(data: Bytes, descriptor: Any) -> None:
    """Raise the ModelError that says why protobuf refuses `data`, a message of `descriptor`.

    Walks every message and packed field. Returns if it finds nothing wrong."""
    position = 0
    stack = [(descriptor, len(data))]
    while stack:
        descriptor, end = stack[-1]
        if position == end:
            stack.pop()
            continue
        start = position
        number, wire_type, begin, position = read_field(data, start, end, descriptor.name)
        known = descriptor.fields_by_number.get(number)
        if known is None or wire_type != BYTES:
            continue
        if known.message_type is not None:
            if len(stack) > MAX_LEVELS:
                raise nested_too_deep(start)
            stack.append((known.message_type, position))
            position = begin
        elif known.cpp_type not in (known.CPPTYPE_STRING, known.CPPTYPE_MESSAGE):
            _check_packed(data, known, begin, position)


def _check_packed(data: Bytes, known: Any, begin: int, end: int) -> None:
    """Refuse a packed field whose last number is cut off."""
    size = {known.CPPTYPE_FLOAT: 4, known.CPPTYPE_DOUBLE: 8}.get(known.cpp_type)
    if size is None:
        while begin < end:
            _, begin = read_varint(data, begin, end)
    elif (end - begin) % size:
        raise ModelError(
            f"malformed protobuf: the numbers of {known.name} at byte {begin} take "
            f"{end - begin} bytes, not a multiple of {size}"
        )
