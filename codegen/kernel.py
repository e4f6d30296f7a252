"""The contract between nodes and machine code: what a kernel module offers and what it returns.

A kernel is a module of `kernels/` with the three functions of `Kernel`; `KERNELS` names them, and the type
checker holds each to it. Code is position-independent text: it names no value and no dimension variable, only
its argument words, so that equal kernels have equal text and are emitted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Generic, Protocol, TypeVar

from ..ir import dims
from ..ir.dims import Dimension
from ..ir.graph import Constant, Layout, Node
from ..records import dataclass
from ..target import Target
from .costs import Estimate
from .text.emitter import ENTRY, Function, Reg, Text


class Kernel(Protocol):
    """What a kernel's module has. Each takes nodes of the ops that `candidates` offers something for. One
    that multiplies something else than its node says has a function `multiplied`: see `Choice.multiplied`."""

    __name__: str

    def candidates(self, node: Node[Any], target: Target) -> Iterable[Offer[Any]]:
        """The ways in which it could run the node, if any."""

    def pack(self, node: Node[Any], choice: Choice[Any], operand: int) -> Constant | None:
        """A constant operand as the kernel wants it; None: as it is."""

    def emit(self, node: Node[Any], choice: Choice[Any], target: Target) -> Code:
        """The code that runs the node as chosen."""


def as_it_is(node: Node[Any], choice: Choice[Any], operand: int) -> None:
    """The `pack` of kernels that read constants as they are."""


TilingT = TypeVar("TilingT", covariant=True)


#: Of what a tiling counts: as many as there are.
ALL = 1 << 30


@dataclass(frozen=True)
class Offer(Generic[TilingT]):
    """A way in which a kernel could run a node: what it is estimated to take, its tiling (a dataclass of the
    kernel's own, which dumps show but for what is None in it), the layouts it reads and writes (None:
    dense). arithmetic: what it computes in, where the node's types do not say it."""

    cost: Estimate
    tiling: TilingT
    inputs: tuple[Layout | None, ...] = ()
    output: Layout | None = None
    packed: tuple[int, ...] = ()  # operands that `pack` transforms when they are constant
    arithmetic: str = field(default="", kw_only=True)

    @property
    def block(self) -> int:
        """Channels of a block of the result, which must not be dense."""
        if self.output is None:
            raise TypeError("a result in blocks of channels is asked for where it is dense")
        return self.output.block

    @property
    def time(self) -> float:
        """The estimate in nanoseconds on one core."""
        return self.cost.total


@dataclass(frozen=True)
class Multiplied:
    """What is multiplied for a node: of its multiply-adds so many, each with so many instructions besides,
    and the types of factors and sums (None: the node's)."""

    share: float = 1.0
    besides: float = 0.0
    types: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Choice(Offer[TilingT]):
    """An offer and the kernel that made it. For dumps: what a node computes in, and why no faster kernel
    does."""

    kernel: Kernel = field(kw_only=True)
    why: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        return self.kernel.__name__.rpartition(".")[2]

    def multiplied(self, node: Node[Any], target: Target) -> Multiplied:
        """What the kernel multiplies for the node: what this says, unless its module says something else."""
        own: Callable[..., Multiplied] | None = getattr(self.kernel, "multiplied", None)
        return Multiplied() if own is None else own(node, self, target)

    def __str__(self) -> str:
        tiling = {} if self.tiling is None else vars(self.tiling)
        tiling = {k: "all" if v == ALL else v for k, v in tiling.items() if v is not None}
        estimates = {k: round(v) for k, v in {"ns": self.time, **vars(self.cost)}.items()}
        told = {k: v for k, v in (("arithmetic", self.arithmetic), ("why", self.why)) if v}
        facts = (*tiling.items(), *estimates.items(), *told.items())
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in facts)})"


#: What a kernel offers besides its fastest takes at most so many times as long by estimate.
NEAR = 1.3
MORE = 64  # rows or images that a run may bring
LEVEL_WITHIN = 1.05  # of one time another is taken for equal


def nearest(options: Iterable[tuple[Estimate, TilingT]]) -> list[tuple[Estimate, TilingT]]:
    """The options that are worth offering, the fastest first, and where two are equal the earlier: measured,
    another may be faster."""
    found = sorted(options, key=lambda option: option[0].total)
    return [option for option in found if option[0].total <= NEAR * found[0][0].total]


def lasting(
    size: Dimension, options: Sequence[tuple[Estimate, TilingT]], timed: Callable[[TilingT], Estimate]
) -> Sequence[tuple[Estimate, TilingT]]:
    """The options that are worth offering where little of a size is typical and a run may bring more, as one
    entry of a batch is: of those that are level those that are as good for much of it."""
    if isinstance(size, int) or dims.typical(size) >= MORE or not options:
        return options
    least = min(cost.total for cost, _ in options)
    level = [(cost, tiling) for cost, tiling in options if cost.total <= LEVEL_WITHIN * least]
    with dims.of_many(MORE):
        times = [timed(tiling).total for _, tiling in level]
    return [option for option, time in zip(level, times) if time <= LEVEL_WITHIN * min(times)]


def choices_of(kernel: Kernel, node: Node, target: Target) -> list[Choice]:
    """What the kernel offers for the node."""
    return [Choice(**vars(offer), kernel=kernel) for offer in kernel.candidates(node, target)]


