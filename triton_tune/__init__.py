"""Tuning runs of Triton kernels: time many configs in many scenarios and write a tuning table."""
