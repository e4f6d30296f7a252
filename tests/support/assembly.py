"""Reads the assembly of kernels: which loops there are, and whether they keep to the registers."""

import re

import llvmlite.binding as llvm
from support.harness import machine


def commented(text, target):
    """The assembly with LLVM's remarks, which name spills."""
    tm = machine(target)
    tm.set_asm_verbosity(True)
    return tm.emit_assembly(llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}'))


def inner_loops(assembly):
    """The instructions of every block that jumps back to its own label."""
    found = []
    for block in re.split(r"(?m)^(?=\.LBB)", assembly):
        label = re.match(r"(\.LBB\d+_\d+):", block)
        body = re.split(r"(?m)^(?:#|//) %bb", block)[0].splitlines()[1:]
        instructions = [line for line in body if re.match(r"\t[^.#/]", line)]
        back = label and re.compile(rf"\b(j|b|cb|tb)\w*\W.*{re.escape(label[1])}\b")
        if back and any(back.search(line) for line in instructions):
            found.append(instructions)
    return found


def spills(text, target, functions=""):
    """The instructions that move registers to the stack or back in loops that multiply and add, of functions
    with that in their names."""
    multiplies = re.compile(r"\b(vfmadd|fmla|mulp|vpmul|v?pmadd|vpdp|vdpbf|[us]+dot|bfdot|smlal)")
    bodies = re.split(r"(?m)^(?=\S+:\s+(?:#|//) @)", commented(text, target))
    looked_at = [body for body in bodies if functions in body.partition(":")[0]]
    loops = [x for body in looked_at for x in inner_loops(body) if any(map(multiplies.search, x))]
    assert loops, "the code has no loop that multiplies"
    return [line for loop in loops for line in loop if "Spill" in line or "Reload" in line]
