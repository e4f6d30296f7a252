"""What code takes, in nanoseconds of one core: the only place for constants of time.

    Estimate = compute (instructions on vectors) + memory (bytes by the cache they come from) + overhead
A processor's speed is `target.facts`; what the facts do not say is named here, a line for each constant
that says what it stands for. `benchmarks/calibrate.py` holds all of it against measurements.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import dims, expr
from ..ir.dims import Dimension
from ..ir.expr import Expr
from ..records import dataclass
from ..target import Target

# Constants ---------------------------------------------------------------------------------------

#: Instructions that an operation on a vector takes, roughly, where it is not one.
INSTRUCTIONS = {
    **dict.fromkeys(("exp", "log", "sin", "cos", "tanh"), 20),
    **dict.fromkeys(("sinh", "cosh", "erf", "tan", "atan"), 30),
    **dict.fromkeys(("asin", "acos", "asinh", "acosh", "atanh"), 40),
    "pow": 50,
    "div": 6,
    "sqrt": 6,
    "mod": 12,
    "fmod": 12,
}

HIDDEN = 0.6  # how much of the shorter of compute and memory the longer hides

# Instructions, on whole vectors.
WINOGRAD = 4.5  # times as many as a transform has: operands lie in t * t matrices apart
SHUFFLED = 12  # of a vector of a square that is transposed in registers
NEST_TAP = 24  # of a window's tap in LoopNest, whose sums lie in memory
STRIDED = 4  # times as many where what a vector needs does not lie together
GATHERED = 8  # to load a vector's elements one by one
PLACED = 2  # to put an element of weights into its lane of a panel
SCAN = 4  # of a step of a running total, which waits for the one before
ARGMAX = 3  # times as many where places are kept too
FOLDING = 20  # to combine the lanes of one result, spread over its terms
CELL = 60  # that the gates of a recurrent cell take, a vector
SOFTMAX = 24  # from a row's maximum to its sum, a vector of attention's weights
CONV = 1.2  # times as long as a convolution's multiply-adds: panels come from the second-level cache
TILE_VECTOR = 2  # to begin and store one vector of a tile
DEPTHWISE_PLAIN = 1.7  # a product of a depthwise window, loads and shuffles of edges included
DEPTHWISE_SHUFFLED = 2.1  # the same where lanes are permuted
WHOLE_POOL = 9  # a vector of an image that is pooled as a whole
POOL_TAP = 10  # a tap of a pooling window along one axis
NARROW_PANEL = 1.05  # a tile narrower than the others, which are alternated with it
HALF_VECTOR = 0.6  # of a whole vector's time, where wide vectors are executed in two halves

# Nanoseconds.
STEP = 200.0  # to begin and end a step on one thread
TILE = 12.0  # of a tile's function: the call, the misprediction where its loop ends
CONV_TILE = 10.0  # the same in a convolution, whose tiles follow each other in a loop
ROW = 0.5  # to begin a row that is copied
GATHER = 0.5  # an element that lies apart, read once
LOOKUP = 1.0  # an index looked up, checked and followed
REDUCTION = 0.1  # to begin and end one result
POOLED = 1.0  # the same, of a window
FOLDED = 2.0  # to find the place that a mirrored border repeats
FOLDED_ROW = 20.0  # to combine the lanes of a row, waiting for each halving
SIZE = 1.0  # a number that the run computes
RANDOM = 4.0  # a random number
ATTENTION_ROW = 200.0  # a query: its maximum, its sum and its share of packing keys
RANK = 2.0  # an element of a short line to be sorted, besides comparing it
COMPARED = 1.0  # a vector of a short line compared
KEY = 4.0  # an element's key made and unmade, in a long line
DIGIT = 1.5  # an element put where one digit of its key says
COUNTED = 1.0  # one of the counts of a digit added up
WALKED = 1.5  # from a node of a tree to the next, several rows taking turns
WALKED_VECTOR = 10.0  # the same of a vector of rows

# Bytes moved, for each byte that a kernel stores.
PACKING = 2.5  # by a step that packs a matrix: read along columns, written, read again
TRANSPOSED = 3.0  # times the time of a copy
SCATTERED = 5.0  # the same, where nothing lies together

# Parts.
PART_NS = 4000.0  # a part should take that long, or handing it out costs more than it gains
MOST_PARTS = 128  # that a step needs: two for each of 64 threads
REPEATED = 0.125  # of a step's time may be spent again so that there are parts for more threads


# Estimates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Nanoseconds: of instructions, of waiting for memory were there no instructions, of all else."""

    compute: float = 0.0
    memory: float = 0.0
    overhead: float = 0.0

    @property
    def total(self) -> float:
        """What they make together: memory is fetched while instructions run, but not all of it."""
        longer, shorter = max(self.compute, self.memory), min(self.compute, self.memory)
        return longer + (1 - HIDDEN) * shorter + self.overhead

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.compute + other.compute, self.memory + other.memory, self.overhead + other.overhead
        )

    def __mul__(self, times: float) -> Estimate:
        return Estimate(self.compute * times, self.memory * times, self.overhead * times)

    def __str__(self) -> str:
        return (
            f"{self.total:.0f} ns: {self.compute:.0f} compute, {self.memory:.0f} memory, "
            f"{self.overhead:.0f} overhead"
        )


