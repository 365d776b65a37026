#!/bin/sh
# Measure both tables, build the module, and time it beside torch and the autotuner: about 160 s on an H200.
set -e
cd "$(dirname "$0")"
export PYTHONPATH="$(cd ../.. && pwd):$(pwd):$PYTHONPATH" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
$python -m triton_tune tune.py --budget "${BUDGET:-75}"
$python -m treegen build
$python -m triton_tune untuned.py --strategy full --out untuned_data --budget "${UNTUNED_BUDGET:-40}"
$python compare.py --autotuned "${AUTOTUNED:-1}"
