"""The kernel of the folder whose tune.py is found, for shapes of models that are not tuned."""

import dataclasses

from tune import TUNING

from benchmarks.packages.models import judged

UNTUNED = dataclasses.replace(TUNING, shapes=judged(TUNING.name))
del TUNING
