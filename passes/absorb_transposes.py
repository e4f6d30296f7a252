"""absorb_transposes: a Transpose next to a contraction becomes a permutation of its labels.

contract(transpose(%x) perm=(0, 2, 1, 3), %y) "bhqd", "bhdk" -> "bhqk"   →   contract(%x, %y) "bqhd", "bhdk" -> "bhqk"

Kernels read operands by strides, so that the heads of an attention are never moved. A result is permuted in place only where its
innermost axis stays, since kernels write along it.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir import Graph, Rewriter, Value
from ..ops import Contract, Transpose
from ..target import Target
from .regions import in_regions


def absorb_transposes(graph: Graph, target: Target) -> Graph:
    """graph with transposed operands and results of Contract nodes read and written in place."""
    readers = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs)
    rewriter = Rewriter()
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, Contract):
            outputs = rewriter.add(*_operands(node.op, inputs), node.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, outputs)
        elif isinstance(node.op, Transpose) and _writes_so(inputs[0], node.op.perm) and readers[node.inputs[0]] == 1:
            host = inputs[0].producer
            out = "".join(host.op.out[p] for p in node.op.perm)
            outputs = rewriter.add(replace(host.op, out=out), host.inputs, host.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, outputs)
        else:
            copied = rewriter.copy(in_regions(node, lambda g: absorb_transposes(g, target)), inputs)
            rewriter.replace(node.outputs, copied.outputs)
    return rewriter.finish(graph)


def _operands(op: Contract, inputs: tuple[Value, ...]) -> tuple[Contract, tuple[Value, ...]]:
    """op with the labels of what its operands were before they were transposed."""
    labels, values = [], []
    for text, value in zip((op.lhs, op.rhs), inputs):
        while value.producer is not None and isinstance(value.producer.op, Transpose):
            perm = value.producer.op.perm
            text = "".join(text[perm.index(axis)] for axis in range(len(perm)))
            value = value.producer.inputs[0]
        labels.append(text)
        values.append(value)
    return replace(op, lhs=labels[0], rhs=labels[1]), (*values, *inputs[2:])


def _writes_so(value: Value, perm: tuple[int, ...]) -> bool:
    """Whether the producer can write its result in that order of axes."""
    host = value.producer
    return host is not None and isinstance(host.op, Contract) and len(host.inputs) == 2 and perm[-1] == len(perm) - 1
