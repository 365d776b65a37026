"""Tuning runs: many configs timed in many scenarios, written as a measurement table."""