def total(estimates: Iterable[Estimate]) -> Estimate:
    return sum(estimates, Estimate())


def compute(target: Target, instructions: float) -> Estimate:
    """Instructions on whole vectors that do not wait for each other."""
    return Estimate(compute=instructions / target.facts.instructions)


def move(target: Target, nbytes: float, among: float | None = None) -> Estimate:
    """Bytes read or written that lie `among` so many (None: by themselves) that were used since they were
    last, which says in which cache they are."""
    return Estimate(memory=nbytes / rate(target, nbytes if among is None else among))


def reordering(target: Target, nbytes: float) -> Estimate:
    """To bring that many bytes from one layout into another."""
    return move(target, 2 * nbytes) + compute(target, SHUFFLED * nbytes * 8 / target.vector_bits)


def overhead(nanoseconds: float) -> Estimate:
    return Estimate(overhead=nanoseconds)


def step(target: Target, count: int = 1) -> Estimate:
    """To begin and end steps."""
    return Estimate(overhead=STEP * count)


def rate(target: Target, among: float) -> float:
    """Bytes a nanosecond of what is used in turns with `among` bytes. A cache gives all that fits, nothing of
    twice as much: what comes in turn pushes out what comes next."""
    facts, left, time = target.facts, 1.0, 0.0
    for size, speed in ((facts.level2_bytes, facts.level2_rate), (facts.level3_bytes, facts.level3_rate)):
        share = left * max(0.0, min(1.0, 2 - among / size))
        left, time = left - share, time + share / speed
    return 1 / (time + left / facts.memory_rate)


def stored(target: Target, nbytes: float) -> Estimate:
    """Constants read: since the last run, all others of the graph were."""
    return Estimate(memory=nbytes / rate(target, max(nbytes, target.constant_bytes)))


def step_time(target: Target, instructions: float, loads: float, chains: int = 1) -> float:
    """Nanoseconds of one step of a loop: the greatest of the time of its instructions, of its loads from the
    first-level cache, and of the latency that `chains` sums a register leave open."""
    facts = target.facts
    return max(instructions / facts.instructions, loads / facts.loads, facts.latency / chains)


def weight(*roots: Expr) -> int:
    """Instructions that expressions take for one vector, roughly."""
    return sum(
        INSTRUCTIONS.get(n.op, 1) for n in expr.topological(*roots) if n.op not in ("input", "const", "size")
    )


# Sizes and parts ---------------------------------------------------------------------------------


def work(estimate: Estimate, count: Dimension) -> Dimension:
    """The nanoseconds of a step, for Step: in proportion to `count`, whatever the run finds it to be, where
    the estimate is for its typical number."""
    each = estimate.total / dims.typical(count)
    return dims.floor_divide(count * max(1, round(1000 * each)), 1000)


def parts_for(nanoseconds: float) -> int:
    """How many parts a step that takes so long is worth."""
    return int(max(1, min(MOST_PARTS, nanoseconds / PART_NS)))


def elements_per_part(nanoseconds: float) -> int:
    """How many iterations that take so long each make a part."""
    return int(max(1, min(1 << 16, PART_NS / max(0.001, nanoseconds))))
