"""Processors: what code is generated for, and what a library asks of the machine that loads it.

The only file that names processors. Kernels read widths, register counts and abilities from a `Target`;
nothing else in the compiler knows an instruction set. A target is a level, which fixes widths and registers,
and extensions of it: `x86-64-v4+avx512vnni`. Families of processors that have the same ones share a name,
spelled as LLVM does: `cascadelake`. `native` is this machine with all that it has.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cache, partial
from itertools import takewhile

from .errors import CompileError
from .facts import Facts, known_facts
from .ir import dtypes
from .records import dataclass

LINE = 64  # bytes of a line of the cache


class Ability(StrEnum):
    """Optional instructions that kernels may use where a target has them."""

    SCALE_EXPONENT = "scale_exponent"  # x * 2**n of a vector of floats, rounded once
    ESTIMATE_ROOT = "estimate_root"  # 1 / sqrt(x) of float32 vectors, to a relative 2**-14
    CONVERT_HALF = "convert_half"  # float16 vectors to float32 and back, rounded to nearest even
    GATHER = "gather"  # elements that lie apart come into a vector about as fast as one by one
    PERMUTE = "permute"  # lanes of two vectors of floats, picked by a third
    CONVERT_INT64 = "convert_int64"  # float vectors to integers of 64 bits
    CONVERT_BF16 = "convert_bf16"  # float32 vectors to bfloat16, rounded to nearest even; subnormals may be 0
    HALF_ARITHMETIC = "half_arithmetic"  # sums and products of float16 vectors, rounded to float16
    DOT_U8S8 = "dot_u8s8"  # int32 lanes += 4 products uint8 * int8 each, exact
    DOT_S8S8 = "dot_s8s8"  # the same of two int8
    DOT_U8U8 = "dot_u8u8"  # the same of two uint8
    DOT_S16S16 = "dot_s16s16"  # int32 lanes += 2 products of int16 each, modulo 2^32
    DOT_BF16 = "dot_bf16"  # float32 lanes += 2 products of bfloat16 each; subnormal numbers count as 0
    MATRIX_INT8 = "matrix_int8"  # products of small matrices of bytes, in registers made for them
    MATRIX_BF16 = "matrix_bf16"  # the same of bfloat16
    SCALABLE = "scalable"  # vectors of a width that only the run knows, every operation under a mask


@dataclass(frozen=True)
class Dot:
    """An instruction that adds to each lane of `accumulate` the products of `group` neighbours of lhs and
    rhs, without saturation. LLVM's intrinsic takes vectors (sums, lhs, rhs), where `swapped` (sums, rhs,
    lhs). Where it does not add (`adds`) it takes (lhs, rhs), and what it gives is added. Where it multiplies
    a wider type alone, both are `widened` to that, a group of four in two products. Where there is `pairs`,
    that adds the products of two neighbours in 16 bits, which saturate, and the intrinsic two of these; where
    they might, it multiplies every other byte and those between as `words` of 16 bits."""

    lhs: str
    rhs: str
    accumulate: str
    group: int
    intrinsic: str
    swapped: bool = False
    widened: str | None = None
    adds: bool = True
    pairs: str | None = None
    words: bool = False

    @property
    def stored(self) -> str:
        """The type of rhs in panels."""
        return self.widened or self.rhs


@dataclass(frozen=True)
class Matrix:
    """An instruction on registers that hold small matrices of `rows` rows of `row_bytes` bytes each:

        sums [rows][columns] += lhs [rows][depth] * rhs [depth / group][columns][group]

    without saturation, where `group` elements of an operand are as long as a sum. `intrinsic` takes the
    numbers of the registers (sums, lhs, rhs), of which there are `registers`."""

    lhs: str
    rhs: str
    accumulate: str
    group: int
    intrinsic: str
    rows: int = 16
    row_bytes: int = 64
    registers: int = 8

    @property
    def depth(self) -> int:
        """Of the products that one instruction adds to each sum."""
        return self.row_bytes // dtypes.itemsize(self.lhs)

    @property
    def columns(self) -> int:
        return self.row_bytes // dtypes.itemsize(self.accumulate)


@dataclass(frozen=True)
class Lookup:
    """An instruction that picks bytes from a table of `entries`, which lies in so many `registers`, by a
    vector of their numbers. LLVM's intrinsic takes (registers, numbers); `between`: the numbers stand after
    the first register."""

    entries: int
    registers: int
    intrinsic: str
    between: bool = False

    def rows(self, count: int) -> int:
        """How many such tables hold so many bytes."""
        return -(-count // self.entries)


@dataclass(frozen=True)
class Narrowing:
    """Instructions that make one vector of two, of elements half as wide, and saturate: LLVM's intrinsics for
    int32 to int16, and for int16 to bytes of either kind. Each 128 bits take those of both vectors."""

    int16: str
    int8: str
    uint8: str


@dataclass(frozen=True)
class Target:
    """A processor family: LLVM's names for it and the facts that tilings follow."""

    name: str
    triple: str
    cpu: str  # LLVM's name of the level: code uses what that has and `extensions`, nothing else
    features: tuple[str, ...]  # checked by the library before it runs, in the runtime's names
    vector_bits: int
    vector_registers: int
    masked: bool  # lanes can be switched off by a mask register at no cost
    fused_multiply_add: bool
    lookup: Lookup
    orders_nan: bool = True  # the greater of a number and a NaN is the number, also of one that signals
    strength_reduction: bool = True  # what LLVM does by this name makes loops faster
    memory_operands: bool = False  # arithmetic reads an operand straight from memory
    memory_broadcasts: bool = False  # or a number there, into all lanes
    string_moves: bool = False  # the C library copies by one instruction that repeats itself
    broadcasts: int = 1  # broadcast operands that a tile's loop holds in registers at a time
    facts: Facts = field(default_factory=Facts)
    run_bytes: int = 0  # that a run of the lowered graph touches: so much lies between two uses of a constant
    run_ns: float = 0.0  # nanoseconds that this takes at least: so long is between two uses of a constant
    least_run_bytes: int = 0  # both where every size that only the run knows is 1
    least_run_ns: float = 0.0
    abilities: frozenset[Ability] = frozenset()
    dots: tuple[Dot, ...] = ()
    widening: Dot | None = None  # what multiplies bytes for which there is no dot product
    pairs: Dot | None = None  # what does so where no sum of two products leaves 16 bits
    matrices: tuple[Matrix, ...] = ()
    narrowing: Narrowing | None = None
    level: str = ""  # the name of its level, where it is none itself
    extensions: tuple[str, ...] = ()  # features beyond the level's, in LLVM's names, which are the runtime's

    @property
    def loads_partly(self) -> bool:
        """Whether some lanes, known when compiling, of a vector of elements of 32 bits or more are loaded by
        one instruction, which touches no memory of the others."""
        return self.masked or self.vector_bits == 256

    def lanes(self, dtype: str) -> int:
        """Elements of one vector register."""
        return self.vector_bits // (8 * dtypes.itemsize(dtype))

    @property
    def block(self) -> int:
        """Channels of a block of an image (`Layout.block`), whatever the type of its elements."""
        return self.lanes("float32")

    @property
    def seen_by_passes(self) -> tuple[object, ...]:
        """What passes ask of a target: one graph is optimised for all for which this is the same."""
        multiplies = (self.dots, self.widening, self.pairs, self.matrices, self.facts.bf16_dots)
        return (*multiplies, self.block, self.facts.level2_bytes)

    def registers(self, dtype: str, count: int) -> int:
        """Vector registers that hold `count` elements."""
        return -(-count // self.lanes(dtype))

    def dot(self, lhs: str, rhs: str, accumulate: str, pairs: bool = False) -> Dot | None:
        """The instruction for sums of such products, in any order of the operands. pairs: whether no sum of
        the products of two neighbours leaves 16 bits."""
        known = (*self.dots, self.pairs) if pairs and self.pairs is not None else self.dots
        for dot in known:
            if (lhs, rhs, accumulate) == (dot.lhs, dot.rhs, dot.accumulate):
                return dot
            if (rhs, lhs, accumulate) == (dot.lhs, dot.rhs, dot.accumulate):
                return replace(dot, lhs=lhs, rhs=rhs, swapped=True)
        return None

    def byte_dot(self, lhs: str, rhs: str, accumulate: str, pairs: bool = False) -> Dot | None:
        """The same of bytes as they are stored, by words of pairs where there is no other."""
        found = self.dot(lhs, rhs, accumulate, pairs)
        if found is None and (by_pairs := self.dot(lhs, rhs, accumulate, pairs=True)) is not None:
            return replace(by_pairs, words=True)
        return found

    def integer_dot(self, lhs: str, rhs: str, accumulate: str) -> Dot | None:
        """The instructions for sums of products of integers: a dot product, else products of wider ones,
        which take operands as wide as they are."""
        found, wider = self.dot(lhs, rhs, accumulate), self.widening
        if found is not None or wider is None or accumulate != wider.accumulate:
            return found
        if lhs == rhs == wider.widened:
            return replace(wider, group=min(wider.group, 2), widened=None)
        return replace(wider, lhs=lhs, rhs=rhs) if {lhs, rhs} <= {"uint8", "int8"} else None

    @property
    def with_pairs(self) -> Target:
        """This target with that of pairs among its dot products."""
        return self if self.pairs is None else replace(self, dots=(*self.dots, self.pairs))

    def matrix(self, lhs: str, rhs: str, accumulate: str) -> Matrix | None:
        """The instruction for sums of such products of small matrices."""
        wanted = (lhs, rhs, accumulate)
        return next((m for m in self.matrices if (m.lhs, m.rhs, m.accumulate) == wanted), None)

    @property
    def processor(self) -> str:
        """What LLVM is told: its name of the level, and the extensions: `x86-64-v4,+avx512vnni`."""
        return ",".join((self.cpu, *(f"+{feature}" for feature in self.extensions)))

    @property
    def rank(self) -> tuple[int, int]:
        """Of several targets that a machine can be, the one of the highest rank is the best."""
        return self.vector_bits, len(self.features)

    def __str__(self) -> str:
        return self.name


# Levels ------------------------------------------------------------------------------------------

_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86_64 = partial(Target, triple="x86_64-unknown-linux-gnu", memory_operands=True, string_moves=True)
_WIDENING = partial(Dot, "int16", "int16", "int32", widened="int16", adds=False)
_PAIRS = partial(Dot, "uint8", "int8", "int32", 4, adds=False)


def _narrowing(name: str) -> Narrowing:
    return Narrowing(*(name.format(kind) for kind in ("ssdw", "sswb", "uswb")))


#: What differs in more than instructions, the best of each architecture first.
LEVELS: dict[str, Target] = {
    t.name: t
    for t in (
        _X86_64(
            "x86-64-v4",
            cpu="x86-64-v4",
            features=_V4,
            vector_bits=512,
            vector_registers=32,
            masked=True,
            fused_multiply_add=True,
            strength_reduction=False,
            memory_broadcasts=True,
            lookup=Lookup(16, 1, "llvm.x86.avx512.pshuf.b.512"),
            narrowing=_narrowing("llvm.x86.avx512.pack{}.512"),
            abilities=frozenset(
                (
                    Ability.SCALE_EXPONENT,
                    Ability.ESTIMATE_ROOT,
                    Ability.CONVERT_HALF,
                    Ability.CONVERT_INT64,
                    Ability.GATHER,
                    Ability.PERMUTE,
                )
            ),
            widening=_WIDENING(4, "llvm.x86.avx512.pmaddw.d.512"),
            pairs=_PAIRS("llvm.x86.avx512.pmaddw.d.512", pairs="llvm.x86.avx512.pmaddubs.w.512"),
        ),
        _X86_64(
            "x86-64-v3",
            cpu="x86-64-v3",
            features=_V3,
            vector_bits=256,
            vector_registers=16,
            masked=False,
            fused_multiply_add=True,
            lookup=Lookup(16, 1, "llvm.x86.avx2.pshuf.b"),
            narrowing=_narrowing("llvm.x86.avx2.pack{}"),
            abilities=frozenset((Ability.CONVERT_HALF,)),
            widening=_WIDENING(4, "llvm.x86.avx2.pmadd.wd"),
            pairs=_PAIRS("llvm.x86.avx2.pmadd.wd", pairs="llvm.x86.avx2.pmadd.ub.sw"),
        ),
        _X86_64(
            "x86-64-v2",
            cpu="x86-64-v2",
            features=_V2,
            vector_bits=128,
            vector_registers=16,
            masked=False,
            fused_multiply_add=False,
            lookup=Lookup(16, 1, "llvm.x86.ssse3.pshuf.b.128"),
            narrowing=_narrowing("llvm.x86.sse2.pack{}.128"),
            widening=_WIDENING(4, "llvm.x86.sse2.pmadd.wd"),
            pairs=_PAIRS("llvm.x86.sse2.pmadd.wd", pairs="llvm.x86.ssse3.pmadd.ub.sw.128"),
        ),
        Target(
            "aarch64",
            triple="aarch64-unknown-linux-gnu",
            cpu="generic",
            features=("asimd",),
            vector_bits=128,
            vector_registers=32,
            masked=False,
            fused_multiply_add=True,
            lookup=Lookup(64, 4, "llvm.aarch64.neon.tbl4.v16i8"),
            orders_nan=False,
            broadcasts=4,
            abilities=frozenset((Ability.CONVERT_HALF, Ability.CONVERT_INT64)),
            widening=_WIDENING(1, "llvm.aarch64.neon.smull.v4i32"),
        ),
    )
}

# Extensions --------------------------------------------------------------------------------------

#: For each level the features that kernels may use beyond it, and what they bring.
_EXTENSIONS: dict[str, dict[str, tuple[Ability, ...]]] = {
    "x86-64-v4": {
        "avx512vnni": (Ability.DOT_U8S8, Ability.DOT_S16S16),
        "avx512vbmi": (),
        "avx512bf16": (Ability.DOT_BF16, Ability.CONVERT_BF16),
        "avx512fp16": (Ability.HALF_ARITHMETIC,),
        "amx-tile": (),
        "amx-int8": (Ability.MATRIX_INT8,),
        "amx-bf16": (Ability.MATRIX_BF16,),
    },
    "x86-64-v3": {"avxvnni": (Ability.DOT_U8S8, Ability.DOT_S16S16)},
    "x86-64-v2": {},
    "aarch64": {
        "fullfp16": (Ability.HALF_ARITHMETIC,),
        "dotprod": (Ability.DOT_S8S8, Ability.DOT_U8U8),
        "i8mm": (Ability.DOT_U8S8, Ability.MATRIX_INT8),
        "bf16": (Ability.DOT_BF16, Ability.MATRIX_BF16, Ability.CONVERT_BF16),
        "sve": (Ability.SCALABLE,),
        "sve2": (),
    },
}

#: LLVM's intrinsics behind the dot products: by level and ability.
_INTRINSICS = {
    ("x86-64-v4", Ability.DOT_U8S8): "llvm.x86.avx512.vpdpbusd.512",
    ("x86-64-v3", Ability.DOT_U8S8): "llvm.x86.avx512.vpdpbusd.256",
    ("x86-64-v4", Ability.DOT_S16S16): "llvm.x86.avx512.vpdpwssd.512",
    ("x86-64-v3", Ability.DOT_S16S16): "llvm.x86.avx512.vpdpwssd.256",
    ("x86-64-v4", Ability.DOT_BF16): "llvm.x86.avx512bf16.dpbf16ps.512",
    ("aarch64", Ability.DOT_U8S8): "llvm.aarch64.neon.usdot.v4i32.v16i8",
    ("aarch64", Ability.DOT_S8S8): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("aarch64", Ability.DOT_U8U8): "llvm.aarch64.neon.udot.v4i32.v16i8",
    ("aarch64", Ability.DOT_BF16): "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
}

#: What is known of the speed of processors with an extension, the first that they have, until it is measured
#: on one.
_FACTS = {
    "amx-bf16": Facts(
        bf16_dots=0.25, matrix_products=0.14, matrix_loads=0.28, level1_bytes=48 << 10, level2_bytes=2 << 20
    ),
    # The same processors, where a virtual machine has no such registers.
    "avx512fp16": Facts(bf16_dots=0.25, level1_bytes=48 << 10, level2_bytes=2 << 20),
    "avx512bf16": Facts(streams=2),  # Zen 4 and 5
}

#: What `onnxc calibrate` measured on a core, by LLVM's name of the processor.
_CORES = {
    "znver3": Facts(
        multiply_adds=6.46,
        instructions=11.3,
        loads=6.3,
        divisions=1.07,
        cycle=0.309,
        latency=1.24,
        level2_bytes=512 << 10,
        level3_bytes=19 << 20,
        level2_rate=74.7,
        level3_rate=75.8,
        memory_rate=16.3,
        streams=4,
    ),
    "znver4": Facts(
        multiply_adds=3.69,
        instructions=7.38,
        loads=3.5,
        divisions=0.615,
        cycle=0.271,
        latency=1.09,
        narrow=0.5,
        level3_bytes=32 << 20,
        level2_rate=101.0,
        level3_rate=94.0,
        memory_rate=26.0,
        streams=2,
    ),
}

#: Greater tables than the level's, in one instruction.
_LOOKUPS = {"avx512vbmi": Lookup(128, 2, "llvm.x86.avx512.vpermi2var.qi.512", between=True)}

_DOTS = {
    Ability.DOT_U8S8: ("uint8", "int8", "int32", 4),
    Ability.DOT_S8S8: ("int8", "int8", "int32", 4),
    Ability.DOT_U8U8: ("uint8", "uint8", "int32", 4),
    Ability.DOT_S16S16: ("int16", "int16", "int32", 2),
    Ability.DOT_BF16: ("bfloat16", "bfloat16", "float32", 2),
}

#: LLVM's intrinsics on registers that hold matrices: by level and ability.
_MATRICES = {
    ("x86-64-v4", Ability.MATRIX_INT8): tuple(
        Matrix(lhs, rhs, "int32", 4, f"llvm.x86.tdpb{signs}d")
        for signs, lhs, rhs in (
            ("us", "uint8", "int8"),
            ("ss", "int8", "int8"),
            ("uu", "uint8", "uint8"),
            ("su", "int8", "uint8"),
        )
    ),
    ("x86-64-v4", Ability.MATRIX_BF16): (Matrix("bfloat16", "bfloat16", "float32", 2, "llvm.x86.tdpbf16ps"),),
}

#: LLVM's intrinsics that load, clear and store such registers, set their sizes, and give them back.
MATRIX_LOAD, MATRIX_ZERO, MATRIX_STORE = "llvm.x86.tileloadd64", "llvm.x86.tilezero", "llvm.x86.tilestored64"
MATRIX_SIZES, MATRIX_RELEASE = "llvm.x86.ldtilecfg", "llvm.x86.tilerelease"

#: LLVM's intrinsic behind `Ability.SCALE_EXPONENT`, which has no portable name; `.ps.512` and the like
#: follow.
SCALE_EXPONENT = "llvm.x86.avx512.mask.scalef"

#: The same behind `Ability.ESTIMATE_ROOT`.
ESTIMATE_ROOT = "llvm.x86.avx512.rsqrt14"

#: LLVM's intrinsic behind `Ability.PERMUTE`: (vector, places, vector), places counted through both vectors.
PERMUTE = {"float32": "llvm.x86.avx512.vpermi2var.ps.512", "float64": "llvm.x86.avx512.vpermi2var.pd.512"}
#: The same of one vector, which takes no copy of it: (vector, places).
PERMUTE_ONE = {
    "float32": "llvm.x86.avx512.permvar.sf.512",
    "float64": "llvm.x86.avx512.permvar.df.512",
    "uint16": "llvm.x86.avx512.permvar.hi.512",
}

#: Families by LLVM's name of a processor: its level and what that lacks.
_FAMILIES = {
    "alderlake": ("x86-64-v3", "avxvnni"),
    "cascadelake": ("x86-64-v4", "avx512vnni"),
    "cooperlake": ("x86-64-v4", "avx512vnni", "avx512bf16"),
    "icelake-server": ("x86-64-v4", "avx512vnni", "avx512vbmi"),
    "znver4": ("x86-64-v4", "avx512vnni", "avx512vbmi", "avx512bf16"),
    "sapphirerapids": ("x86-64-v4", *_EXTENSIONS["x86-64-v4"]),
    "neoverse-n1": ("aarch64", "fullfp16", "dotprod"),
    "neoverse-v1": ("aarch64", "fullfp16", "dotprod", "i8mm", "bf16", "sve"),
    "neoverse-v2": ("aarch64", *_EXTENSIONS["aarch64"]),
}

#: Other processors with what a family has.
_ALIASES = {
    "znver3": "x86-64-v3",
    "znver5": "znver4",
    "graviton2": "neoverse-n1",
    "graviton3": "neoverse-v1",
    "graviton4": "neoverse-v2",
}


def _extended(level: str, extensions: tuple[str, ...], name: str = "") -> Target:
    """A level with some of its extensions."""
    base, known = LEVELS[level], _EXTENSIONS[level]
    extensions = tuple(feature for feature in known if feature in extensions)
    abilities = base.abilities.union(*(known[feature] for feature in extensions))
    dots = tuple(
        Dot(*_DOTS[ability], intrinsic=_INTRINSICS[level, ability])
        for ability in _DOTS
        if ability in abilities and (level, ability) in _INTRINSICS
    )
    return replace(
        base,
        name=name or "+".join((level, *extensions)),
        features=(*base.features, *extensions),
        abilities=abilities,
        lookup=next((_LOOKUPS[x] for x in extensions if x in _LOOKUPS), base.lookup),
        dots=dots,
        facts=_facts_of(name, extensions),
        matrices=tuple(
            m for ability in Ability if ability in abilities for m in _MATRICES.get((level, ability), ())
        ),
        level=level,
        extensions=extensions,
    )


def _facts_of(processor: str, extensions: tuple[str, ...]) -> Facts:
    """What is known of the speed of a processor with these extensions."""
    return _CORES.get(processor) or next((f for x, f in _FACTS.items() if x in extensions), Facts())


#: All targets that have a name of their own.
TARGETS: dict[str, Target] = LEVELS | {
    name: _extended(level, tuple(extensions), name) for name, (level, *extensions) in _FAMILIES.items()
}


# Which one ---------------------------------------------------------------------------------------

#: The runtime's feature names in /proc/cpuinfo's spelling, where they differ.
_CPUINFO = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
}


