"""Kernels compiled ahead of their first launch, in parallel processes."""
