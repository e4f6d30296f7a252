"""The networks inside a search: what their subgraphs are given in each step, and what the next step needs of
it.

`first` runs the words so far, `next` one more. Both give the scores of all words after them [rows,
vocabulary], and a state: keys and values, which grow by a row a step, and what grows with them. All sizes in
a state follow from the number of words, but where a decoder is given all of them in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onnx import GraphProto

from ...errors import UnsupportedError
from ...ir import expr, ops
from ...ir.dims import Dimension
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.common import generate, with_size, zeros
from ..rule_builder import RuleBuilder
from ..tensors import element_type

State = list[Value]


class Network(Protocol):
    """What a search drives."""

    def first(self, b: RuleBuilder, words: Value) -> tuple[Value, State]:
        """Of the words that are there [batch, length]."""

    def next(self, b: RuleBuilder, word: Value, words: Value, state: State) -> tuple[Value, State]:
        """Of one more word [rows, 1], the last of words [rows, length]."""

    def of_rows(self, b: RuleBuilder, state: State, rows: Value, first: bool) -> State:
        """The state of other rows, given by their numbers; `first`: of more rows, each of them for one of the
        batch."""


def of_last(b: RuleBuilder, logits: Value, vocabulary: int) -> Value:
    """float32 [rows, vocabulary] of the last place of logits [rows, length, at least vocabulary]."""
    if logits.rank != 3:
        raise ops.TypeMismatch(f"the scores of its words are {logits.type}, where three axes are needed")
    rows, length, width = logits.shape
    last = b.take(logits, 1, length - 1, 1)
    if vocabulary > 0 and vocabulary != width:
        last, width = b.take(last, 2, 0, vocabulary), vocabulary
    return b.cast(b.reshape(last, (rows, width)), "float32")


def picked(b: RuleBuilder, x: Value, rows: Value, axis: int = 0) -> Value:
    """x with these rows along an axis."""
    return b.emit(ops.Gather("axis", axis), x, rows)[0]


def empty_past(b: RuleBuilder, graph: GraphProto, index: int, batch_axis: int, batch: Dimension) -> Value:
    """An input of a subgraph, keys or values, before there are any: its next to last axis has no places."""
    information = graph.input[index].type.tensor_type
    shape: list[Dimension] = [d.dim_value for d in information.shape.dim]
    if len(shape) < 4 or not all(shape[-3::2]):
        raise ops.TypeMismatch(f"the heads of its subgraph's input '{graph.input[index].name}' are not known")
    shape[batch_axis], shape[-2] = batch, 0
    return zeros(b, element_type(information.elem_type).name, shape)


def check_inputs(graph: GraphProto, names: Sequence[str]) -> None:
    """Refuses a subgraph whose first inputs are not called so, and one that writes into caches with room."""
    found = [i.name for i in graph.input]
    if found[: len(names)] != list(names):
        raise ops.TypeMismatch(f"its subgraph takes {', '.join(found)} where {', '.join(names)} come first")
    if "past_sequence_length" in found:
        raise UnsupportedError("a search whose subgraph writes its keys in place", "export it without")


def run(b: RuleBuilder, graph: GraphProto, inputs: Sequence[Value], least: int) -> list[Value]:
    """The outputs of a subgraph, which are at least so many."""
    outputs = b.site.body(b, graph, inputs)
    if len(outputs) < least:
        raise ops.TypeMismatch(f"its subgraph gives {len(outputs)} outputs where {least} come first")
    return list(outputs)


@dataclass(frozen=True)
class Gpt:
    """A decoder alone. Its state: the position of the next word [rows, 1], which words are no padding [rows,
    length], and for each layer keys and values [2, rows, heads, length, size]. mask: which words are
    seen [rows, length], by default those that are no padding; positions leave padding out in any case."""

    decoder: GraphProto
    padding: int
    vocabulary: int
    mask: Value | None = None
    opening: GraphProto | None = None  # the decoder of the first step, where that is another

    def first(self, b: RuleBuilder, words: Value) -> tuple[Value, State]:
        for graph in (self.decoder, decoder := self.opening or self.decoder):
            check_inputs(graph, ("input_ids", "position_ids", "attention_mask"))
        own = b.map(words, lambda w: expr.where(w.equals(self.padding), expr.const(0, "int32"), 1))
        mask = own if self.mask is None else self.mask
        before = b.emit(ops.Cumulate("sum", 1, True), own)[0]
        positions = b.map(own, before, lambda m, n: expr.where(m.equals(0), 0, n))
        pasts = [empty_past(b, decoder, k, 1, words.shape[0]) for k in range(3, len(decoder.input))]
        logits, *state = run(b, decoder, [words, positions, mask, *pasts], 1)
        following = b.reduce("sum", own, [1], True)
        return of_last(b, logits, self.vocabulary), [following, mask, *state]

    def next(self, b: RuleBuilder, word: Value, words: Value, state: State) -> tuple[Value, State]:
        rows, length = words.shape
        position, mask, *pasts = state
        one = zeros(b, "int32", (rows, 1), 1)
        mask = b.concat([with_size(b, mask, 1, length - 1), one], 1)
        pasts = [with_size(b, past, 3, length - 1) for past in pasts]
        logits, *presents = run(b, self.decoder, [word, position, mask, *pasts], 1)
        following = b.map(position, lambda p: p + 1)
        return of_last(b, logits, self.vocabulary), [following, mask, *presents]

    def of_rows(self, b: RuleBuilder, state: State, rows: Value, first: bool) -> State:
        own, pasts = state[:2], state[2:]  # position and mask are those of all beams of an entry
        if first:
            own = [picked(b, x, rows) for x in own]
        return [*own, *(picked(b, past, rows, 1) for past in pasts)]


@dataclass(frozen=True)
class EncoderDecoder:
    """A decoder that also looks at what an encoder made of other words, or of sound: T5 and Whisper. The
    encoder has run, and so has the first step, of one beam. Its state: for each layer keys and values [rows,
    heads, length, size]."""

    decoder: GraphProto
    vocabulary: int
    constant: list[Value]  # inputs of the decoder between the words and the state, of each beam
    crossed: list[Value]  # keys and values of what the encoder gave, of each beam
    start: tuple[Value, State]  # the scores of the first word and the state before it

    def first(self, b: RuleBuilder, words: Value) -> tuple[Value, State]:
        logits, state = self.start
        return of_last(b, logits, self.vocabulary), state

    def next(self, b: RuleBuilder, word: Value, words: Value, state: State) -> tuple[Value, State]:
        given, pasts = words, state  # how much a decoder of all words adds to its state is its own affair
        last = self.decoder.input[0].type.tensor_type.shape.dim[1:2]
        if [d.dim_value for d in last] == [1]:
            given, pasts = word, [with_size(b, past, 2, words.shape[1] - 1) for past in state]
        logits, *presents = run(b, self.decoder, [given, *self.constant, *pasts, *self.crossed], 1)
        return of_last(b, logits, self.vocabulary), presents[: len(state)]

    def of_rows(self, b: RuleBuilder, state: State, rows: Value, first: bool) -> State:
        return [picked(b, past, rows) for past in state]


def encoded(
    b: RuleBuilder,
    encoder: GraphProto | None,
    decoder: GraphProto,
    inputs: list[Value],
    beams: Dimension,
    vocabulary: int,
) -> EncoderDecoder:
    """The network after its encoder and its first step. inputs: the encoder's, last the decoder's first
    words, which an encoder may leave to the decoder; then the decoder takes nothing else of it but keys and
    values."""
    if encoder is None:
        raise ops.TypeMismatch("its network has no encoder")
    names = [i.name for i in decoder.input]
    constants = [name for name in names if name in ("encoder_attention_mask", "encoder_hidden_states")]
    check_inputs(decoder, ("input_ids", *constants))
    count = max(0, len(decoder.output) - 1)  # of keys and values of words, and of what is encoded
    values = {"encoder_attention_mask": inputs[1]}
    if len(encoder.input) < len(inputs):
        if "encoder_hidden_states" in constants:
            raise ops.TypeMismatch("its encoder does not give the states that the decoder takes")
        crossed = run(b, encoder, inputs[:-1], 0)
        first, batch = 1 + len(constants), inputs[0].shape[0]
        pasts = [empty_past(b, decoder, k, 0, batch) for k in range(first, first + count)]
        given = [inputs[-1], *(values[name] for name in constants), *pasts, *crossed]
        logits, *state = run(b, decoder, given, 1)
    else:
        logits, values["encoder_hidden_states"], *presents = run(b, encoder, inputs, 2)
        state, crossed = presents[:count], presents[count:]
    if len(crossed) != count or len(names) != 1 + len(constants) + 2 * count:
        raise ops.TypeMismatch(f"its encoder gives {len(crossed)} keys and values where {count} are needed")
    rows = generate(b, (inputs[0].shape[0] * beams,), expr.index(0) / expr.size(beams))
    constant = [picked(b, values[name], rows) for name in constants]
    return EncoderDecoder(
        decoder, vocabulary, constant, [picked(b, x, rows) for x in crossed], (logits, state)
    )