#: What /proc/cpuinfo says of processors that others have the same instructions as.
_KINDS = {("AuthenticAMD", "25"): ("znver3", "znver4"), ("AuthenticAMD", "26"): ("znver5",)}


@cache
def _machine() -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = (line.partition(":") for line in takewhile(str.strip, file))
            return {name.strip(): value.strip() for name, _, value in lines}
    except OSError:
        return {}


def _machine_features() -> frozenset[str]:
    told = _machine().get("flags") or _machine().get("Features", "")
    return frozenset(told.split()) or _asked_features()


@cache
def _asked_features() -> frozenset[str]:
    """What LLVM finds that the processor has, in the same spelling: where there is no /proc."""
    import llvmlite.binding as llvm

    try:
        found = llvm.get_host_cpu_features()
    except RuntimeError:  # it knows no way
        return frozenset()
    return frozenset(_CPUINFO.get(name, name) for name, is_here in found.items() if is_here)


def _is_here(feature: str) -> bool:
    return _CPUINFO.get(feature, feature) in _machine_features() and (
        feature not in _ON_REQUEST or _granted()
    )


#: Features whose registers the system gives to a process that asks for them.
_ON_REQUEST = ("amx-tile", "amx-int8", "amx-bf16")


@cache
def _granted() -> bool:
    """Whether this process may use these registers: it asks, as every library does that needs them."""
    import ctypes

    try:
        system = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return system(158, ctypes.c_long(0x1023), ctypes.c_long(18)) == 0  # arch_prctl, ARCH_REQ_XCOMP_PERM


