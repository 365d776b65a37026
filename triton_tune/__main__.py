"""`python -m triton_tune` is `triton-tune`."""

import sys

from triton_tune.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
