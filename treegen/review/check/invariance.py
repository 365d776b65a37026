"""Check: the features that a kernel's `invariant_to` names decide nothing in its modules.

The proof reads a module's syntax tree; it tries no shapes. A value depends on such a feature if its
expression names the feature, or something that was assigned or passed such a value. Names are followed
wherever they occur in the file, so the proof finds more dependence than there is. No condition, loop or
returned value may depend on one. What could hide a dependence, such as `eval` or an exception that is caught,
is a problem, too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator

from treegen.core.errors import InputError
from treegen.core.files import read_text, short
from treegen.core.spec import Spec
from treegen.review.check.report import CheckReport
from treegen.review.modules import expected_modules
from treegen.review.printing import counted

_UNFOLLOWED = ("eval", "exec", "globals", "locals", "vars", "setattr", "getattr", "__import__")
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
            tree = ast.parse(read_text(path))
        except (InputError, SyntaxError, ValueError):  # the check `modules` tells what is wrong
            not_run.append(f"{path} cannot be read")
            continue
        found = [f"{path}:{line}: {name} {what}" for line, name, what in decisions(tree, kernel.invariant_to)]
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


def decisions(tree: ast.Module, features: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """The lines where one of these features decides, the feature, and how."""
    tree = copy.deepcopy(tree)
    _OwnNames().visit(tree)
    flow = _Flow(tree, features)
    found: dict[tuple[int, str, str], None] = {}
    for node in ast.walk(tree):
        for value, what in _deciding(node):
            if (feature := flow.feature(value)) is not None:
                found[value.lineno, feature, what] = None
        if (hidden := _unfollowed(node)) is not None:
            found[hidden.lineno, ast.unparse(hidden).split("\n")[0], "may hide what decides"] = None
    yield from sorted(found)


class _OwnNames(ast.NodeTransformer):
    """Gives the variables of a comprehension names that nothing else has."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            first = node.generators[0].iter  # is computed outside
            outside = set(ast.walk(first))
            targets = [name for one in node.generators for name in ast.walk(one.target)]
            own = {name.id for name in targets if isinstance(name, ast.Name)}
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and name.id in own and name not in outside:
                    name.id = f"{name.id} of {node.lineno}:{node.col_offset}"
        return node


def _unfollowed(node: ast.AST) -> ast.expr | ast.stmt | None:
    """Code through which the proof cannot follow values."""
    match node:
        case ast.Name(id=name) if name in _UNFOLLOWED:
            return node
        case ast.Try() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Delete():
            return node
        case ast.FunctionDef(decorator_list=[*decorators]):
            return next((one for one in decorators if not _is_cache(one)), None)
    return None


def _is_cache(decorator: ast.expr) -> bool:
    return isinstance(called := getattr(decorator, "func", decorator), ast.Name) and called.id in _CACHES


def _deciding(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """The values with which a statement or expression decides."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            yield test, "decides in a condition"
        case ast.Match(subject=test) | ast.match_case(guard=ast.expr() as test):
            yield test, "decides in a condition"
        case ast.For(iter=values):
            yield values, "decides how often a loop runs"
        case ast.comprehension(iter=values, ifs=tests):
            yield values, "decides how often a loop runs"
            for test in tests:
                yield test, "decides in a condition"
        case ast.Return(value=ast.expr() as value) | ast.Lambda(body=value):
            yield value, "decides what is returned"
        case (
            ast.Yield(value=ast.expr() as value)
            | ast.YieldFrom(value=value)
            | ast.Raise(exc=ast.expr() as value)
        ):
            yield value, "decides what is returned"
        case ast.Expr(value=value):
            yield value, "is given to code that the proof cannot follow"


class _Flow:
    """The names of a module whose values depend on features, each with one of these features."""

    def __init__(self, tree: ast.Module, features: Collection[str]) -> None:
        self._features = {name: name for name in features}
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        others = set()  # names that may stand for something else than the functions
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name):
                    self._functions.setdefault(name, []).append(node)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchAs(name=str() as name):
                    others.add(name)
                case ast.alias(name=name, asname=other):
                    others.add(other or name)
        self._functions = {name: own for name, own in self._functions.items() if name not in others}
        while self._grow(tree):
            pass

    def feature(self, value: ast.AST) -> str | None:
        """The first feature on which an expression's value depends."""
        match value:
            case ast.Name(id=name):
                return self._features.get(name)
            case ast.Call(func=called, args=arguments, keywords=keywords) if self._called(called):
                # What a function of this module returns is judged where it returns. Its arguments become
                # its parameters, whose names `_grow` follows.
                starred = [one for one in arguments if isinstance(one, ast.Starred)]
                packed = [one.value for one in keywords if one.arg is None]
                parts: list[ast.AST] = [called, *starred, *packed]
            case ast.Lambda():
                return None  # judged by its body
            case _:
                parts = list(ast.iter_child_nodes(value))
        return next((found for part in parts if (found := self.feature(part)) is not None), None)

    def _called(self, called: ast.expr) -> list[ast.FunctionDef]:
        """The functions of this module that an expression may call; none if it may call others."""
        match called:
            case ast.Name(id=name):
                return self._functions.get(name, [])
            case ast.Call(func=ast.Name(id=name)):  # such as for_model(...)(...)
                returned = [value for outer in self._functions.get(name, []) for value in _returned(outer)]
                names = [value.id for value in returned if isinstance(value, ast.Name)]
                if len(names) == len(returned) and self._functions.keys() >= set(names):
                    return [function for name in names for function in self._functions[name]]
        return []

    def _grow(self, tree: ast.Module) -> bool:
        """Follow every assignment and call once; return whether a name was added."""
        before = len(self._features)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value)
                case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                    self._assign([target], value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign([target], value)
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    self._assign([target], value)
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    self._assign([target], value)
                case ast.Call(func=called, args=arguments, keywords=keywords):
                    functions = self._called(called)
                    for function in functions:
                        self._pass(function, arguments, keywords)
                    if not functions:  # it may store values in what it is given, or in its own object
                        changed = [called.value] if isinstance(called, ast.Attribute) else []
                        self._assign([*changed, *(a for a in arguments if isinstance(a, ast.Name))], node)
                case ast.arguments():
                    named = [*node.posonlyargs, *node.args]
                    defaults = [*zip(reversed(named), reversed(node.defaults), strict=False)]
                    for parameter, default in (
                        *defaults,
                        *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                    ):
                        if default is not None and (feature := self.feature(default)) is not None:
                            self._features.setdefault(parameter.arg, feature)
        return len(self._features) > before

    def _assign(self, targets: list[ast.expr], value: ast.AST) -> None:
        for target in targets:
            feature = self.feature(value)
            if not isinstance(target, ast.Name):  # such as values[num_seqs] = 1
                feature = feature or self.feature(target)
            if feature is not None:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        self._features.setdefault(node.id, feature)

    def _pass(
        self, function: ast.FunctionDef, arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> None:
        by_place = [*function.args.posonlyargs, *function.args.args]
        rest = [function.args.vararg] * (len(arguments) - len(by_place))
        given: list[tuple[ast.arg | None, ast.expr]] = [*zip([*by_place, *rest], arguments, strict=False)]
        named = {one.arg: one for one in (*by_place, *function.args.kwonlyargs)}
        given += [(named.get(one.arg or "", function.args.kwarg), one.value) for one in keywords]
        for parameter, value in given:
            if parameter is not None and (feature := self.feature(value)) is not None:
                self._features.setdefault(parameter.arg, feature)


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    """What a function returns, without the functions inside."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
