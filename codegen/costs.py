"""What code takes, in nanoseconds of one core. Constants of time are in this file; kernels combine them.

    Estimate = compute (instructions on vectors) + memory (bytes by the cache they come from) + overhead
A processor's speed is `target.facts`; what the facts do not say is named here, a line for each constant
that says what it stands for. `benchmarks/calibrate.py` holds all of it against measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..ir import dims, dtypes, expr
from ..ir.arithmetic import multiply_adds
from ..ir.dims import Dimension
from ..ir.expr import Expr
from ..ir.graph import Constant, Graph, Node, TensorType, Value, regions
from ..ir.ops import Conv, Gather, Map
from ..records import dataclass
from ..target import LINE, Ability, Dot, Matrix, Target

# Constants ---------------------------------------------------------------------------------------

#: Instructions in whose time an operation on a vector is done, where that is not one.
INSTRUCTIONS = {
    "exp": 20,
    **dict.fromkeys(("tanh", "expm1"), 22),
    **dict.fromkeys(("log", "log1p"), 54),
    "erf": 20,
    **dict.fromkeys(("sin", "cos"), 72),
    "acos": 36,
    **dict.fromkeys(("tan", "atan", "asin", "atanh"), 98),
    **dict.fromkeys(("sinh", "cosh"), 130),
    **dict.fromkeys(("asinh", "acosh", "pow"), 275),
    **dict.fromkeys(("mod", "fmod"), 16),
    **dict.fromkeys(("round", "floor", "ceil", "trunc"), 2),
}
#: Divisions in whose time another such operation is done: these are few instructions, but slow.
DIVISIONS = {"div": 1.0, "sqrt": 1.5}
DIVIDED = 10  # instructions of one, at least
ROOTS = {0.25: 2, 0.5: 1, 0.75: 2}  # that make a power
RECIPROCAL_ROOT = 15  # instructions of such a power's reciprocal, from estimates

#: Of float32, where the coefficients of their pieces are permuted from registers.
IN_PIECES = {"erf": 18, "tanh": 26}
TOGETHER = 4  # pixels whose bytes fill a register, of which sums fill one each
CHOSEN = 2  # between two rows of a table, by a bit
JOINED = 3  # a byte with the others of its element
QUOTIENT = 2  # instructions of a quotient by a number, a product and a multiply-add

HIDDEN = 0.8  # how much of the shorter of compute and memory the longer hides

# Loads.
WINOGRAD_BYTES = 1.1  # for each instruction of a transform of bytes, whose vectors become half as long
ROW_TAP = 1.1  # of a vector of a pooled row: loaded and added

# Instructions, on whole vectors.
WHOLE_POOL = 1.3  # a vector of an image that is pooled as a whole: loaded and added
REDUCED_ROW = 12  # to begin and end the loops along a row whose terms are in the lanes, and combine these
REDUCED_PLACES = 28  # the same where places are kept too
KEPT_NAN = 2  # that each wait for the one before, to find the greater of two numbers, or the one that is none
SHUFFLED = 2.5  # of a vector of a square that is transposed in registers, for each of its stages
OF_WHOLE_WORDS = 4  # of a vector of pixels that are words each, put together in blocks of channels
PERMUTED = 7  # of a vector of columns: places loaded, counted from the first, vectors loaded, permuted
NEST_PRODUCT = 24  # of a convolution in loop_nest, whose sums lie in memory
NEST_TAP = 8  # of a pooling window's tap in loop_nest
STRIDED = 4  # times as many where what a vector needs does not lie together
GATHERED = 1.3  # to load one of a vector's elements by itself
ALONE = 4.0  # the same of bytes and halves, which no instruction gathers
ELEMENT = 1.5  # to copy one by itself
EVERY = 6  # of a vector of elements that lie a few apart
INTERLEAVED = 5  # of a vector of few rows that become columns, or the other way round
BEGUN = 1  # to begin a row that is written without loops
LOOPED = 12  # the same with loops over whole vectors and what is left
VARYING = 25  # of an operand of which the run says whether it repeats along rows
WIDENED = 5  # of a dot product of bytes by two products of 16 bits: these, two sums, a share of the words
OF_PAIRS = 3.1  # the same by sums of two products in 16 bits: these, sums of two, a sum
OF_WORDS = 4  # the same by two products of words: these, two sums
TO_WORDS = 0.6  # of that, to make words of a vector of bytes
PAIRED = 2.3  # of products of pairs of 16 bits: these, a sum, a share of the broadcasts
HALF_AS_WIDE = 0.68  # of these and of shuffles, on vectors of 32 bytes: of such more are done at a time
UNFUSED = 3  # of a multiply-add where there is none: a copy, a product and a sum
UNFUSED_PAIR = 5  # the same of pairs of 16 bits
UNFUSED_ROW = 2  # of a row's number there: a load, and a shuffle that broadcasts it
DECODED = 4  # that bring a vector of codes to numbers
MENDED = 100  # of a weight without a code, for which those beside it are decoded into memory
DECODED_HALF = 1  # the same of halves
CODES_LOADED = 1.5  # of a vector of codes that become bytes, for all rows of a tile
BYTES_BROADCAST = 0.5  # of four bytes of a row, for all vectors of a tile
BLOCK_SCALED = 3  # of a vector of a block's sums: a conversion, a product and a sum
ROUNDED = 12  # of a vector of numbers, to 8 bits
ROUNDED_STATE = 20  # the same of a state
IN_DIGITS = 40  # of a vector of numbers that are split into digits
SMALL = 12  # to make a float32 of a float of 8 bits or less
TO_SMALL = 22  # to round a float32 to one
CONVERTED = 3  # to bring a vector from or to fewer bits than it is computed in
PLACED = 2  # to put an element of weights into its lane of a panel
SCAN = 4  # of a step of a running total, which waits for the one before
ARGMAX = 3  # times as many where places are kept too
CELL = 60  # that the gates of a recurrent cell take, a vector
SOFTMAX = 24  # from a row's maximum to its sum, a vector of attention's weights
BROADCAST = 1.02  # a step whose numbers are in registers of their own: fewer steps are under way at once
TILE_VECTOR = 2  # to begin and store one vector of a tile
HANDED_ON = 3  # of a vector of sums that a slice of channels takes over from the one before, and hands on
UNALIGNED = 14  # of a vector stored across two lines of the cache, by turns with those of other channels
NARROW_PANEL = 1.05  # a tile narrower than the others, which are alternated with it
MATRIX_ROWS = 0.6  # of a matrix register's time that goes with its rows
FURTHER = 1.3  # a step of a product of pairs that follows for one whose sums might saturate
AROUND_ROWS = 4  # steps' time: before and behind those that add rows of a matrix to a vector of sums
GROUPED_PANEL = 30  # products of a vector: a panel of a grouped convolution, besides its steps of k
GROUPED_STEP = 0.9  # and each of these
TWO_GROUPS = 0.6  # and each of these where lanes have channels of two groups
SPREAD = 0.6  # a product of a transposed convolution whose results are channels of one vector

# To begin reading beyond the second-level cache, until what follows is fetched ahead.
FAR = 2500.0  # bytes at the third-level cache's rate: as long as these take, the first is waited for
FARTHER = 350.0  # nanoseconds: how much longer that takes from memory
AHEAD = 4096  # bytes: no more is fetched ahead than a page
FIRST = 0.25  # of that wait, for each computed operand: several come at a time
SUMMED = 0.6  # of the time that sums take to a result and back, which products do not hide
OTHERS = 6.0  # bytes a nanosecond that other cores bring into the last-level cache, which is theirs too
CODE = 2.0  # times as long as bytes of a copy take those of code that was not used for long
CODE_BYTES = 8  # that a line of a kernel's text becomes

# Cycles.
STEP = 94.5  # to begin and end a step on one thread
PART = 16.8  # to find out where a part of a nest lies
SIZED_PART = 31.5  # the same where sizes are divided by that the run tells
PACKED_WORD = 1.5  # of a panel, a group of neighbours put together
PIECE_ROW = 12.0  # of a piece of some rows of a matrix: the loop along it begun and ended
COPIED_STEP = 2.5  # of a tile's rows, brought together by a loop
COPIED_ROW = 42.0  # of an image, to scratch with its padding
TILE = 25.2  # of a tile's function: the call, the misprediction where its loop ends
CONV_TILE = 21.0  # the same in a convolution, whose tiles follow each other in a loop
DEPTHWISE_TILE = 8.4  # of some pixels of a depthwise convolution: the latency of a window's sum
ROW_SUM = 1.5  # of a tile whose lanes run along k: two vectors added up across lanes, a round
WINOGRAD = 0.84  # an instruction of a transform: operands lie in t * t matrices apart
POOL_TAP = 0.2  # a tap of a pooling window along one axis, of any number of bytes
POOL_VECTOR = 0.75  # the same for each vector of bytes
SCATTERED = 12.0  # a line beyond the second-level cache that is written far from the one before
POOL_ROW = 8.4  # of a row that is pooled along one axis: the call, the misprediction where its loop ends
MAXIMUM = 1.2  # of a sum's step: two comparisons and a choice
SPLIT_LOADS = 24.0  # of a line that is read across vectors which were just written: these must arrive
POOL_PLANE = 10.5  # of a plane that is pooled as a whole: its sums combined
LOOKUP = 1.3  # an index looked up, checked and followed
LOOKED_UP = 0.6  # the same of a lane of a vector, or of a few places that all rows share
POOLED = 0.6  # the same, of a window
FOLDED = 4.2  # to find the place that a mirrored border repeats
FOLDED_ROW = 25.2  # to combine the lanes of a row, waiting for each halving
SIZE = 2.1  # a number that the run computes
RANDOM = 8.4  # a random number
ATTENTION_ROW = 126.0  # a query: its maximum, its sum and its share of packing keys
RANK = 4.2  # an element of a short line to be sorted, besides comparing it
COMPARED = 2.1  # a vector of a short line compared
INSERTED = 11  # an element put among the first few of a line, where each is
FOUND = 40  # the same where it was found by comparing vectors with the last of these
FEW_OF_LINE = 100  # besides, a line
BESIDE = 0.7  # an element of a line that is sorted beside others, compared with the last that is wanted
BEHIND = 0.4  # the same, where it is gathered: lines lie one behind another
MOVED_UP = 0.4  # the same for each place that it is compared and moved in
KEY = 8.4  # an element's key made and unmade, in a long line
DIGIT = 3.2  # an element put where one digit of its key says
COUNTED = 2.1  # one of the counts of a digit added up
WALKED = 3.2  # from a node of a tree to the next, several rows taking turns
WALKED_VECTOR = 21.0  # the same of a vector of rows
COMPARED_BITS = 1.1  # a comparison of a vector of rows that clears bits of leaves
COMPARED_TREES = 1.7  # the same of a vector of trees and one row, each with a comparison of its own
BIT_FOUND = 6.3  # the lowest bit of each of a vector's words
LEAF_ADDED = 10.5  # what a vector's leaves add to a column of its sums, looked up

BUFFERED = 4096  # bytes of a result that nobody waits for, wherever they go
FETCHED = 0.6  # of the time that a result's lines take longer from far, for which stores alone wait

# Bytes moved, for each byte that a kernel stores or reads.
READ = 0.85  # that it reads from caches: rates are those of copies, which read as much as they write
WRITTEN = 2 - READ  # that it writes, whose line is read before
APART = 0.05  # by what goes down columns of a matrix as it lies: lines that two panels share
FAR_APART = 0.35  # the same beyond the second-level cache, where each row begins anew
PACKING = 2.5  # by a step that packs a matrix: read along columns, written, read again

# Parts.
PART_NS = 1000.0  # a part should take that long, half of the shortest piece that a thread gets of a step
LEAST_ROWS = 64  # of a strip of a product: with fewer, threads wait for panels
CROSSED = 5.0  # bytes a nanosecond that tiles of a product bring of rows that another core wrote
MOST_PARTS = 128  # that a step needs: two for each of 64 threads


# Estimates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Nanoseconds: of instructions, of waiting for memory were there no instructions, of all else. `fixed`:
    of all these so much as no symbolic size changes: constants read, steps begun."""

    compute: float = 0.0
    memory: float = 0.0
    overhead: float = 0.0
    fixed: float = 0.0

    @property
    def total(self) -> float:
        """What they make together: memory is fetched while instructions run, but not all of it."""
        longer, shorter = max(self.compute, self.memory), min(self.compute, self.memory)
        return longer + (1 - HIDDEN) * shorter + self.overhead

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.compute + other.compute,
            self.memory + other.memory,
            self.overhead + other.overhead,
            self.fixed + other.fixed,
        )

    def __sub__(self, other: Estimate) -> Estimate:
        return self + other * -1

    def __mul__(self, times: float) -> Estimate:
        return Estimate(self.compute * times, self.memory * times, self.overhead * times, self.fixed * times)

    def __str__(self) -> str:
        return (
            f"{self.total:.0f} ns: {self.compute:.0f} compute, {self.memory:.0f} memory, "
            f"{self.overhead:.0f} overhead"
        )


