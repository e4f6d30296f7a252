"""Processors: what code is generated for, and what a library asks of the machine that loads it.

The only file that names processors. Kernels read widths, register counts and abilities from a `Target`;
nothing else in the compiler knows an instruction set. `native` is the least general target here that this
machine satisfies.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from functools import cache, partial

from .errors import CompileError
from .facts import Facts, known_facts
from .ir import dtypes


@dataclass(frozen=True)
class Target:
    """A processor family: LLVM's names for it and the facts that tilings follow."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]  # checked by the library before it runs, in the runtime's names
    vector_bits: int
    vector_registers: int
    masked: bool  # lanes can be switched off by a mask register at no cost
    fused_multiply_add: bool
    memory_operands: bool = False  # arithmetic reads an operand straight from memory
    broadcasts: int = 1  # broadcast operands that a tile's loop holds in registers at a time
    facts: Facts = field(default_factory=Facts)
    abilities: tuple[
        str, ...
    ] = ()  # optional instructions kernels may use: "scale_exponent", "convert_half", "dot_u8s8", ...

    def lanes(self, dtype: str) -> int:
        """Elements of one vector register."""
        return self.vector_bits // (8 * dtypes.itemsize(dtype))

    @property
    def block(self) -> int:
        """Channels of a block of an image (`Layout.block`), whatever the type of its elements."""
        return self.lanes("float32")

    def registers(self, dtype: str, count: int) -> int:
        """Vector registers that hold `count` elements."""
        return -(-count // self.lanes(dtype))

    def __str__(self) -> str:
        return self.name


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86_64 = partial(Target, triple="x86_64-unknown-linux-gnu", memory_operands=True)

TARGETS: dict[str, Target] = {
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
            abilities=("scale_exponent", "convert_half"),
        ),
        _X86_64(
            "x86-64-v3",
            cpu="x86-64-v3",
            features=_V3,
            vector_bits=256,
            vector_registers=16,
            masked=False,
            fused_multiply_add=True,
            abilities=("convert_half",),
        ),
        _X86_64(
            "x86-64-v2",
            cpu="x86-64-v2",
            features=_V2,
            vector_bits=128,
            vector_registers=16,
            masked=False,
            fused_multiply_add=False,
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
            broadcasts=4,
            abilities=("convert_half",),
        ),
    )
}

#: LLVM's intrinsic behind the ability `scale_exponent`, which has no portable name; `.ps.512` and the like
#: follow.
SCALE_EXPONENT = "llvm.x86.avx512.mask.scalef"

#: The runtime's feature names in /proc/cpuinfo's spelling, where they differ.
_CPUINFO = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1"}


@cache
def _machine_features() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def runs_here(target: Target) -> bool:
    """Whether this machine has what the target asks for."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    present = _machine_features()
    return target.triple.startswith(machine) and all(_CPUINFO.get(f, f) in present for f in target.features)


def find_target(name: str = "native") -> Target:
    """The target of that name; `native` is the first of TARGETS that runs here. Unknown names raise
    CompileError."""
    if name == "native":
        found = next((t for t in TARGETS.values() if runs_here(t)), None)
        if found is None:
            raise CompileError(
                f"this machine's processor ({platform.machine()}) is none of {', '.join(TARGETS)}"
            )
        return replace(found, facts=known_facts(found.name, found.facts))
    if name not in TARGETS:
        raise CompileError(f"unknown target '{name}'; known are native, {', '.join(TARGETS)}")
    return TARGETS[name]
