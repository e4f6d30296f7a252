"""From a model file to a graph of core ops: reading, checking, inlining functions, import rules."""
