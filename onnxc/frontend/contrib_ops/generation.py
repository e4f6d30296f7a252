"""Searches for the words that follow others: GreedySearch, Sampling and BeamSearch."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from onnx import GraphProto

from ...errors import UnsupportedError
from ...ir import expr, ops
from ...ir.dims import Dimension
from ...ir.graph import Value
from ..onnx_ops.common import checked, insert_axes, one_of, scalar, zeros
from ..onnx_ops.movement import padded
from ..rule_builder import RuleBuilder
from ..rules import Types
from .beams import Beams
from .logits import Limits
from .networks import Gpt, Network, encoded
from .schema import Half, contrib_op
from .searches import Greedy, Sampled, search
from .timestamps import Timestamps

Number = Annotated[Value, Types.of("I", "int32")]
Real = Annotated[Value, Types.of("T", "float")]

_RANKS: dict[str, int | str] = {
    **{"input_ids": 2, "vocab_mask": 1, "prefix_vocab_mask": 2, "attention_mask": 2},
    "*": "<=1",
}


def most_words(b: RuleBuilder, limit: Value, words: Value) -> Dimension:
    """How many words there may be, more than there are, [rows, length]."""
    if words.rank != 2:
        raise ops.TypeMismatch(f"its first words are {words.type}, where two axes are needed")
    length = words.shape[1]
    whole = b.cast(scalar(b, limit, "max_length"), "int64")
    return b.dimension(checked(b, whole, lambda n: n > expr.size(length), "invalid_value"), 1, "most")


def filled(b: RuleBuilder, words: Value, most: Dimension, padding: int) -> Value:
    """The words [rows, most] with padding behind them."""
    behind = b.constant(padding, "int32")
    return padded(b, words, (0, 0), (0, most - words.shape[1]), "constant", behind)


@contrib_op(outputs="sequences", ranks=_RANKS)
def GreedySearch(
    b,
    input_ids: Number,
    max_length: Number,
    min_length: Number | None = None,
    repetition_penalty: Real | None = None,
    vocab_mask: Number | None = None,
    prefix_vocab_mask: Number | None = None,
    attention_mask: Number | None = None,
    *,
    decoder: GraphProto,
    decoder_start_token_id=-1,
    encoder: GraphProto | None = None,
    eos_token_id: int,
    init_decoder: GraphProto | None = None,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    vocab_size=-1,
):
    """The likeliest next word, one after the other, until all rows have ended; padding behind that."""
    _only_gpt(model_type)
    most = most_words(b, max_length, input_ids)
    limits = Limits(
        eos_token_id,
        _one(b, repetition_penalty),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        _one(b, min_length),
    )
    network = Gpt(decoder, pad_token_id, vocab_size, attention_mask, init_decoder)
    words, _, _ = search(b, network, Greedy(limits, eos_token_id, pad_token_id), input_ids, most)
    return filled(b, words, most, pad_token_id)


@contrib_op(outputs="sequences filtered_logits?", ranks={**_RANKS, "presence_mask": 2})
def Sampling(
    b,
    input_ids: Number,
    max_length: Number,
    min_length: Number | None = None,
    repetition_penalty: Real | None = None,
    vocab_mask: Number | None = None,
    prefix_vocab_mask: Number | None = None,
    attention_mask: Number | None = None,
    presence_mask: Number | None = None,
    seed: Number | None = None,
    *,
    custom=0,
    decoder: GraphProto,
    decoder_start_token_id=-1,
    encoder: GraphProto | None = None,
    eos_token_id: int,
    filter_value=-1e20,
    init_decoder: GraphProto | None = None,
    min_tokens_to_keep=0,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    presence_penalty=0.0,
    temperature=1.0,
    top_p=0.0,
    vocab_size=-1,
):
    """GreedySearch that draws words by their scores. Equal seeds give equal words, but not ONNX Runtime's,
    whose generator is another."""
    _only_gpt(model_type)
    most = most_words(b, max_length, input_ids)
    present = None
    if presence_mask is not None and presence_penalty != 0:
        present = b.map(presence_mask, lambda m: m.cast("float32") * presence_penalty)
    limits = Limits(
        eos_token_id,
        _one(b, repetition_penalty),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        _one(b, min_length),
        b.constant(np.float32(temperature)) if temperature not in (0, 1) else None,
        present,
    )
    start = b.constant(np.zeros((), np.int32)) if seed is None else seed
    choice = Sampled(
        limits, eos_token_id, pad_token_id, top_p, min_tokens_to_keep, bool(custom), filter_value, start
    )
    network = Gpt(decoder, pad_token_id, vocab_size, attention_mask, init_decoder)
    words, _, _ = search(b, network, choice, input_ids, most)
    return filled(b, words, most, pad_token_id)


Source = Annotated[Value, Types.of("F", "float", "int32", "float16")]
Mask = Annotated[Value, Types.of("M", "int32")]
GPT, T5, WHISPER = range(3)


@contrib_op(outputs="sequences sequences_scores? scores?", ranks={**_RANKS, "decoder_input_ids": 2})
def BeamSearch(
    b,
    input_ids: Source,
    max_length: Number,
    min_length: Number | None,
    num_beams: Number,
    num_return_sequences: Number,
    length_penalty: Half | None = None,
    repetition_penalty: Half | None = None,
    vocab_mask: Mask | None = None,
    prefix_vocab_mask: Mask | None = None,
    attention_mask: Number | None = None,
    decoder_input_ids: Number | None = None,
    logits_processor: Number | None = None,
    *,
    decoder: GraphProto,
    decoder_start_token_id=-1,
    early_stopping=0,
    encoder: GraphProto | None = None,
    eos_token_id: int,
    init_decoder: GraphProto | None = None,
    model_type=0,
    no_repeat_ngram_size=0,
    pad_token_id: int,
    vocab_size=-1,
):
    """The best words that several beams find [batch, returned, max_length]; their scores; and the scores of
    all words in each step [steps, batch, beams, vocabulary], 0 behind the last one."""
    one_of(model_type, (GPT, T5, WHISPER), "model_type")
    if model_type == WHISPER:
        _no_timestamps(b, logits_processor)
    if model_type == GPT:
        network: Network = Gpt(decoder, pad_token_id, vocab_size, attention_mask, init_decoder)
        words, beams = input_ids, _count(b, num_beams)
    else:
        words = _first_words(b, input_ids, decoder_input_ids, decoder_start_token_id)
        inputs, beams = [input_ids, words], _count(b, num_beams)
        if model_type == T5:
            inputs.insert(1, attention_mask or _behind_padding(b, input_ids, pad_token_id))
        network = encoded(b, encoder, decoder, inputs, beams, vocab_size)
    limits = Limits(
        eos_token_id,
        _one(b, repetition_penalty),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        _one(b, min_length),
    )
    most = most_words(b, max_length, words)
    choice = _beams(b, limits, pad_token_id, beams, most, length_penalty, early_stopping)
    return _beam_search(b, network, choice, words, num_return_sequences)


@contrib_op(
    outputs="sequences sequences_scores? scores? cross_qk? non_speech_probs?",
    ranks={
        **_RANKS,
        "input_ids": "2 or 3",
        "decoder_input_ids": 2,
        "cross_qk_layer_head": 2,
        "extra_decoding_ids": 2,
    },
)
def WhisperBeamSearch(
    b,
    input_ids: Source,
    max_length: Number,
    min_length: Number | None,
    num_beams: Number,
    num_return_sequences: Number,
    length_penalty: Half | None = None,
    repetition_penalty: Half | None = None,
    vocab_mask: Mask | None = None,
    prefix_vocab_mask: Mask | None = None,
    attention_mask: Number | None = None,
    decoder_input_ids: Number | None = None,
    logits_processor: Number | None = None,
    cross_qk_layer_head: Number | None = None,
    extra_decoding_ids: Number | None = None,
    temperature: Half | None = None,
    *,
    beginning_timestamp_token_id: int | None = None,
    decoder: GraphProto,
    decoder_output_cross_qk: int | None = None,
    decoder_start_token_id=-1,
    early_stopping=0,
    encoder: GraphProto | None = None,
    eos_token_id: int,
    init_decoder: GraphProto | None = None,
    model_type=2,
    no_repeat_ngram_size=0,
    no_speech_token_id: int | None = None,
    no_timestamps_token_id: int | None = None,
    pad_token_id: int,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size=-1,
):
    """BeamSearch for Whisper, whose scores may be divided by a temperature. Which parts of the sound words
    look at, and whether there is speech, are for other processors."""
    one_of(model_type, (WHISPER,), "model_type")
    words = _first_words(b, input_ids, decoder_input_ids, decoder_start_token_id)
    beams = _count(b, num_beams)
    network = encoded(b, encoder, decoder, [input_ids, words], beams, vocab_size)
    limits = Limits(
        eos_token_id,
        _one(b, repetition_penalty),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        _one(b, min_length),
        _one(b, temperature),
        timestamps=_timestamps(
            b,
            logits_processor,
            eos_token_id,
            beginning_timestamp_token_id,
            (no_timestamps_token_id, start_of_lm_token_id),
            (decoder_start_token_id, translate_token_id, transcribe_token_id),
        ),
    )
    most = most_words(b, max_length, words)
    choice = _beams(b, limits, pad_token_id, beams, most, length_penalty, early_stopping)
    return _beam_search(b, network, choice, words, num_return_sequences)


def _beams(
    b: RuleBuilder,
    limits: Limits,
    padding: int,
    beams: Dimension,
    most: Dimension,
    length_penalty: Value | None,
    early_stopping: int,
) -> Beams:
    """How words are chosen, with the scores of all of them where they are an output."""
    penalty, collects = _one(b, length_penalty), b.site.wanted[2:3] == (True,)
    return Beams(limits, limits.end, padding, beams, most, penalty, bool(early_stopping), collects)


def _beam_search(
    b: RuleBuilder, network: Network, choice: Beams, words: Value, returned: Value
) -> tuple[Value, Value, Value | None]:
    """(the best words, their scores, the scores of all words in each step where they are collected)."""
    asked = checked(
        b, scalar(b, returned), lambda n: n.cast("int64") <= expr.size(choice.beams), "invalid_value"
    )
    count = _count(b, asked)
    found, own, collected = search(b, network, choice, words, choice.most)
    sequences, scores = choice.finished(b, found, own, count)
    steps = _steps(b, *collected[0], choice.most - words.shape[1]) if choice.collects else None
    return sequences, scores, steps


def _count(b: RuleBuilder, x: Value) -> Dimension:
    """A number of beams or sequences."""
    return b.dimension(scalar(b, x), 1, "beams")


def _first_words(b: RuleBuilder, inputs: Value, given: Value | None, start: int) -> Value:
    """int32 [batch, length]: the words given to the decoder, or the one that everything starts with."""
    return zeros(b, "int32", (inputs.shape[0], 1), start) if given is None else given


def _timestamps(
    b: RuleBuilder,
    processor: Value | None,
    end: int,
    begin: int | None,
    never: tuple[int | None, ...],
    not_later: tuple[int | None, ...],
) -> Timestamps | None:
    """The rules of timestamps, where a search may be asked for them; none speaks of words not named."""
    known = b.known(processor)
    if processor is None or (known is not None and not known.any()):
        return None
    if begin is None:
        raise ops.TypeMismatch("which words are timestamps is not known")
    lists = [tuple(n for n in numbers if n is not None and n >= 0) for numbers in (never, not_later)]
    return Timestamps(b.reshape(processor, ()), end, begin, *lists)


def _no_timestamps(b: RuleBuilder, processor: Value | None) -> None:
    known = b.known(processor)
    if processor is not None and (known is None or known.any()):
        raise UnsupportedError("a search that asks for timestamps", "export it without logits_processor")


def _behind_padding(b: RuleBuilder, words: Value, padding: int) -> Value:
    """int32: 1 for words from the first on that is no padding."""
    own = b.map(words, lambda w: expr.where(w.equals(padding), expr.const(0, "int32"), 1))
    return b.map(b.emit(ops.Cumulate("sum", 1), own)[0], lambda n: n.minimum(1))


def _steps(b: RuleBuilder, first: Value, others: Value, count: Dimension) -> Value:
    """What was collected of the first step and of others, with zeros for those that were not taken."""
    whole = b.concat([insert_axes(b, first, [0]), others], 0)
    return padded(b, whole, (0,) * 4, (count - whole.shape[0], 0, 0, 0))


def _only_gpt(model_type: int) -> None:
    if model_type != 0:
        raise UnsupportedError(f"a search of model type {model_type} that has no beams", "use BeamSearch")


def _one(b: RuleBuilder, x: Value | None) -> Value | None:
    """The one element of an input that may be absent."""
    return None if x is None else b.reshape(x, ())
