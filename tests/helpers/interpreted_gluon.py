"""Device functions of Gluon in the interpreter, which runs none: Triton has functions of the same names."""

import importlib.util
from pathlib import Path
from types import ModuleType


def interpreted(folder: Path, source: str) -> ModuleType:
    """Import the source of a module as if it were written for Triton."""
    path = folder / "interpreted.py"
    imports = "from typing import Any, NamedTuple\nimport triton\nfrom triton import language as tl\n"
    path.write_text(imports + source.replace("gluon.jit", "triton.jit").replace("gl.", "tl."))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
