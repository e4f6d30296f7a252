"""What little of the ELF format the compiler knows: an object of constant data, and where a section lies.

A data object is written without a tool's help and without a second copy: the data stand in the file already,
after one page that is left free for the header, and the tables of the format follow them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

HEAD_BYTES = 4096  # before the data, which begin on a page
_IDENT = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOCATED, _GLOBAL_OBJECT, _HIDDEN = 2, 0x11, 2


def finish_data_object(path: Path, section: str, symbol: str, like: Path) -> None:
    """Makes the file, whose data begin at HEAD_BYTES, an object: the data are read-only in `section`, aligned
    to a page, and a hidden `symbol` is their address. like: an object for the same machine."""
    with open(like, "rb") as file:
        ident, _, machine, version, _, _, _, flags, *_ = _HEADER.unpack(file.read(_HEADER.size))
    with open(path, "r+b") as file:
        size = file.seek(0, 2) - HEAD_BYTES
        names = ["", section, ".symtab", ".strtab", ".note.GNU-stack", symbol]
        strings = b"".join(name.encode() + b"\0" for name in names)
        at = {name: strings.index(b"\0" + name.encode() + b"\0") + bool(name) for name in names[1:]}
        symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(at[symbol], _GLOBAL_OBJECT, _HIDDEN, 1, 0, size)
        symbols_at = _append(file, symbols)
        strings_at = _append(file, strings)
        sections = bytes(_SECTION.size)  # the first of each table is nothing
        for fields in (
            (at[section], _PROGBITS, _ALLOCATED, 0, HEAD_BYTES, size, 0, 0, 4096, 0),
            (at[".symtab"], _SYMTAB, 0, 0, symbols_at, len(symbols), 3, 1, 8, _SYMBOL.size),
            (at[".strtab"], _STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
            (at[".note.GNU-stack"], _PROGBITS, 0, 0, strings_at, 0, 0, 0, 1, 0),  # the stack is not executed
        ):
            sections += _SECTION.pack(*fields)
        table = _append(file, sections)
        file.seek(0)
        head = (ident, 1, machine, version, 0, 0, table, flags, _HEADER.size, 0, 0, _SECTION.size, 5, 3)
        file.write(_HEADER.pack(*head))


def _append(file: BinaryIO, data: bytes) -> int:
    """Writes at the next multiple of 8; where that is."""
    at = -(-file.seek(0, 2) // 8) * 8
    file.seek(at)
    file.write(data)
    return at


def section_range(path: Path, name: str) -> tuple[int, int]:
    """(offset, length) in the file of an ELF section; (0, 0) when there is none or it is no ELF file."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(_IDENT):
            return 0, 0
        _, _, _, _, _, _, table, _, _, _, _, entry, count, names = _HEADER.unpack(head)
        file.seek(table)
        sections = file.read(entry * count)
        fields = [_SECTION.unpack_from(sections, entry * k) for k in range(count)]
        file.seek(fields[names][4])
        strings = file.read(fields[names][5])
        for at, _, _, _, offset, length, *_ in fields:
            if strings[at : strings.index(b"\0", at)] == name.encode():
                return offset, length
    return 0, 0
