"""Check: the output folder holds what a build writes."""

from __future__ import annotations

from treegen.build import build
from treegen.check.report import Report, count
from treegen.commands.parsers import short
from treegen.errors import InputError
from treegen.output import differences, foreign_files
from treegen.show import not_kept
from treegen.spec import Spec


def check_fresh(spec: Spec) -> Report:
    """What `treegen build` would change."""
    output = short(spec.output)
    try:
        built = build(spec, output)
        foreign = [f"{path} was not written by treegen" for path in foreign_files(output, built.files)]
        problems = [*foreign, *differences(output, built.files)]
    except InputError as error:
        return Report(str(output), (str(error),))
    if problems:
        problems += not_kept(built.heuristics)
    return Report(f"{output}: {count(len(built.files), 'file')} of a build", tuple(problems))
