#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/, and uses the wheel in environments that hold nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment() {  # environment NAME PACKAGE...
    python3 -m venv "$work/$1"
    "$work/$1/bin/python" -m pip install --quiet "${@:2}"
}

environment tools build
rm -rf dist
"$work/tools/bin/python" -m build --outdir dist
wheel=$(echo "$repository"/dist/*.whl)
others=$(unzip -Z1 "$wheel" | grep -vE '^(attn_kernels|generated|treegen|triton_tune|tuning_table|attn_kernels-[^/]*\.dist-info)/' || true)
test -z "$others" || { echo "not meant for the wheel: $others"; exit 1; }

cd "$work"  # away from the folders of the same names in the repository
environment generated "$wheel"
generated/bin/python -c 'from generated.unified_attention import for_device; assert for_device("", "sm_90", "nvidia")'
for command in treegen triton-tune attn-tune; do generated/bin/$command --version; done

environment all "$wheel[treegen,tune]" mypy types-PyYAML
cp -r "$repository/examples/matmul" .
(cd matmul && ../all/bin/treegen build --check)  # reads the installed templates
echo 'import attn_kernels, treegen, triton_tune, tuning_table; reveal_type(attn_kernels.plan)' > uses.py
all/bin/mypy --strict uses.py
