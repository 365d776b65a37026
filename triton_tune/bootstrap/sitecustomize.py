"""Python runs this as it starts in a program of `triton-tune ... -- COMMAND`, and in all processes of it.

Once Triton is imported, launches are recorded or chosen, as the environment says. Then the `sitecustomize`
runs that this one hides.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

RECORD, HEURISTICS = "TRITON_TUNE_RECORD", "TRITON_TUNE_HEURISTICS"


class _AfterTriton:
    """Finds Triton as others do, and begins once it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_begin(module: ModuleType) -> None:
                run(module)
                _begin()

            spec.loader.exec_module = run_and_begin  # type: ignore[method-assign]
        return spec


def _begin() -> None:
    if folder := os.environ.get(RECORD):
        from triton_tune.record.recorder import record

        record(Path(folder))
    if package := os.environ.get(HEURISTICS):
        from triton_tune.core.errors import in_one_line
        from triton_tune.launch.install import install

        try:
            install(package)
        except Exception as error:  # a program that does without Triton would take it for Triton's
            print(f"triton-tune: --use {package}: {in_one_line(error)}", file=sys.stderr)
            raise SystemExit(2) from None


if __name__ == "sitecustomize":
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [folder for folder in sys.path if str(Path(folder).resolve()) != here]
    if os.environ.get(RECORD) or os.environ.get(HEURISTICS):
        sys.meta_path.insert(0, _AfterTriton())
    hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if hidden is not None and hidden.loader is not None:
        module = importlib.util.module_from_spec(hidden)
        hidden.loader.exec_module(module)