def runs_here(target: Target) -> bool:
    """Whether this machine has what the target asks for."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return target.triple.startswith(machine) and all(map(_is_here, target.features))


def _native() -> Target:
    """This machine: its level with all extensions that it has, so that machines with the same ones are the
    same target, whatever they are called."""
    level = next((t for t in LEVELS.values() if runs_here(t)), None)
    if level is None and not _machine_features():
        reason = "/proc/cpuinfo does not tell what this machine's processor has"
        raise CompileError(reason, "name what to compile for with --target (target=)")
    if level is None:
        raise CompileError(f"this machine's processor ({platform.machine()}) is none of {', '.join(LEVELS)}")
    extensions = tuple(filter(_is_here, _EXTENSIONS[level.name]))
    found = _extended(level.name, extensions)
    found = next((t for t in TARGETS.values() if t.features == found.features), found)
    return replace(found, facts=_facts_of(_kind(found.name), extensions))


def _kind(target: str) -> str:
    """LLVM's name of this machine's processor, of those that have the target's instructions."""
    machine = _machine()
    kinds = _KINDS.get((machine.get("vendor_id", ""), machine.get("cpu family", "")), ())
    alike = {name for name in (*_ALIASES, target) if _ALIASES.get(name, name) == target}
    told_apart = alike.intersection(kind for some in _KINDS.values() for kind in some)
    return next((kind for kind in kinds if kind in alike), "" if told_apart else target)


