"""The software that ran a kernel: what makes the times of two tables those of two programs."""

STACK = ("driver", "torch", "triton", "source_hash")
"""The keys of run.yaml that name the software that ran the kernel."""

_WORDS = {"torch": "PyTorch", "triton": "Triton", "source_hash": "the kernel's source"}


def stack_word(key: str) -> str:
    return _WORDS.get(key, f"the {key}")
