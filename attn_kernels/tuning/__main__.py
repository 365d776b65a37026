"""`python -m attn_kernels.tuning` is `attn-tune`."""

import sys

from attn_kernels.tuning.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
