"""How fast a core is: what estimates of time are made of, and what is known of the machine at hand.

A machine's caches are asked of the system. `onnxc calibrate` measures the rest once and keeps it in the
user's cache, where `native` finds it; until then the rates are those of the processor's kind, where one was
measured (`target.py`), or of no machine in particular.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from .cache import usable_cache_folder
from .records import dataclass

#: A file of the cache's folder that is as old as the last facts that were kept there.
CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Facts:
    """Rates are per nanosecond, on one thread; bytes count whether they are read or written."""

    multiply_adds: float = 6.0  # of whole vectors
    instructions: float = 6.0  # on whole vectors, of several kinds by turns
    loads: float = 5.0  # of whole vectors, from the first-level cache
    divisions: float = 0.33  # of whole vectors, and roots
    cycle: float = 0.33  # nanoseconds of an addition of two numbers, one after the other
    latency: float = 1.3  # nanoseconds from a multiply-add to one that needs its result
    narrow: float = 1.0  # of a whole vector's time that half of one takes
    bf16_dots: float = 1.0  # of a multiply-add's rate that products of pairs of bfloat16 have
    matrix_products: float = 0.1  # of whole matrix registers
    matrix_sustained: float = (
        0.05  # the same when others use the core's at that time: the least that was seen
    )
    matrix_loads: float = 0.2  # of matrix registers, from the first-level cache
    level1_bytes: int = 32 << 10
    level2_bytes: int = 1 << 20
    level3_bytes: int = 16 << 20  # as far as one core gets them
    level2_rate: float = 60.0  # bytes
    level3_rate: float = 25.0
    memory_rate: float = 10.0
    streams: int = 8  # places from which a core reads memory the fastest, one step of each by turns


def known_facts(target: str, otherwise: Facts) -> Facts:
    """What `onnxc calibrate` measured for code of the target on this machine, else what the system says."""
    return measured_facts(target) or replace(otherwise, **cache_sizes())


def measured_facts(target: str) -> Facts | None:
    """Those that `onnxc calibrate` kept; None where there are none, or none of this release."""
    path = kept_path("facts", target)
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        return Facts(**{name: type(value)(found[name]) for name, value in asdict(Facts()).items()})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep_facts(target: str, facts: Facts) -> Path | None:
    """Keeps measured facts; where, or None where there is no cache."""
    path = kept_path("facts", target)
    if path is not None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(asdict(facts)), encoding="utf-8")
        temporary.replace(path)
        (path.parent / CALIBRATED).touch()
    return path


def cache_sizes() -> dict[str, int]:
    """The data caches of the first processor, as fields of Facts; those that the system tells."""
    found = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = (
                (folder / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size")
            )
            if kind != "Instruction" and level in "123" and size.endswith("K"):
                found[f"level{level}_bytes"] = int(size[:-1]) << 10
        except (OSError, ValueError):
            continue
    return found


def kept_path(kind: str, target: str) -> Path | None:
    """Where the cache keeps what was measured of code for the target on this kind of processor; None where
    there is no cache."""
    folder = usable_cache_folder()
    return folder / f"{kind}-{target}-{_processor()}.json" if folder is not None else None


def _processor() -> str:
    """A name for this kind of processor."""
    kinds = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "cpu:type:")
    told: list[str] = []
    for source in ("/proc/cpuinfo", "/sys/devices/system/cpu/modalias"):  # the other where there is no /proc
        with suppress(OSError):
            lines = (
                Path(source).read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
            )
            told = told or [line for line in lines if line.startswith(kinds)]
    told = told or [platform.processor()]
    return hashlib.sha256("\n".join((*told, str(sorted(cache_sizes().items())))).encode()).hexdigest()[:16]