@dataclass(frozen=True)
class Argument:
    """One 8-byte word of a kernel's argument array.

    `input`/`output`: the address of the node's operand or result `index` (packed constants at their packed
    form; bytes of the storage, halo included, from its first byte). `temporary`: the address of the code's
    own buffer `index`. `size`: the number that `dimension` has in this run. `run`: how many runs the context
    began before."""

    kind: str
    index: int = 0
    dimension: Dimension = 0


@dataclass(frozen=True)
class Step:
    """One parallel region: `parts` independent pieces of about `work` nanoseconds in all, cut by shape alone.
    `scratch` bytes are each thread's own, at least 64. `unit`: at multiples of so many parts others may take
    on what a thread has not begun; 0: nowhere, since parts one after the other share what the first computes.
    `copies`: the operand that the step only copies to the result; it is left out where the two are the same
    memory."""

    text: str
    arguments: tuple[Argument, ...]
    parts: Dimension
    work: Dimension
    scratch: Dimension = 64
    unit: Dimension = 0
    copies: int | None = None


@dataclass(frozen=True)
class Code:
    """The steps that run a node, one after the other, and the sizes in bytes of the buffers they share.

    `over`: operands that the result may be written over where they are stored as it is: whoever writes
    element i has read element i of them before, and nobody reads it after."""

    steps: tuple[Step, ...]
    temporaries: tuple[Dimension, ...] = ()
    over: tuple[int, ...] = ()

    @property
    def copies(self) -> int:
        """Steps that are left out where the result lies where the operand does."""
        return sum(step.copies is not None for step in self.steps)


class KernelFunction(Function):
    """A function of a kernel, whose `%args` are the kernel's argument words."""

    text: KernelText

    def word(self, argument: Argument, type_: str) -> Reg:
        place = 8 * self.text.place(argument)
        address = "%args" if place == 0 else self.hoisted(f"getelementptr i8, ptr %args, i64 {place}", "ptr")
        return self.hoisted(f"load {type_}, ptr {address}, align 8", type_)

    def input(self, index: int) -> Reg:
        """The address of operand `index`; only in the entry function."""
        return self.word(Argument("input", index), "ptr")

    def output(self, index: int = 0) -> Reg:
        return self.word(Argument("output", index), "ptr")

    def temporary(self, index: int) -> Reg:
        return self.word(Argument("temporary", index), "ptr")

    def size(self, dimension: Dimension) -> str:
        """A dimension as an i64: a literal when it is a number, else a word of the arguments."""
        if isinstance(dimension, int):
            return str(dimension)
        return self.word(Argument("size", 0, dimension), "i64")


class KernelText(Text[KernelFunction]):
    """A kernel being written. `entry()` opens its function, whose parts %first..%last the body loops over."""

    def __init__(self, target: Target):
        super().__init__(target, KernelFunction)
        self.arguments: list[Argument] = []

    def place(self, argument: Argument) -> int:
        """The number of an argument's word."""
        if argument not in self.arguments:
            self.arguments.append(argument)
        return self.arguments.index(argument)

    @contextmanager
    def entry(self) -> Iterator[KernelFunction]:
        """`i32 KERNEL(ptr %args, i64 %first, i64 %last, ptr %scratch)`: returns 0 unless the body returned
        a code."""
        parameters = ["ptr noalias %args", "i64 %first", "i64 %last", "ptr noalias %scratch"]
        with self.function(ENTRY, parameters, "i32", "hidden") as f:
            yield f
            f.statement("ret i32 0")

    def step(self, parts: Dimension, work: Dimension, scratch: Dimension = 64, unit: Dimension = 0) -> Step:
        return Step(str(self), tuple(self.arguments), parts, work, scratch, unit)


def either(condition: Dimension, one: Code, other: Code) -> Code:
    """What runs `one` where the condition, which the run knows, is 1, and `other` where it is 0: a step
    without parts is passed over. An operand may be written over where both allow it."""

    def told(code: Code, runs: Dimension, before: int) -> Iterator[Step]:
        for step in code.steps:
            moved = (
                replace(word, index=word.index + before) if word.kind == "temporary" else word
                for word in step.arguments
            )
            yield replace(step, arguments=tuple(moved), parts=step.parts * runs)

    steps = (*told(one, condition, 0), *told(other, 1 - condition, len(one.temporaries)))
    buffers = [size * condition for size in one.temporaries]
    buffers += [size * (1 - condition) for size in other.temporaries]
    return Code(steps, tuple(buffers), tuple(k for k in one.over if k in other.over))


FactT = TypeVar("FactT")


def offered(fact: FactT | None, node: Node) -> FactT:
    """A fact that is known of every node for which `candidates` has a choice."""
    if fact is None:
        raise TypeError(f"{node.op} is not for this kernel")
    return fact


def single(step: Step, over: Sequence[int] = ()) -> Code:
    """The code of one step."""
    return Code((step,), (), tuple(over))


def chosen(node: Node) -> Choice:
    """The node's kernel, which select_kernels stored."""
    if not isinstance(node.choice, Choice):
        raise TypeError(f"no kernel was selected for {node.op}")
    return node.choice
