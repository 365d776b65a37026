"""Which packages a wheel holds; pyproject.toml has the rest.

The folder `generated/` is installed as `attn_kernels.generated`, as other projects have a `generated` too.
`treegen` has no `__init__.py`, because another project of that name has one: no file belongs to both.
"""

from setuptools import find_namespace_packages, setup

OURS = ("attn_kernels", "treegen", "triton_tune", "tuning_table")

generated = find_namespace_packages(include=["generated", "generated.*"])
setup(
    packages=[
        *find_namespace_packages(include=[*OURS, *(f"{name}.*" for name in OURS)]),
        *(f"attn_kernels.{name}" for name in generated),
    ],
    package_dir={"attn_kernels.generated": "generated"},
)
