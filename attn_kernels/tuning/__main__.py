"""`python -m attn_kernels.tuning` is `attn-tune`."""

import sys

from attn_kernels.tuning.cli import main

if __name__ == "__main__":
    sys.exit(main())
