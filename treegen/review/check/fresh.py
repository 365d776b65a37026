"""Check: the output folder holds what `treegen build` writes."""

from __future__ import annotations

from treegen.build import build
from treegen.core.errors import InputError
from treegen.core.files import short
from treegen.core.spec import Spec
from treegen.review.build_summary import not_kept
from treegen.review.check.report import CheckReport
from treegen.review.printing import counted
from treegen.write.files import differences, foreign_files


def check_fresh(spec: Spec, jobs: int) -> CheckReport:
    """Build without writing, in up to `jobs` processes, and compare with the files."""
    output = short(spec.output)
    try:
        built = build(spec, output, jobs=jobs)
        foreign = [f"{path} was not written by treegen" for path in foreign_files(output, built.files)]
        problems = [*foreign, *differences(output, built.files)]
    except InputError as error:
        return CheckReport(str(output), (str(error),))
    if problems:
        problems += not_kept(built.heuristics)
    return CheckReport(f"{output}: {counted(len(built.files), 'file')} of a build", tuple(problems))
