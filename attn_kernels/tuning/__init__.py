"""Tuning runs: time many configs in many scenarios and write a tuning table."""
