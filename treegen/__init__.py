"""treegen: measurement tables in, plain if-else modules out."""

__version__ = "0.1.0"
