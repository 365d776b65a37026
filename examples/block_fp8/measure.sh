#!/bin/sh
# Measure both tables and build the module, in two to three minutes on an H200. `compare.py` needs no GPU.
set -e
cd "$(dirname "$0")"
export PYTHONPATH="$(cd ../.. && pwd):$(pwd):$PYTHONPATH" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
$python -m triton_tune tune.py --budget "${BUDGET:-70}"
$python -m treegen build
$python -m triton_tune untuned.py --strategy full --out untuned_data --budget "${UNTUNED_BUDGET:-50}"
