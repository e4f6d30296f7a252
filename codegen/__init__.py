"""Code generation: kernels, the functions that call them, objects and the link."""
