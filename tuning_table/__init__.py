"""Read and write tuning tables: the times of one kernel's configs on one device, in many scenarios.

docs/tables.md describes the files and shows how to write a table from Python. Only run.yaml needs PyYAML.
"""

from tuning_table.errors import TableError
from tuning_table.reader import read, read_run
from tuning_table.table import Cells, Failure
from tuning_table.writer import TableWriter, create

__version__ = "0.1.0"  # of the distribution, for all its commands
__all__ = ["Cells", "Failure", "TableError", "TableWriter", "create", "read", "read_run"]
