"""treegen report: read the tables and modules, study them, draw, write."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from treegen.review.progress import progress
from treegen.review.report import figures
from treegen.review.report.colours import ConfigStyle, config_styles
from treegen.review.report.page import MARK, page
from treegen.review.report.section import section
from treegen.review.report.study import StudyTask, study
from treegen.review.selected_tables import EvalSettings, read_tables
from treegen.review.words import counted
from treegen.write.files import check_replaceable, check_writable, write_files


def run(select: EvalSettings, out: Path, images: Path | None = None, fit: Fit = fit_tree) -> None:
    """Write the page about the selected tables, and images into a folder.

    Raises InputError before anything is written.
    """
    import_module("matplotlib")  # a missing package is reported before the work begins
    check_writable(out.parent, [out.name])
    check_replaceable(out, "treegen report", MARK.encode())
    spec = read_spec(find_spec(select.spec))
    modules = read_trees(spec)
    tasks = _tasks(select, spec, modules, fit)
    names = _image_names(tasks)
    if images is not None:
        check_writable(images, names)
        for name in names:
            check_replaceable(images / name, "treegen report", figures.MARK)
    with progress() as tell, processes(min(select.jobs or os.cpu_count() or 1, len(tasks)), tell) as spread:
        studies = spread("studying", study, tasks)
    styles = _styles(spec, modules)
    sections = [
        section(module, styles[module.problem.kernel.name], place) for place, module in enumerate(studies)
    ]
    text = page(sections, [style for of_kernel in styles.values() for style in of_kernel.values()])
    if images is not None:
        drawn = (figures.image(module, styles[module.problem.kernel.name]) for module in studies)
        write_files(images, dict(zip(names, drawn, strict=True)))
        for name in names:
            print(images / name)
    write_files(out.parent, {out.name: text})
    print(f"{out}: {counted(len(sections), 'section')}, {len(text.encode()):,} bytes")


def _tasks(
    select: EvalSettings, spec: Spec, modules: Mapping[ModuleKey, Module], fit: Fit
) -> list[StudyTask]:
    tasks = []
    for table in read_tables(select):
        name, device = table.problem.kernel.name, table.problem.device.key
        if (module := modules.get((name, device))) is None:
            raise InputError(spec.output / name / f"{device}.py", "no such module; run `treegen build`")
        tasks.append(StudyTask(table.problem, table.source, module, fit))
    return tasks


def _image_names(tasks: list[StudyTask]) -> list[str]:
    several = len({task.problem.kernel.name for task in tasks}) > 1
    problems = [task.problem for task in tasks]
    return [f"{p.kernel.name if several else 'report'}_{p.device.key}.png" for p in problems]


def _styles(spec: Spec, modules: Mapping[ModuleKey, Module]) -> Mapping[str, Mapping[Config, ConfigStyle]]:
    """By kernel, the style of each config that any of its modules launches, whichever are reported."""
    configs: dict[str, set[Config]] = {name: {kernel.fallback} for name, kernel in spec.kernels.items()}
    for (name, _), module in modules.items():
        configs[name].update(leaf.config for leaf, _ in leaves(module.tree))
    return {
        name: config_styles(spec.kernels[name], launched, place)
        for place, (name, launched) in enumerate(configs.items())
    }
