"""Check: the features that a kernel's `invariant_to` names decide nothing in its modules.

The proof reads a module's syntax tree; it tries no shapes. A feature comes in as the argument of its name. No
code may read it, except to pass it on: `for_model(...)(...)` gives it to the function of a step, as the
argument of the same name. What could read an argument without its name, such as `eval` or `*arguments`, is a
problem, too.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from treegen.core.errors import InputError
from treegen.core.files import read_text, short
from treegen.core.spec import Spec
from treegen.review.check.report import CheckReport
from treegen.review.modules import expected_modules
from treegen.review.printing import counted

_HIDING = ("eval", "exec", "globals", "locals", "vars", "setattr", "getattr", "__import__")
_CACHES = ("cache", "lru_cache")  # decorators that change no result


def check_invariance(spec: Spec) -> CheckReport:
    """Prove every module of the kernels with `invariant_to`."""
    problems: list[str] = []
    not_run: list[str] = []
    proved = 0
    for kernel, _, path in expected_modules(spec, short(spec.output)):
        if not kernel.invariant_to:
            continue
        try:
            uses = readings(read_text(path), kernel.invariant_to)
        except (InputError, SyntaxError, ValueError):  # the check `modules` tells what is wrong
            not_run.append(f"{path} cannot be read")
            continue
        found = [f"{path}:{line}: {name} {what}" for line, name, what in uses]
        proved += not found
        problems += found
    named = [
        f"{kernel.name} not to {', '.join(kernel.invariant_to)}"
        for kernel in spec.kernels.values()
        if kernel.invariant_to
    ]
    seen = (
        f"{counted(proved, 'module')} proved; {'; '.join(named)}" if named else "no kernel has invariant_to"
    )
    return CheckReport(seen, tuple(problems), tuple(not_run))


def readings(text: str, features: Collection[str]) -> list[tuple[int, str, str]]:
    """The lines of a module that read one of these features, or might, with what they read and how."""
    tree = ast.parse(text)
    others = {*_passed_on(tree), *_of_generators(tree)}
    found: set[tuple[int, str, str]] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in features and node not in others:
                found.add((node.lineno, name, "is read"))
            case ast.Name(id=name) if name in _HIDING:
                found.add((node.lineno, name, "may read any argument"))
            case ast.arguments(vararg=ast.arg() as rest) | ast.arguments(kwarg=ast.arg() as rest):
                found.add((rest.lineno, rest.arg, "may be any arguments"))
            case ast.FunctionDef(decorator_list=decorators) if not all(map(_is_cache, decorators)):
                found.add((node.lineno, node.name, "is decorated by what may read its arguments"))
    return sorted(found)


def _is_cache(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id in _CACHES


def _passed_on(tree: ast.Module) -> Iterator[ast.AST]:
    """The arguments of calls `for_model(...)(...)` that have the names of the step's own arguments."""
    parameters = _step_parameters(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Call(func=ast.Name(id="for_model")), args=arguments):
                for argument, parameter in zip(arguments, parameters, strict=False):
                    if isinstance(argument, ast.Name) and argument.id == parameter:
                        yield argument


def _step_parameters(tree: ast.Module) -> list[str]:
    """The arguments of the function that `for_model` returns; none if it might return another one."""
    makers, others = [], 0
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name="for_model"):
                makers.append(node)
            case ast.arg(arg="for_model") | ast.alias(name="for_model") | ast.alias(asname="for_model"):
                others += 1
            case ast.Name(id="for_model", ctx=ast.Store()):
                others += 1
    match makers:
        case [
            ast.FunctionDef(body=[*before, ast.FunctionDef() as step, ast.Return(value=ast.Name(id=name))])
        ]:
            returns = [node for part in before for node in ast.walk(part) if isinstance(node, ast.Return)]
            if name == step.name and not returns and not others:
                return [parameter.arg for parameter in step.args.args]
    return []


def _of_generators(tree: ast.Module) -> Iterator[ast.AST]:
    """The variables of generator expressions, which are no arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp):
            outside = set(ast.walk(node.generators[0].iter))
            targets = [name for one in node.generators for name in ast.walk(one.target)]
            own = {name.id for name in targets if isinstance(name, ast.Name)}
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and name.id in own and name not in outside:
                    yield name
