"""Loading a compiled library and calling it: needs numpy and the standard library alone."""
