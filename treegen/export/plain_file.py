"""A kernel's modules as one plain Python file, with which `@triton.autotune` launches and times nothing."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from treegen.core.errors import InputError
from treegen.core.spec import FALLBACK_DEVICE, KernelSpec, Spec
from treegen.emit.package import kernel_package
from treegen.emit.templating import rendered
from treegen.export.tuned_files import Exported
from treegen.write.modules import read_modules

_DTYPE = "_dtype"  # the feature `a_ptr_dtype` is the data type of the argument `a_ptr`, as in `@tuned`


def plain_file(
    spec: Spec, kernel: KernelSpec, words: Sequence[str], device: str | None, *, of_hub: bool
) -> dict[str, Exported]:
    """The file by its name: the printed modules and package as they are, and a rule for Triton.

    words: `FEATURE=ARGUMENT` where a feature is not an argument of the kernel by the same name.
    device: the only one whose module is taken, whatever GPU launches.
    of_hub: in the layout of a kernel of the Hugging Face hub, from which kernel-builder builds; see
    docs/source/builder/writing-kernels.md in https://github.com/huggingface/kernels

    Raises InputError: the kernel has no module, or variants; or a word names no feature or no argument.
    """
    modules = {key: module.text for (name, key), module in read_modules(spec).items() if name == kernel.name}
    if set(modules) != {*kernel.tables, FALLBACK_DEVICE}:
        raise InputError(spec.output / kernel.name, "does not hold all modules; `treegen build` writes them")
    if len(kernel.variants) > 1:
        raise InputError(kernel.name, "has variants, which no config of Triton's autotuner names")
    if device not in (None, *modules):
        raise InputError(str(device), f"is none of the devices: {', '.join(modules)}")
    arguments = {name: name.replace(_DTYPE, ".dtype") for name in kernel.features}
    for word in words:
        name, _, argument = word.partition("=")
        if name not in arguments or not re.fullmatch(r"[A-Za-z_]\w*(\.dtype)?", argument, re.ASCII):
            what = f"must be FEATURE=ARGUMENT or FEATURE=ARGUMENT.dtype, with one of {', '.join(arguments)}"
            raise InputError(word or "''", what)
        arguments[name] = argument
    parts = [(name, *argument.partition(".")[:2]) for name, argument in arguments.items()]
    package = kernel_package(kernel, spec.devices)
    text = rendered(
        "prune.py.j2",
        kernel=kernel,
        config=_body(package["config.py"]),
        modules={name: textwrap.indent(_body(text), "    ") for name, text in modules.items()},
        package=_body(package["__init__.py"]),
        key=[argument for _, argument, dot in parts if not dot],
        features=[(name, argument, bool(dot)) for name, argument, dot in parts],
        only=device,
        worded=any(name in kernel.values for name in kernel.parameters),
        named=any(name in kernel.values for name in kernel.features),
    )
    texts = _hub_files(kernel, text) if of_hub else {f"{kernel.name}_configs.py": text}
    return {name: Exported(text, f"{text.count(chr(10))} lines") for name, text in texts.items()}


def _hub_files(kernel: KernelSpec, text: str) -> dict[str, str]:
    name, package = kernel.name.replace("_", "-"), f"torch-ext/{kernel.name}"
    general = f'[general]\nname = "{name}"\nversion = 1\nbackends = ["cuda", "rocm", "xpu"]\n'
    general += "\n[torch-noarch]\n"
    what = "Put the kernel beside this file, and export what calls it."
    start = f'"""{what}"""\n\nfrom .configs import CONFIGS, KEY, prune\n'
    return {"build.toml": general, f"{package}/configs.py": text, f"{package}/__init__.py": start}


def _body(text: str) -> str:
    """A printed module without its docstring, imports and `__all__`."""
    rest = (n for n in ast.parse(text).body[1:] if not isinstance(n, ast.Import | ast.ImportFrom))
    first = next(n for n in rest if not ast.unparse(n).startswith("__all__"))
    start = min([first.lineno, *(node.lineno for node in getattr(first, "decorator_list", []))])
    return "\n".join(text.split("\n")[start - 1 :]).strip()
