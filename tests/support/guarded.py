"""Memory before a page that nobody may touch: a kernel that goes beyond its operands dies."""

import ctypes
import mmap

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)


def guarded(nbytes, alignment=64, fill=0xFF):
    """As harness.aligned; less than `alignment` bytes lie between the end and the forbidden page."""
    page = mmap.PAGESIZE
    body = -(-max(nbytes, 1) // page) * page
    memory = mmap.mmap(-1, body + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _libc.mprotect(ctypes.c_void_p(address + body), ctypes.c_size_t(page), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    array = np.frombuffer(memory, np.uint8, body)
    array[:] = fill
    start = (body - nbytes) // alignment * alignment
    return array[start : start + nbytes]
