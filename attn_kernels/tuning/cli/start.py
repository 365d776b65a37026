"""Start `attn-tune`: its help and wrong use need no torch."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 2, with one line on stderr, where torch or Triton is missing."""
    try:
        from attn_kernels.tuning.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton", "numpy"):
            raise
        from attn_kernels.tuning.cli.arguments import parser

        parser().parse_args(arguments)  # ends here for --help
        print(f"attn-tune needs {error.name}: pip install 'attn-kernels[tune]'", file=sys.stderr)
        return 2
    return run(arguments)