def total(estimates: Iterable[Estimate]) -> Estimate:
    return sum(estimates, Estimate())


def once(estimate: Estimate) -> Estimate:
    """What is done once in a run, whatever the sizes are that it brings."""
    return replace(estimate, fixed=estimate.total)


def compute(target: Target, instructions: float) -> Estimate:
    """Instructions on whole vectors that do not wait for each other."""
    return Estimate(compute=instructions / target.facts.instructions)


def products(target: Target, count: float) -> Estimate:
    """Multiply-adds of whole vectors that do not wait for each other."""
    return Estimate(compute=count / target.facts.multiply_adds)


def loads(target: Target, count: float) -> Estimate:
    """Vectors loaded, by what does little else with them."""
    return Estimate(compute=count / target.facts.loads)


def combining(kind: str, dtype: str) -> float:
    """A pool's step where that of a sum is 1: the greater of two floats asks for NaNs, too."""
    return MAXIMUM if kind == "max" and dtypes.is_float(dtype) else 1.0


def move(target: Target, nbytes: float, among: float | None = None, since: float = 0.0) -> Estimate:
    """Bytes read or written that lie `among` so many (None: by themselves) that were used since they were
    last, so long ago, which says in which cache they are."""
    return Estimate(memory=nbytes / rate(target, nbytes if among is None else among, since))


