"""The intermediate representation: graph, types, ops, expressions, sizes; what checks, prints, runs them."""
