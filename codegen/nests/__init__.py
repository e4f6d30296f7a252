"""Loop nests over strided views, which run every op over every shape and type: what is behind loop_nest."""
