"""Ways of choosing configs, side by side on models that none has seen. One thread multiplies matrices."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
