"""The exception for wrong input, and how messages quote text and values from outside.

The message of an InputError is one line: where the mistake is, what is wrong and how to mend it; that of
InputErrors has a line for each mistake. The command line prints it and exits with status 2. Both are raised
before anything is written.
"""

from tuning_table.errors import Mistakes, one_line, reason, shown
from tuning_table.errors import TableError as InputError
from tuning_table.errors import TableErrors as InputErrors

__all__ = ["InputError", "InputErrors", "Mistakes", "one_line", "reason", "shown"]
