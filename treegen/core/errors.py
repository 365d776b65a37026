"""The exception for wrong input, and how messages quote text and values from outside.

The message of an InputError is one line: where the mistake is, what is wrong and how to mend it; that of
InputErrors has a line for each mistake. The command line prints it and exits with status 2. Both are raised
before anything is written.
"""

from tuning_table.errors import Mistakes as Mistakes
from tuning_table.errors import TableError as InputError
from tuning_table.errors import TableErrors as InputErrors
from tuning_table.errors import one_line as one_line
from tuning_table.errors import reason as reason
from tuning_table.errors import shown as shown

__all__ = ["InputError", "InputErrors", "Mistakes", "one_line", "reason", "shown"]
