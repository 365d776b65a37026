"""Fleets of workers: how near to the ideal a run comes, and what its driver needs."""
