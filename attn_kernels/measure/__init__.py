"""What tuning runs and benchmarks share: batch shapes, their tensors, timing, checking, compiling ahead."""
