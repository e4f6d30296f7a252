"""The language of LLVM text: instructions, vectors, conversions and the functions of mathematics."""