def levels_here() -> tuple[str, ...]:
    """The names of all levels of this machine's architecture: what a library has code for that goes to
    machines which nobody has named."""
    triple = _native().triple
    return tuple(name for name, target in LEVELS.items() if target.triple == triple)


def find_target(name: str = "native") -> Target:
    """The target of that name: one of TARGETS, another processor with the same features, `native`, or one
    with extensions behind it: `x86-64-v3+avxvnni`. Unknown names raise CompileError."""
    if name == "native":
        found = _native()
        return replace(found, facts=known_facts(found.name, found.facts))
    family, *extensions = name.split("+")
    base = TARGETS.get(_ALIASES.get(family, family))
    if base is None:
        raise CompileError(f"unknown target '{name}'; known are native, {', '.join((*TARGETS, *_ALIASES))}")
    if not extensions:
        return replace(base, facts=_facts_of(family, base.extensions))
    level = base.level or base.name
    for extension in extensions:
        if extension not in _EXTENSIONS[level]:
            known = ", ".join(_EXTENSIONS[level]) or "none"
            raise CompileError(f"the target '{family}' has no extension '{extension}'; known are {known}")
    return _extended(level, (*base.extensions, *extensions))


def find_targets(names: str | Sequence[str]) -> tuple[Target, ...]:
    """The targets of these names, or of a text that has them between commas; what asks for more comes first.
    Raises CompileError for an unknown name and for different kinds of machine."""
    words = names.split(",") if isinstance(names, str) else names
    found = {target.features: target for target in map(find_target, map(str.strip, words))}
    if not found:
        raise CompileError("no target is named")
    first, *others = found.values()
    for target in others:
        if target.triple != first.triple:
            raise CompileError(f"one library cannot be for both {first} and {target}")
    return tuple(sorted(found.values(), key=lambda target: -len(target.features)))
