"""Run `python -m treegen`."""

import sys

from treegen.cli.main import main

sys.exit(main())
