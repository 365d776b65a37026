"""Triton kernels: one file a variant, and the device functions they share."""
