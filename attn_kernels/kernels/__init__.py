"""Triton kernels: one file per variant, and the device functions they share."""
