"""treegen: measurement tables in, plain if-else modules out."""

from tuning_table import __version__

__all__ = ["__version__"]
