"""Check: every constraint of the spec holds wherever a leaf launches its config."""

from __future__ import annotations

from treegen.core.files import short
from treegen.core.spec import Config, Spec
from treegen.core.tree import Region, leaves
from treegen.review.check.modules import CommittedModules
from treegen.review.check.proof import Unproved, prove
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module
from treegen.review.printing import counted, region_words


def check_constraints(spec: Spec, committed: CommittedModules) -> CheckReport:
    """Prove the constraints of every leaf.

    Leaves with the fallback are exempt, as kernels must accept it for every shape.
    """
    problems: list[str] = []
    proved = bound = exempt = 0
    for module in committed.modules.values():
        for leaf, region in leaves(module.tree):
            if leaf.config == module.kernel.fallback:
                exempt += 1
                continue
            bound += 1
            unproved = list(prove(region, leaf.config, module.kernel, module.device))
            binding = [rule for rule in module.kernel.constraints if rule.binds(leaf.config)]
            proved += len(binding) - len(unproved)
            problems += [_problem(spec, module, leaf.config, region, rule) for rule in unproved]
    seen = f"{counted(proved, 'constraint')} proved at {counted(bound, 'leaf', 'leaves')}"
    return CheckReport(f"{seen}; {exempt} more launch the fallback and are exempt", tuple(problems))


def _problem(spec: Spec, module: Module, config: Config, region: Region, unproved: Unproved) -> str:
    kernel, constraint = module.kernel, unproved.constraint
    leaf = f"{kernel.name} on {module.device.key}: {kernel.constant_name(config)}"
    where = f"{short(spec.path)}:{constraint.line}"
    start = f"{leaf}, launched at {region_words(region, kernel)}: {constraint.text!r} ({where})"
    if unproved.unknown:
        return f"{start} cannot be proved: {', '.join(unproved.unknown)} has no value here"
    if unproved.counterexample is None:
        return f"{start} is not proved; no shape was found that breaks it"
    shape = " ".join(f"{name}={value}" for name, value in unproved.counterexample.items())
    return f"{start} does not hold" + (f" at {shape}" if shape else "")
