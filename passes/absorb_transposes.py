"""absorb_transposes: a Transpose next to a contraction becomes a permutation of its labels.

contract(transpose(%x) perm=(0, 2, 1, 3), %y) "bhqd", "bhdk" -> "bhqk"
    →   contract(%x, %y) "bqhd", "bhdk" -> "bhqk"

Kernels read operands by strides, so that the heads of an attention are never moved. A Transpose is found
behind a Map of one operand too, and a Reshape that only adds or drops axes of size 1 is a change of labels as
well. A result is permuted in place only where its innermost axis stays, since kernels write along it.
"""
from __future__ import annotations

from dataclasses import replace
from string import ascii_letters

from ..expr import contains
from ..ir import Graph, Rewriter, Value, count_readers
from ..ops import Contract, Map, Reshape, Transpose
from ..target import Target
from .regions import in_regions


def absorb_transposes(graph: Graph, target: Target) -> Graph:
    """graph with transposed operands and results of Contract nodes read and written in place."""
    readers = count_readers(graph)
    rewriter = Rewriter()
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, Contract):
            outputs = rewriter.add(*_operands(rewriter, node.op, inputs), node.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, outputs)
        elif (
            isinstance(node.op, Transpose)
            and _writes_so(inputs[0], node.op.perm)
            and readers[node.inputs[0]] == 1
        ):
            host = inputs[0].producer
            out = "".join(host.op.out[p] for p in node.op.perm)
            outputs = rewriter.add(
                replace(host.op, out=out), host.inputs, host.origin, [node.outputs[0].name]
            )
            rewriter.replace(node.outputs, outputs)
        else:
            rewriter.copy(in_regions(node, lambda g: absorb_transposes(g, target)))
    return rewriter.finish(graph)


def _operands(
    rewriter: Rewriter, op: Contract, inputs: tuple[Value, ...]
) -> tuple[Contract, tuple[Value, ...]]:
    """op with the labels of what its operands were before they were transposed."""
    (lhs, x), (rhs, y) = (op.lhs, inputs[0]), (op.rhs, inputs[1])
    lhs, x = _moved_back(rewriter, lhs, x, rhs, y, op.out)
    rhs, y = _moved_back(rewriter, rhs, y, lhs, x, op.out)
    return replace(op, lhs=lhs, rhs=rhs), (x, y, *inputs[2:])


def _moved_back(
    rewriter: Rewriter, text: str, value: Value, other_text: str, other: Value, out: str
) -> tuple[str, Value]:
    """The labels of an operand, and the operand, as they were before Transposes and changes of unit axes.
    Changes that would give the operand an axis of its own are undone on the way to a Transpose alone."""
    found = text, value
    while value.producer is not None:
        node = value.producer
        inner = node.inputs[0] if node.inputs else None
        if isinstance(node.op, Transpose):
            found = text, value = _before(text, node.op.perm), inner
        elif isinstance(node.op, Reshape):
            labels = _unit_labels(text, value, inner, other_text, other, out)
            if labels is None:
                break
            text, value = labels, inner
            if set(text) <= set(other_text + out + found[0]):
                found = text, value
        elif (
            isinstance(node.op, Map)
            and len(node.inputs) == 1
            and inner.producer
            and isinstance(inner.producer.op, Transpose)
        ):
            if contains(node.op.body, "index", "check") or node.op.shape is not None:
                break
            (value,) = rewriter.add(node.op, inner.producer.inputs, node.origin)
            found = text, value = _before(text, inner.producer.op.perm), value
        else:
            break
    return found


def _before(text: str, perm: tuple[int, ...]) -> str:
    """The labels of what a Transpose turned into something labelled `text`."""
    return "".join(text[perm.index(axis)] for axis in range(len(perm)))


def _unit_labels(
    text: str, value: Value, source: Value, other_text: str, other: Value, out: str
) -> str | None:
    """The labels of `source`, of which `value`, labelled `text`, is a Reshape, if it only adds or drops
    axes of size 1."""
    if [d for d in source.shape if d != 1] != [d for d in value.shape if d != 1]:
        return None
    named = iter(c for c, d in zip(text, value.shape) if d != 1)
    units = [c for c, d in zip(text, value.shape) if d == 1]
    if any(c in out and c not in other_text for c in units):
        return None  # the result has an axis that only this operand gives
    shared = [c for c, d in zip(other_text, other.shape) if d == 1 and c not in text and c in out]
    fresh = [c for c in ascii_letters if c not in text + other_text + out]
    spare = iter([*shared, *units, *fresh])
    return "".join(next(spare) if d == 1 else next(named) for d in source.shape)


def _writes_so(value: Value, perm: tuple[int, ...]) -> bool:
    """Whether the producer can write its result in that order of axes."""
    host = value.producer
    return (
        host is not None
        and isinstance(host.op, Contract)
        and len(host.inputs) == 2
        and perm[-1:] == (len(perm) - 1,)
    )
