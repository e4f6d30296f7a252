"""From core ops to what one target runs: kernels and layouts, views, memory, and the check of the plan."""
