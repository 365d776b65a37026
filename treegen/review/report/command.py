"""treegen report: read, study, draw, write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from treegen.build import fit_tree
from treegen.core.errors import InputError
from treegen.core.spec import Config, Spec
from treegen.core.tree import leaves
from treegen.crossval.choices import Fit
from treegen.crossval.parallel import processes
from treegen.read.spec_file import find_spec, read_spec
from treegen.review.compiled_trees import Module, ModuleKey, read_trees
from treegen.review.eval.assess import Plan
from treegen.review.eval.progress import progress
from treegen.review.eval.request import Request, read_subjects
from treegen.review.report.figures import image
from treegen.review.report.page import page
from treegen.review.report.palette import Ink, palette
from treegen.review.report.section import section
from treegen.review.report.study import Study, Task, study
from treegen.write.files import check_writable, write_files

_NO_FOLDS = Plan(folds=1, repeats=1, curves=False)


@dataclass(frozen=True)
class Ask:
    """What the user asked for. spec, kernel, device, images: None where nothing was said."""

    spec: Path | None
    kernel: str | None
    device: str | None
    out: Path
    images: Path | None
    jobs: int


def run(ask: Ask, fit: Fit = fit_tree) -> None:
    """Write the page, and images where they are asked for. Raises InputError before anything is written."""
    import_module("matplotlib")  # where it is missing, that is told before the work begins
    check_writable(ask.out.parent, [ask.out.name])
    if ask.images is not None:
        check_writable(ask.images, [])
    spec = read_spec(find_spec(ask.spec))
    modules = read_trees(spec)
    studies = _studies(ask, spec, modules, fit)
    inks = _inks(spec, modules)
    sections = [section(one, inks[one.problem.kernel.name], place) for place, one in enumerate(studies)]
    text = page(sections, [ink for own in inks.values() for ink in own.values()])
    if ask.images is not None:
        several = len({one.problem.kernel.name for one in studies}) > 1
        drawn = {_image_name(one, several): image(one, inks[one.problem.kernel.name]) for one in studies}
        write_files(ask.images, drawn)
        for name in drawn:
            print(ask.images / name)
    write_files(ask.out.parent, {ask.out.name: text})
    print(f"{ask.out}: {len(sections)} sections, {len(text.encode()):,} bytes")


def _studies(ask: Ask, spec: Spec, modules: Mapping[ModuleKey, Module], fit: Fit) -> list[Study]:
    subjects = read_subjects(Request(ask.spec, ask.kernel, ask.device, _NO_FOLDS, (), None, None))
    tasks = []
    for subject in subjects:
        problem, source = subject.main.problem, subject.main.source
        name, device = problem.kernel.name, problem.device.key
        if (module := modules.get((name, device))) is None:
            raise InputError(spec.output / name / f"{device}.py", "no such module; run `treegen build`")
        tasks.append(Task(problem, source, module, fit))
    with progress() as tell, processes(min(ask.jobs, len(tasks)), tell) as spread:
        return spread("studying", study, tasks)


def _inks(spec: Spec, modules: Mapping[ModuleKey, Module]) -> Mapping[str, Mapping[Config, Ink]]:
    """By kernel, the ink of each config that any of its modules launches, whichever are reported."""
    found: dict[str, set[Config]] = {name: {kernel.fallback} for name, kernel in spec.kernels.items()}
    for (name, _), module in modules.items():
        found[name].update(leaf.config for leaf, _ in leaves(module.tree))
    return {
        name: palette(spec.kernels[name], configs, place)
        for place, (name, configs) in enumerate(found.items())
    }


def _image_name(one: Study, several: bool) -> str:
    return f"{one.problem.kernel.name if several else 'report'}_{one.problem.device.key}.png"
