#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/, and uses the wheel in environments that hold nothing else, or another project's treegen.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment() {  # environment NAME PACKAGE...
    python3 -m venv "$work/$1"
    "$work/$1/bin/python" -m pip install --quiet "${@:2}"
}
commands() {  # commands NAME: the console scripts of an environment
    for command in treegen triton-tune attn-tune; do "$1/bin/$command" --version; done
}

environment tools build
rm -rf dist
"$work/tools/bin/python" -m build --outdir dist
wheel=$(echo "$repository"/dist/*.whl)
others=$(unzip -Z1 "$wheel" | grep -vE '^(attn_kernels|treegen|triton_tune|tuning_table|attn_kernels-[^/]*\.dist-info)/' || true)
test -z "$others" || { echo "not meant for the wheel: $others"; exit 1; }

cd "$work"  # away from the folders of the same names in the repository
environment base "$wheel"
base/bin/python -c 'from attn_kernels.generated.unified_attention import for_device; assert for_device("", "sm_90", "nvidia")'
base/bin/python -c 'from attn_kernels.choose.packages import kernel_package as of; assert of("unified_attention").__name__ == "attn_kernels.generated.unified_attention"'
if base/bin/python -c 'import generated' 2> /dev/null; then echo "installs a top-level package: generated"; exit 1; fi
commands base

# A package index has another project called treegen, with a package of that name. Installed before or after ours, both work.
mkdir -p other/treegen
echo 'from .treegen import TREES' > other/treegen/__init__.py
echo 'TREES = 1' > other/treegen/treegen.py
echo 'from setuptools import setup; setup(name="treegen", version="0.1", packages=["treegen"])' > other/setup.py
environment first ./other
first/bin/python -m pip install --quiet "$wheel"
environment second "$wheel"
second/bin/python -m pip install --quiet ./other
for name in first second; do
    $name/bin/python -c 'import treegen, treegen.cli.main; assert treegen.TREES'
    commands $name
done
second/bin/python -m pip uninstall --quiet --yes treegen
commands second

environment all "$wheel[treegen,tune]" mypy types-PyYAML
cp -r "$repository/examples/matmul" .
(cd matmul && ../all/bin/treegen build --check)  # reads the installed templates
echo 'import attn_kernels, treegen.build, triton_tune, tuning_table; reveal_type(attn_kernels.plan); reveal_type(treegen.build.build)' > uses.py
all/bin/mypy --strict uses.py
