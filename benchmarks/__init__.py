"""Benchmarks and large-size checks of `attn_kernels` on a real GPU; see README.md beside this file."""
