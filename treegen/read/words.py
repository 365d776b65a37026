"""The words of the spec: what may stand under each, its default and what it means.

docs/spec.md explains them at length. `treegen init` writes the meanings as comments.
"""

from __future__ import annotations

import re

from treegen.core.files import problem_with_package_name
from treegen.core.spec import Budget
from tuning_table.names import is_variant
from tuning_table.section import Word, must, one_of, quoting
from tuning_table.table import LARGEST_PARAMETER

FORMAT = 1
MOST_ROWS = 12  # of a regime: a tree that a person reads
_LETTERS = must(re.compile("[A-Z]{1,4}").fullmatch, "needs one to four capital letters for names")
_FUNCTION = must(re.compile(r"[\w.]+:[\w.]+").fullmatch, "must be `module:function`")
_KNOWN = must(bool, "must be known, or left out")
_VARIANT = must(is_variant, "must be a word of small letters, digits and underscores")

DEVICE = {
    "names": Word(list, (), "as the driver reports it; also longer names that begin so"),
    "arch": Word(str, None, "the first device of an architecture serves its other GPUs", check=_KNOWN),
    "vendor": Word(str),
    "limits": Word(dict, {}, "for expressions and `treegen check`", others=Word(int)),
}
TABLE = {"folder": Word(str), "measured_on": Word(str, meaning="the GPU's name in run.yaml")}
PARAMETER = {"letter": Word(str, check=_LETTERS), "default": Word(int, least=0, most=LARGEST_PARAMETER)}
_ENTRY = Word((str, dict), inside=PARAMETER, check=_LETTERS)
CONFIG = {
    "variants": Word(list, None, check=_VARIANT),
    "parameters": Word(dict, {}, "with the letters that stand for each in names of configs", others=_ENTRY),
}
REGIME = {"when": Word(str), "split_on": Word(list, ()), "max_rows": Word(int, None, least=1, most=MOST_ROWS)}
BOUND = {"holds": Word(str), "variants": Word(list)}
CONDITIONS = Word((str, dict), inside=BOUND)
TREE = {
    "max_depth": Word(int, Budget.max_depth, least=1, most=4),
    "max_rows": Word(int, Budget.max_rows, least=1, most=MOST_ROWS),
    "max_configs": Word(int, Budget.max_configs, least=1, most=64),
    "row_price": Word((int, float), Budget.row_price, least=0, most=1),
    "cell_price": Word((int, float), Budget.cell_price, least=0, most=1),
}
WORDS = Word((list, dict), others=Word(int))
KERNEL = {
    "function": Word(str, None, "what `triton_tune.install` launches with it", check=_FUNCTION),
    "hook": Word(str, None, check=quoting(problem_with_package_name)),
    "features": Word(list, meaning="what a launch knows: the arguments of `choose`"),
    "values": Word(dict, {}, "the words that 0, 1, ... stand for", others=WORDS),
    "hold_out_by": Word(list, ()),
    "constants": Word(list, (), "fixed for a running program; trees then ask about them in classes"),
    "classes": Word(
        dict,
        {},
        "kinds of programs that may launch other configs, by conditions on the constants",
        others=Word(str),
    ),
    "derived": Word(
        dict,
        {},
        "what a tree may ask about, too: sizes that decide how a launch fills the GPU",
        others=Word(str),
    ),
    "split_on": Word(list, ()),
    "invariant_to": Word(list, ()),
    "regimes": Word(dict, {}, others=Word((str, dict), inside=REGIME)),
    "config": Word(dict, meaning="the variants and parameters of launches", inside=CONFIG),
    "constraints": Word(
        list, (), "conditions that a config must meet, as `2 * BLOCK <= shared_memory`", items=CONDITIONS
    ),
    "invariants": Word(list, (), items=Word(str)),
    # Its words are `variant` and the parameters.
    "fallback": Word(dict, meaning="the config for unknown devices", others=Word()),
    "tree": Word(dict, {}, inside=TREE),
    "objective": Word(dict, {}, inside={"weight": Word((str, int), 1)}),  # YAML takes no integer for text
    "tables": Word(dict, meaning="a folder for each device", others=Word((str, dict), inside=TABLE)),
    "translate": Word(dict, {}, others=Word(dict, others=Word())),
    "in_kernel": Word(bool, False),
}
SPEC = Word(
    inside={
        "format": Word(int, check=one_of([FORMAT])),
        "output": Word(str, meaning="the package that `treegen build` writes; import it by this name"),
        "devices": Word(dict, others=Word(dict, inside=DEVICE)),
        "kernels": Word(dict, others=Word(dict, inside=KERNEL)),
    }
)
