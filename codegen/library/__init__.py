"""The library: the functions that call the kernels, tables, weights, objects, and the link."""
