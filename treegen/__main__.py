"""python -m treegen"""

import sys

from treegen.cli import main

sys.exit(main())
