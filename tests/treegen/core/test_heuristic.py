"""What a heuristic launches, against a slow reading of its rows and of the spec's conditions by Python."""

from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import paths
from treegen_strategies import LIMITS, examples, heuristics, kernels, shapes

from treegen.core.expr import to_python
from treegen.core.heuristic import choose, fits
from treegen.core.launches import as_columns, launches


def _value(expression, values):
    return int(eval(to_python(expression), {"__builtins__": {}, "min": min, "max": max}, dict(values)))


def _ways(tree, values):
    """The rows whose answers all hold."""
    return [row for row, path in paths(tree) if all(eval(answer, {}, dict(values)) for answer in path)]


@examples(150)
@given(st.data(), kernels())
def test_the_first_candidate_that_meets_all_constraints(data, kernel):
    heuristic = data.draw(heuristics(kernel))
    for point in data.draw(st.lists(shapes(), min_size=2, max_size=4)):
        values = {**LIMITS, **point}
        for name, expression in kernel.derived.items():
            values[name] = _value(expression, values)
        regimes = [r.name for r in kernel.regimes if r.when is None or _value(r.when, values)]
        classes = [c.name for c in kernel.classes if c.when is None or _value(c.when, values)]
        (regime,) = (r for r in heuristic.regimes if r.name == regimes[0])
        (number,) = _ways(regime.tree, values)
        row = regime.rows[number]
        own = [row.others[classes[0]]] if classes[0] in row.others else []
        candidates = [*own, row.config, *row.then]
        rules = {
            c: [r for r in kernel.constraints if c.variant in (r.variants or [c.variant])] for c in candidates
        }
        known = {config: {**values, **dict(config.parameters)} for config in candidates}
        fitting = [c for c in candidates if all(_value(rule.test, known[c]) for rule in rules[c])]
        found = choose(heuristic, kernel, LIMITS, point)
        assert (found.regime.name, found.row, found.model_class) == (regime.name, number, classes[0])
        assert found.config == (fitting[0] if fitting else kernel.fallback)
        assert all(fits(config, kernel, values) == (config in fitting) for config in candidates)


@examples(100)
@given(st.data(), kernels(), st.lists(shapes(), min_size=1, max_size=40))
def test_many_shapes_at_once(data, kernel, points):
    heuristic = data.draw(heuristics(kernel))
    columns = as_columns({name: [point[name] for point in points] for name in kernel.features})
    found = launches(kernel, LIMITS, heuristic, columns, len(points))
    for place, point in enumerate(points):
        one = choose(heuristic, kernel, LIMITS, point)
        assert found.configs[found.config[place]] == one.config
        regime, model_class = heuristic.regimes[found.regime[place]], kernel.classes[found.kind[place]]
        assert (regime, found.row[place], model_class.name) == (one.regime, one.row, one.model_class)
