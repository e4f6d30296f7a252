"""attend_inputs: a few queries attend to what keys and values are made of.

attention(%q, reshape(map(contract(%x, %u)) { + bias }), reshape(contract(%x, %w)))
    →   contract(attention(contract(%q, %u), %x, %x), %w)

What a query is multiplied with is a product of the tokens and weights, and so is what is weighed. Of few
queries (a classifier's first token, those that a pool has learned) it takes less to multiply them with the
weights than all tokens. A bias of keys adds the same to all scores of a query, which changes no weight; one
of values comes back whole where there are tokens, for weights add up to 1.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.expr import input_, where
from ..ir.graph import Graph, Node, Rewriter, Value, reshaped_constant
from ..ir.ops import Attention, Contract, Elements, Map, Reshape
from ..records import dataclass

SAVED = 4  # times fewer products: what else there is to do takes time, too


@everywhere
def attend_inputs(graph: Graph) -> Graph:
    """graph in which few queries attend to tokens as they are before keys and values are made of them."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        found = _match(node, rewriter) if isinstance(node.op, Attention) else None
        if found is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [_written(rewriter, node, *found)])
    return rewriter.finish()


@dataclass(frozen=True)
class _Heads:
    """contract(x, weights) + bias as [..., heads, length], the weights [channels, heads, length]."""

    x: Value
    weights: Value
    bias: Value | None


def _match(node: Node, rewriter: Rewriter) -> tuple[_Heads, _Heads] | None:
    """Of what keys and values are made, where that has fewer products than they have."""
    op, (q, k, v, *bias) = node.op, [rewriter.of(value) for value in node.inputs]
    if not isinstance(op, Attention) or op.defined or op.narrow or {q.dtype, k.dtype} != {"float32"}:
        return None
    heads, (keys, values) = op.k[-2:-1], (_heads(value, rewriter) for value in (k, v))
    if keys is None or values is None or keys.x is not values.x:
        return None
    merged = (f"{op.k[:-3]}q{heads}d", f"{op.k[:-3]}{heads}qd")  # of heads and queries, which become queries
    if op.q not in merged or not op.k.endswith(f"k{heads}d") or op.v != op.k.replace("d", "e"):
        return None
    if any(size != 1 for v in bias for size in v.shape[-3:-1]):
        return None
    channels, _, length = dims.numbers(keys.weights.shape)
    queries, tokens = (
        dims.typical(v.shape[s.index(label)]) for v, s, label in ((q, op.q, "q"), (k, op.k, "k"))
    )
    now, then = tokens * channels * length, queries * channels * (length + tokens)
    return (keys, values) if SAVED * then <= now else None


def _written(rewriter: Rewriter, node: Node[Attention], keys: _Heads, values: _Heads) -> Value:
    """What stands for the Attention of queries [..., queries and heads in either order, length]."""
    op, (q, _, _, *bias), origin = node.op, [rewriter.of(v) for v in node.inputs], node.origin
    batch, heads = op.k[:-3], op.k[-2]
    (channels, *_) = values.weights.shape
    made = op.q.replace("d", "e")
    (q,) = rewriter.add(Contract(op.q, f"e{heads}d", made, "float32"), [q, keys.weights], origin)
    apart = q.shape
    (q,) = rewriter.add(Reshape((*apart[:-3], apart[-3] * apart[-2], channels)), [q], origin)
    for k, scores in enumerate(bias):
        if scores.rank > 2:
            shape = (*scores.shape[:-3], *scores.shape[-2:])
            (bias[k],) = rewriter.add(Reshape(shape), [scores], origin)
    attention = replace(op, q=f"{batch}qd", k=f"{batch}kd", v=f"{batch}ke", out=f"{batch}qe")
    found = rewriter.add(attention, [q, keys.x, values.x, *bias], origin)
    found = rewriter.add(Reshape(apart), found, origin)
    found = rewriter.add(Contract(op.q, f"d{heads}e", op.out, "float32"), [*found, values.weights], origin)
    if values.bias is None:
        return found[0]
    along = [values.weights.shape[1] if label == heads else 1 for label in op.out[:-1]]
    added = reshaped_constant(values.bias, (*along, values.weights.shape[2]))
    tokens = keys.x.shape[-2]
    count = rewriter.add(Elements((tokens,), (1,)), [], origin) if not dims.at_least(tokens, 1) else ()
    a, b, n = input_(0, "float32"), input_(1, "float32"), input_(2, "int64")
    body = where(n.equals(0), a, a + b) if count else a + b
    return rewriter.add(Map(body), [*found, added, *count], origin)[0]


def _heads(value: Value, rewriter: Rewriter) -> _Heads | None:
    """What keys or values [..., heads, length] are made of, where nobody else reads what is between."""

    def made(value: Value) -> Node | None:
        return value.producer if rewriter.readers[value] == 1 else None

    split, bias = made(value), None
    if split is None or not isinstance(split.op, Reshape) or split.inputs[0].shape[:-1] != value.shape[:-2]:
        return None
    whole = split.inputs[0]
    summed = made(whole)
    if summed is not None and isinstance(summed.op, Map):
        a, b = (input_(k, "float32") for k in (0, 1))
        constants = [v for v in summed.inputs if v.constant is not None and v.shape == whole.shape[-1:]]
        if summed.op.body not in (a + b, b + a) or len(constants) != 1:
            return None
        (bias,), (whole,) = constants, [v for v in summed.inputs if v not in constants]
        summed = made(whole)
    if summed is None or not isinstance(summed.op, Contract) or summed.op.epilogue is not None:
        return None
    op, (x, weights) = summed.op, summed.inputs
    plain = weights.constant is not None and {x.dtype, weights.dtype, op.accumulate} == {"float32"}
    rows, k, n = op.lhs[:-1], op.lhs[-1], op.out[-1]
    if not plain or op.exact or op.rounded or (op.rhs, op.out) != (k + n, rows + n) or k in rows + n:
        return None
    return _Heads(x, reshaped_constant(weights, (*weights.shape[:1], *value.shape[-2:])), bias)
