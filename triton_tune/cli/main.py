"""The command `triton-tune`. Its help and wrong use need no torch."""

import os
import sys
from collections.abc import Sequence

from triton_tune.cli.arguments import parser
from triton_tune.core.errors import TuningError
from tuning_table import TableError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 for wrong input (one line on stderr), or 130 if it is interrupted."""
    options = parser().parse_args(arguments)
    try:
        from triton_tune.cli.run import run

        return run(options)
    except (TuningError, TableError) as error:
        print(f"triton-tune: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton", "numpy", "yaml", "rich"):
            raise
        print(f"triton-tune: needs {error.name}: pip install 'attn-kernels[tune]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("triton-tune: stopped before anything was measured", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
