"""Shared by tuning runs and benchmarks: batches, their tensors, timing and checking."""
