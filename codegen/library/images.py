"""The libraries of image formats, which only models that decode images are linked with.

A library that does not have what it needs is not made: the error names every package that is missing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from ...errors import CompileError
from ...target import Target
from .compiler import TIMEOUT, environment, find_compiler, target_flags

#: What compiles the runtime with `runtime_c/images.c`.
FLAG = "-DONNXC_IMAGES"

#: Library → (headers of which one must be there, what links it, Debian's package).
LIBRARIES = {
    "libjpeg-turbo": (("jpeglib.h",), "-ljpeg", "libjpeg-dev"),
    "libpng": (("png.h",), "-lpng", "libpng-dev"),
    "libtiff": (("tiffio.h",), "-ltiff", "libtiff-dev"),
    "libwebp": (("webp/decode.h",), "-lwebp", "libwebp-dev"),
    "openjpeg": (
        ("openjpeg.h", "openjpeg-2.5/openjpeg.h", "openjpeg-2.4/openjpeg.h"),
        "-lopenjp2",
        "libopenjp2-7-dev",
    ),
}
LINKED = tuple(flag for _, flag, _ in LIBRARIES.values())


def missing(target: Target, compiler: Sequence[str] | None = None) -> list[str]:
    """The libraries whose headers the compiler does not find."""
    lines = []
    for name, (headers, _, _) in LIBRARIES.items():
        there = " || ".join(f"__has_include(<{header}>)" for header in headers)
        lines.append(f"#if !({there})\nmissing:{name}\n#endif\n")
    compiler = compiler or find_compiler(target)
    command = [*compiler, *target_flags(compiler, target), "-E", "-P", "-x", "c", "-"]
    try:
        found = subprocess.run(
            command,
            input="".join(lines),
            env=environment(command),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"'{command[0]}' cannot be run: {error}") from None
    if found.returncode != 0:
        raise CompileError(f"'{command[0]}' failed with status {found.returncode}")
    return [line.partition(":")[2] for line in found.stdout.splitlines() if line.startswith("missing:")]


def require(target: Target, compiler: Sequence[str] | None = None) -> None:
    """CompileError where a library is missing."""
    absent = missing(target, compiler)
    if absent:
        packages = " ".join(LIBRARIES[name][2] for name in absent)
        raise CompileError(
            f"ImageDecoder needs {', '.join(absent)}", remedy=f"install {packages} (their names in Debian)"
        )