def reordering(target: Target, type_: TensorType) -> Estimate:
    """To bring a value into another layout."""
    nbytes = dims.typical(type_.nbytes)
    return move(target, 2 * nbytes) + transposing(target, nbytes, dtypes.itemsize(type_.dtype))


def transposing(target: Target, nbytes: float, itemsize: int, split: bool = False) -> Estimate:
    """The instructions that bring an image from blocks of channels to rows of pixels, or back. split: what is
    stored begins anywhere in a line of the cache."""
    square = min(target.block, target.vector_bits // (8 * itemsize))
    vectors = nbytes / (square * itemsize)
    narrow = target.facts.narrow if 16 * square * itemsize <= target.vector_bits else 1
    narrow *= HALF_AS_WIDE if target.vector_bits <= 256 else 1
    return compute(target, (transposed(square) * narrow + UNALIGNED * split) * vectors)


def transposed(rows: int, squares: int = 1) -> float:
    """Instructions of a row of a square that is transposed in registers: loaded, put beside those of other
    squares, shuffled with them in stages, stored."""
    return 1 + (squares > 1) + (1 + SHUFFLED * math.log2(rows)) / squares


def rows_of(sizes: Sequence[Dimension]) -> tuple[int, int]:
    """(how many rows a nest has, how long they are)."""
    return dims.typical(dims.product(sizes[:-1])), dims.typical(sizes[-1])


def begun_row(length: Dimension, straight: int) -> float:
    """Instructions to begin a row, which has no loops where it is known to be no longer than `straight`."""
    return BEGUN if isinstance(length, int) and length <= straight else LOOPED


def begun_parts(target: Target, count: int, known: bool) -> Estimate:
    """To begin parts of a nest but the first; known: no size is divided by that the run tells."""
    return overhead(target, (PART if known else SIZED_PART) * (count - 1))


def cycles(target: Target, count: float) -> float:
    """Nanoseconds of so many."""
    return target.facts.cycle * count


def paced(target: Target, count: float) -> Estimate:
    """Cycles of work on vectors that no single unit is the measure of."""
    return Estimate(compute=cycles(target, count))


def overhead(target: Target, count: float) -> Estimate:
    """Cycles of what is no work on vectors: calls, mispredictions, addresses."""
    return Estimate(overhead=cycles(target, count))


def step(target: Target, count: int = 1) -> Estimate:
    """To begin and end steps."""
    taken = cycles(target, STEP * count)
    return Estimate(overhead=taken, fixed=taken)


def rate(target: Target, among: float, since: float = 0.0) -> float:
    """Bytes a nanosecond of what is used in turns with `among` bytes, and was so long `since`."""
    facts, left, time = target.facts, 1.0, 0.0
    first = facts.loads * target.vector_bits / 8
    for share, speed in (
        (fitting(among, facts.level1_bytes), first),
        (fitting(among, facts.level2_bytes), facts.level2_rate),
        (shared(target, among, since), facts.level3_rate),
    ):
        left, time = left - left * share, time + left * share / speed
    return 1 / (time + left / facts.memory_rate)


def shared(target: Target, among: float, since: float) -> float:
    """The share of what is used in turns with `among` bytes, and was so long since, that is in the last-level
    cache still, into which others bring what they use."""
    return fitting(among + OTHERS * since, target.facts.level3_bytes)


def fitting(among: float, size: float) -> float:
    """The share of what is used in turns with `among` bytes that a cache of that size gives: all of half its
    size, since pages lie where it happens, nothing of more than its size, since what comes pushes out what
    is next."""
    return max(0.0, min(1.0, (1.25 - among / size) / 0.75))


def again(target: Target, nbytes: float, among: float) -> Estimate:
    """Bytes read in turns with `among` bytes, by instructions that are counted with what they load: what does
    not come from the first-level cache is waited for."""
    missed = 1 - fitting(among, target.facts.level1_bytes)
    return Estimate(memory=missed * nbytes / rate(target, among))


def apart(target: Target, nbytes: float, among: float | None = None) -> Estimate:
    """How much longer bytes of a matrix take, read in turns with `among`, where tiles go down panels of it,
    and not along its rows."""
    among = nbytes if among is None else among
    beyond = 1 - fitting(among, target.facts.level2_bytes)
    return move(target, (APART + (FAR_APART - APART) * beyond) * nbytes, among)


def waited(target: Target, nbytes: float, among: float) -> Estimate:
    """What of moving bytes other work is expected to hide, and does not where rows that lie far apart are
    written and soon read again."""
    return Estimate(overhead=HIDDEN * move(target, nbytes, among).memory)


def scattered(target: Target, nbytes: float, among: float) -> Estimate:
    """Lines written in turns with `among` bytes, each far from the one before: those that the second-level
    cache does not hold are waited for."""
    beyond = 1 - fitting(among, target.facts.level2_bytes)
    return overhead(target, SCATTERED * beyond * nbytes / LINE)


def traffic(target: Target, node: Node) -> Estimate:
    """To read what a node reads that was computed, and to write its results."""
    read, written = (sum(map(_value_bytes, values)) for values in (_operands(node), node.outputs))
    return move(target, READ * read + WRITTEN * written, read + written)


def changed(target: Target, nread: float, written: float) -> Estimate:
    """To read operands and write the result where one of them lies: its lines are not brought again, and go
    back to the second-level cache while others come."""
    beyond = 1 - fitting(nread, target.facts.level2_bytes)
    return move(target, READ * nread + (WRITTEN - READ) * beyond * written, nread)


def _operands(node: Node) -> set[Value]:
    """Those that are tensors and no constants."""
    return {v for v in node.inputs if v.constant is None and isinstance(v.type, TensorType)}


@dataclass(frozen=True)
class Passed:
    """How many bytes went through the caches since memory was last used, and how long that is ago."""

    nbytes: float = 0.0
    ns: float = 0.0


def away(target: Target, node: Node, code: int, passed: Mapping[Value, Passed]) -> Estimate:
    """How much longer a chosen node takes because of what else went through the caches before it: since the
    memory of operands and results was used so much has `passed`. code: bytes of its code, 0 if that was used
    in this run before."""
    nbytes, longer, begun = _computed_bytes(node), 0.0, 0.0
    found = _value_bytes(node.outputs[0]) if isinstance(node.op, Gather) else math.inf  # of a table
    for value, since in passed.items():
        its = min(_value_bytes(value), found)
        if value not in node.outputs:
            begun += far(target, max(nbytes, since.nbytes), since.ns) * FIRST
        its = max(0, its - BUFFERED) * WRITTEN * FETCHED if value in node.outputs else its * READ
        longer += its / rate(target, max(nbytes, since.nbytes), since.ns) - its / rate(target, nbytes)
    longer += _apart(target, node, passed)
    if node.choice is None:
        return Estimate()
    cost, fetched = node.choice.cost, fetching(target, code)
    waited = (cost + Estimate(memory=longer)).total - cost.total
    return Estimate(overhead=waited + fetched + begun, fixed=fetched + begun)


def fetching(target: Target, code: int) -> float:
    """Nanoseconds that so many bytes of code take longer which a run uses once than what is at hand. Of long
    code a run takes one way through."""
    used = min(code, AHEAD)
    apart = 1 / rate(target, target.run_bytes, target.run_ns) - 1 / rate(target, used)
    return CODE * used * max(0.0, apart)


def _apart(target: Target, node: Node, passed: Mapping[Value, Passed]) -> float:
    """What the result of a Map takes longer that does not take an operand's place, as is estimated
    (`changed`): where it does, that place was read just before."""
    (out, *_), read = node.outputs, sum(map(_value_bytes, _operands(node)))
    fits = any(v.type == out.type for v in _operands(node))
    if not isinstance(node.op, Map) or not fits or passed.get(out, Passed()).nbytes < read:
        return 0.0
    written = _value_bytes(out)
    whole = move(target, READ * read + WRITTEN * written, read + written)
    return whole.memory - changed(target, read, written).memory


def least_time(target: Target, graph: Graph) -> float:
    """Nanoseconds that a run takes at least: those of its products in float32."""
    return dims.typical(multiply_adds(graph)) / (target.facts.multiply_adds * target.lanes("float32"))


def touched(graph: Graph) -> int:
    """Bytes that a run of a graph touches, or little less: constants as they are stored, and the most
    computed values that are alive at one time."""
    return _sum_of(_constants(graph)) + _alive(graph)


def _constants(graph: Graph) -> dict[Constant, int]:
    """What a run reads of each constant: of the branches of an If those of one, of a table what is found."""
    found: dict[Constant, int] = {}
    for node in graph.nodes:
        looked_up = _value_bytes(node.outputs[0]) if isinstance(node.op, Gather) else math.inf
        for constant in (v.constant for v in node.inputs):
            if constant is not None:
                found[constant] = max(found.get(constant, 0), int(min(_stored_bytes(constant), looked_up)))
        most: dict[Constant, int] = {}
        for region in regions(node.op):
            most = max(most, _constants(region), key=_sum_of)
        found.update(most)
    return found


def _sum_of(found: dict[Constant, int]) -> int:
    return sum(found.values())


def _stored_bytes(constant: Constant) -> int:
    """Of a constant, or of those that it is made of where they are less."""
    made = constant.derivation
    return min(constant.nbytes, sum(map(_stored_bytes, made.operands))) if made else constant.nbytes


def _alive(graph: Graph) -> int:
    last = {value: number for number, node in enumerate(graph.nodes) for value in node.inputs}
    alive, most = sum(map(_value_bytes, graph.inputs)), 0
    for number, node in enumerate(graph.nodes):
        alive += sum(map(_value_bytes, node.outputs))
        most = max(most, alive + max(map(_alive, regions(node.op)), default=0))
        ended = {v for v in node.inputs if v.constant is None and last[v] == number}
        alive -= sum(map(_value_bytes, ended.difference(graph.outputs)))
    return most


def _value_bytes(value: Value) -> int:
    return dims.typical(value.type.nbytes) if isinstance(value.type, TensorType) else 0


def _computed_bytes(node: Node) -> int:
    """Of operands and results that are no constants."""
    return sum(map(_value_bytes, {*_operands(node), *node.outputs}))


def constant_bytes(node: Node) -> int:
    """Of constants that a node reads; of a table no more than it finds there."""
    nbytes = sum(v.constant.nbytes for v in set(node.inputs) if v.constant is not None)
    found = dims.typical(node.outputs[0].tensor.nbytes) if isinstance(node.op, Gather) else nbytes
    return min(nbytes, found)


def epilogue(target: Target, node: Node, dtype: str) -> Estimate:
    """What becomes of the sums of a product or a convolution, which are of that type, in vectors."""
    out, body = node.outputs[0].tensor, node.op.epilogue
    if body is None:
        return Estimate()
    narrowed = CONVERTED * (dtypes.itemsize(out.dtype) < dtypes.itemsize(dtype))
    whole = weight(target, body, together=together(node)) + narrowed
    return compute(target, whole * dims.typical(out.count) / target.lanes(dtype))


def together(node: Node) -> int:
    """Of how many vectors of sums the bytes that an epilogue makes fill one, and are looked up at once."""
    return TOGETHER if isinstance(node.op, Conv) else 1


def run_passed(target: Target) -> Passed:
    """What a run touches of the sizes that are estimated with, and how long it takes."""
    if dims.are_ones():
        return Passed(target.least_run_bytes, target.least_run_ns)
    return Passed(target.run_bytes, target.run_ns)


def stored(target: Target, nbytes: float, grown: float = 1.0) -> Estimate:
    """Constants read: since the last run, all else that a run touches was. grown: times what the model has,
    which others are then taken for, too."""
    run = run_passed(target)
    among = max(nbytes, run.nbytes * grown)
    begun = far(target, among, run.ns) * min(1.0, nbytes / AHEAD)
    near = shared(target, among, run.ns)
    waited = (READ * near + 1 - near) * nbytes / rate(target, among, run.ns)
    return Estimate(memory=waited, overhead=begun, fixed=waited + begun)


def beginning(target: Target, constants: int) -> Estimate:
    """To begin reading so many constants that lie with weights which were just read: the first bytes of each
    are waited for, several at a time."""
    run = run_passed(target)
    taken = constants * FIRST * far(target, run.nbytes, run.ns)
    return Estimate(overhead=taken, fixed=taken)


def far(target: Target, among: float, since: float) -> float:
    """Nanoseconds until the first of what is used in turns with `among` bytes, and was so long since,
    arrives."""
    second = 1 - fitting(among, target.facts.level2_bytes)
    third = second * (1 - shared(target, among, since))
    return FAR / target.facts.level3_rate * second + FARTHER * third


def step_time(target: Target, products: float, loads: float, chains: int = 1, others: float = 0.0) -> float:
    """Nanoseconds of one step of a loop: the greatest of the times of its multiply-adds, of all instructions,
    of its loads from the first-level cache, and of the latency that `chains` sums a register leave open."""
    facts = target.facts
    issued = max(products / facts.multiply_adds, (products + others) / facts.instructions)
    return max(issued, loads / facts.loads, facts.latency / chains)


def matrix_step(
    target: Target, unit: Matrix, rows: float, vectors: int, products: int = 1, loads: float = 1.0
) -> float:
    """Nanoseconds of a step of k of a tile on registers that hold matrices: the greater of the times of its
    loads and its products, where each register of sums takes so many, each operand so many loads."""
    full, registers = rows / unit.rows, math.ceil(rows / unit.rows)
    high = MATRIX_ROWS * full + (1 - MATRIX_ROWS) * registers
    facts = target.facts
    return max(
        products * high * vectors / facts.matrix_products, loads * (high + vectors) / facts.matrix_loads
    )


def matrix_ends(target: Target, unit: Matrix, rows: float, vectors: int) -> float:
    """Nanoseconds in which the sums of such a tile are cleared, stored and read again."""
    registers = math.ceil(rows / unit.rows)
    vectors_of_sums = rows * vectors * unit.row_bytes * 8 / target.vector_bits
    return registers * vectors / target.facts.matrix_loads + vectors_of_sums / target.facts.loads


def dot_rate(target: Target, dot: Dot | None) -> float:
    """Of a multiply-add's rate, that of the products of a tile's step."""
    if dot is not None and not dot.adds and dot.group > 1:
        several = OF_WORDS if dot.words else OF_PAIRS if dot.pairs else WIDENED if dot.widened else PAIRED
        return 1 / (several * (HALF_AS_WIDE if target.vector_bits <= 256 else 1))
    return target.facts.bf16_dots if dot is not None and dot.lhs == "bfloat16" else 1.0


def weight(target: Target, *roots: Expr, together: int = 1) -> float:
    """Instructions that expressions take for one vector, roughly. What divides is a unit of its own.
    `together`: of so many vectors the bytes are looked up at once."""
    nodes = expr.topological(*roots)
    divisions = sum(_divisions(target, node) for node in nodes)
    others = sum(_instructions(target, node) / (together if node.op == "lookup" else 1) for node in nodes)
    return max(divisions, others) + (1 - HIDDEN) * min(divisions, others)


def _instructions(target: Target, node: Expr) -> int:
    if node.op in ("input", "const", "size"):
        return 0
    if node.op == "lookup":
        return looked_up(target, node)
    if node.op == "cast" and node.args[0].dtype in dtypes.SMALL_FLOATS:
        return SMALL + TO_SMALL * (node.dtype in dtypes.SMALL_FLOATS)
    if node.dtype in dtypes.SMALL_FLOATS:
        return TO_SMALL + (0 if node.op in DIVISIONS else INSTRUCTIONS.get(node.op, 1))
    if node.op in IN_PIECES and node.dtype == "float32" and Ability.PERMUTE in target.abilities:
        return IN_PIECES[node.op]
    if _is_estimated(target, node):
        return RECIPROCAL_ROOT
    if node.op == "pow" and node.args[1].op == "const":
        power = node.args[1].value
        if power in range(-3, 5) or abs(power) in ROOTS:
            return 2  # products, beside roots and a quotient
    if node.op == "div" and node.args[1].op == "const":
        return QUOTIENT
    return 0 if node.op in DIVISIONS else INSTRUCTIONS.get(node.op, 1)


def _is_estimated(target: Target, node: Expr) -> bool:
    """Whether an operation is a power that begins with an estimate of a root's reciprocal."""
    if node.op != "pow" or node.dtype != "float32" or Ability.ESTIMATE_ROOT not in target.abilities:
        return False
    return node.args[1].op == "const" and -node.args[1].value in ROOTS


def _divisions(target: Target, node: Expr) -> int:
    """Instructions in whose time the divisions and roots of an operation are done."""
    if node.op == "div" and node.args[1].op == "const" and node.dtype not in dtypes.SMALL_FLOATS:
        return 0
    if node.op == "pow" and node.args[1].op == "const":
        if _is_estimated(target, node):
            return 0
        power = node.args[1].value
        roots, reciprocal = ROOTS.get(abs(power), 0), power in (-3, -2, -1) or -power in ROOTS
        return roots * divided(target, "sqrt") + reciprocal * divided(target)
    return divided(target, node.op) if node.op in DIVISIONS else 0


def divided(target: Target, op: str = "div") -> int:
    """Instructions in whose time a vector is divided, or its root is taken."""
    return round(DIVISIONS[op] * target.facts.instructions / target.facts.divisions)


def looked_up(target: Target, node: Expr) -> int:
    """Instructions of a lookup of a vector: for each byte of an element the rows of its table and the choices
    between them, by bits that are tested; bytes are put together in their element."""
    nbytes, rows = dtypes.itemsize(node.dtype), target.lookup.rows(1 << dtypes.bits(node.args[0].dtype))
    return nbytes * (rows + CHOSEN * (rows - 1)) + (rows - 1).bit_length() + JOINED * (nbytes - 1)


# Sizes and parts ---------------------------------------------------------------------------------


def with_fixed(estimate: Callable[[], Estimate]) -> Estimate:
    """An estimate, of which so much is fixed as it is where every size that only the run knows is 1."""
    found = estimate()
    with dims.of_ones():
        least = estimate().total
    return replace(found, fixed=min(least, found.total))


def work(estimate: Estimate, count: Dimension) -> Dimension:
    """The nanoseconds of a step, for Step, whatever `count` the run finds: on the line from what is fixed,
    which is estimated of the least count, to the estimate of the typical one; no less than in proportion.
    Where the two are the same, in proportion."""
    typical, total = dims.typical(count), estimate.total
    with dims.of_ones():
        least = dims.typical(count)
    low = max(min(estimate.fixed, total), total * least / typical)
    if typical == least:
        low = least = 0
    each = (total - low) / (typical - least)
    parts = 1000 if each >= 1 else 1_000_000  # of a nanosecond: a byte takes few
    return round(low - each * least) + dims.floor_divide(count * round(parts * each), parts)


def parts_for(nanoseconds: float) -> int:
    """How many parts a step that takes so long is worth."""
    return int(max(1, min(MOST_PARTS, nanoseconds / PART_NS)))


def strip_rows(row: Estimate, panels: Estimate, nbytes: float) -> float:
    """How many rows of a product a strip should have: each needs all panels again, but a thread that has
    strips of its own reads rows that it wrote itself. row: to multiply one by all panels; panels: to bring
    these and make them ready; nbytes: of a row."""
    crossed = nbytes / CROSSED
    waited = (panels.memory + panels.compute) / (HIDDEN * row.compute + crossed)
    if waited * row.compute > panels.memory:  # while rows are multiplied most panels arrive
        waited = ((1 - HIDDEN) * panels.memory + panels.compute) / crossed
    return max(LEAST_ROWS, waited)


def elements_per_part(nanoseconds: float) -> int:
    """How many iterations that take so long each make a part."""
    return int(max(1, min(1 << 16, PART_NS / max(0.001, nanoseconds))))
