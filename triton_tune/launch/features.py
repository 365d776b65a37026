"""Read the features of a launch: one function per kernel, compiled from an expression for each feature."""

import ast
import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from triton_tune.launch.words import OF_DTYPE, OF_SIZE

Feature = Callable[[Mapping[str, Any]], Any] | str
"""A function of a launch's arguments by name, or an expression in them, such as `"x_ptr.shape[2]"`."""

Read = Callable[..., tuple[Any, ...]]


class Missing:
    """Stands for an argument that a launch leaves out. Whatever is read of it raises TypeError."""

    dtype = None  # an optional tensor that is left out has the word `none`

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        raise TypeError(self.problem)


def parse_feature(name: str, text: str, arguments: Collection[str]) -> ast.expr:
    """The expression of a feature. Raises ValueError if it is none, or names what is no argument."""
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):  # the first if it is no text
        raise ValueError(f"the feature {name} is {text!r:.60}, which is no expression") from None
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id not in arguments and not hasattr(builtins, node.id):
            raise ValueError(f"the feature {name} is {text!r:.60}, but the kernel has no argument {node.id}")
    return expression


def known_feature(name: str, arguments: Collection[str]) -> str | None:
    """The expression that a name stands for: an argument, `x_dtype`, or `x_size0` for `x.shape[0]`.

    A tensor that is left out has the element type `none` and sizes of 0. None for any other name.
    """
    if name in arguments:
        return name
    argument = name.removesuffix(OF_DTYPE)
    if argument in arguments:
        return f"None if {argument} is None else {argument}.dtype"
    argument, _, dimension = name.rpartition(OF_SIZE)
    if argument in arguments and dimension.isdigit():
        return f"0 if {argument} is None else {argument}.shape[{dimension}]"
    return None


def value_of(feature: Feature, arguments: Mapping[str, Any]) -> Any:
    """A feature of a launch with these arguments, by name."""
    return eval(feature.strip(), {}, dict(arguments)) if isinstance(feature, str) else feature(arguments)


def reader(
    kernel: str,
    arguments: Sequence[str],
    defaults: Mapping[str, Any],
    features: Mapping[str, Feature],
    names: Sequence[str],
) -> tuple[tuple[str, ...], Read]:
    """The names in another order, and what reads a launch's values in that order from its arguments.

    Raises ValueError for a name that is neither in `features` nor an argument or its element type.
    """
    functions: dict[str, Any] = {name: f for name in names if callable(f := features.get(name))}
    texts: dict[str, str] = {}
    for name in names:
        if name in functions:
            continue
        expression = known_feature(name, arguments)
        if name in features:
            texts[name] = ast.unparse(parse_feature(name, str(features[name]), arguments))
        elif expression is not None:
            texts[name] = expression
        else:
            raise ValueError(
                f"{kernel} has no argument {name!r}, which its generated package needs as a feature: "
                "give @tuned an expression or a function for it in features"
            )
    parameters = "".join(f"{name}=None, " for name in arguments)
    values = "".join(f"({text}), " for text in texts.values())
    read: Any = eval(f"lambda {parameters}**others_of_launch: ({values})", {})
    left_out = {name: Missing(f"{kernel} is launched without its argument {name!r}") for name in arguments}
    read.__qualname__ = kernel  # which errors about arguments name
    read.__defaults__ = tuple({**left_out, **defaults}[name] for name in arguments)
    if not functions:
        return tuple(texts), read

    def read_all(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        given = {**defaults, **dict(zip(arguments, args, strict=False)), **kwargs}
        return (*read(*args, **kwargs), *[function(given) for function in functions.values()])

    return (*texts, *functions), read_all
