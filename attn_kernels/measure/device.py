"""Facts on which measured times depend: the device, its driver and the source of the kernels."""

import hashlib
from pathlib import Path

from attn_kernels.choose.choices import KERNEL
from attn_kernels.choose.packages import kernel_package
from triton_tune.core.device import hash_of

# The files that determine a kernel's machine code, grid and arguments. Others only cost CPU time.
KERNEL_SOURCES = ("kernels/**/*.py", "core/config.py")


def kernel_source_hash() -> str:
    """`hash_of` the kernels and of what describes their launches."""
    root = Path(__file__).resolve().parents[1]
    return hash_of(root, [path for pattern in KERNEL_SOURCES for path in root.glob(pattern)])


def source_hash_with_choices() -> str:
    """As `kernel_source_hash`, and of the generated modules that choose for the parts of a mixed batch."""
    folder = Path(str(kernel_package(KERNEL).__file__)).parent
    both = kernel_source_hash() + hash_of(folder, list(folder.glob("*.py")))
    return hashlib.sha256(both.encode()).hexdigest()[:12]
