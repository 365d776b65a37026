"""A printed package: names that the spec allows get in no way, and which module serves a GPU."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import CONFIGS, DEVICE, as_config, as_h100, imported, spec, write_package, write_project
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.heuristic import choose

RULES = ["block >= heads", "block >= rows - 100"]


def _device(key):
    content = spec(tables={key: "tables/h100"})
    content["devices"][key] = content["devices"].pop(DEVICE)
    return content


SPECS = {
    "feature": lambda name: spec(features=[name, "columns", "heads"], derived={"area": f"{name} * columns"}),
    "derived": lambda name: spec(derived={name: "rows * columns"}, split_on=[name]),
    "constant": lambda name: spec(
        features=["rows", "columns", name],
        constants=[name],
        classes={"few": f"{name} <= 2", "many": "otherwise"},
        constraints=[f"block >= {name}", RULES[1]],
    ),
    "regime": lambda name: spec(regimes={name: "rows <= 8", "rest": "otherwise"}, constraints=RULES),
    "class": lambda name: spec(classes={name: "heads <= 2", "rest": "otherwise"}),
    "parameter": lambda name: spec(
        config={"variants": ["plain"], "parameters": {name: "B"}},
        fallback={"variant": "plain", name: 64},
        constraints=[],
    ),
    "device": _device,
}
USED = """
    Config choose MODULES for_device NamedTuple config default variant annotations PLAIN_B16_W2 plain_b16_w2
    Row fitting all_fitting fits kind step configs for_model model_class lru_cache Callable STEPS steps
    steps_row decode decode_row candidates ranked passed_over at_most found k Rows Step Heuristic heuristic
    step_of_model bound launched by_model fallback regimes constants module
"""
DEVICES = "name arch vendor known module for_device _BY_NAME _BY_ARCH typing collections generated choose"
DEVICES += " Default annotations scale Config Callable MODULES key_for heuristic"
NAMES = {
    "feature derived constant": USED,
    "regime class": f"{USED} Decode rows heads",
    "parameter": "count index NamedTuple Config choose _block _fields",  # which mean something to a tuple
    "device": DEVICES,
}
PLACES = [(place, n) for places, names in NAMES.items() for place in places.split() for n in names.split()]


@pytest.mark.parametrize(("place", "name"), PLACES)
def test_a_name_that_the_package_uses_itself(tmp_path, place, name):
    """The spec is refused, or what is written of it can be imported and chooses what was fitted."""
    content = SPECS[place](name)
    (kernel,) = content["kernels"].values()
    parameter, *_ = kernel["config"]["parameters"]
    configs = [{parameter if key == "block" else key: v for key, v in config.items()} for config in CONFIGS]
    try:
        path = write_project(tmp_path, content, features=kernel["features"], configs=configs)
        fitted = write_package(path)
    except InputError:
        return
    values = dict.fromkeys(kernel["features"], 3)
    with imported(tmp_path) as generated:
        package = generated.scale
        assert set(package.MODULES) == {*kernel["tables"], "default"}
        assert set(generated.__all__) == {"scale"}
        for module in package.MODULES.values():
            config = module.choose(**values)
            assert isinstance(config, package.Config) and config.variant in kernel["config"]["variants"]
            assert module.candidates(1, **values) == (config,)
        for known, device, heuristic in fitted:
            for point in itertools.product([1, 9, 120, 400], [1, 64], [2, 33]):
                shape = dict(zip(known.features, point, strict=True))
                chosen = as_config(package.MODULES[device.key].choose(**shape), known)
                assert chosen == choose(heuristic, known, device.limits, shape).config
        for gpu in (("NVIDIA H100", "sm_90", "nvidia"), ("Other", "other", "other")):
            assert isinstance(package.for_device(*gpu)(**values), package.Config)


# Which module serves a GPU: same model, else same architecture, else same vendor, else default.

NAMES_OF_GPUS = ["NVIDIA H100", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA Tesla A100"]
OTHERS = ["NVIDIA H100 80GB HBM3", "NVIDIA H100-SXM5-80GB", "NVIDIA H100 NVL 94GB", "NVIDIA Tesla A100 40GB"]
OTHERS += ["NVIDIA H1000", "NVIDIA H10", "nvidia h100", "AMD Instinct MI300X", "default", ""]
ARCHITECTURES, VENDORS = ["sm_90", "sm_80", "gfx942"], ["nvidia", "amd"]


@st.composite
def devices(draw):
    """Models with one or two names, and families of all other GPUs of an architecture or a vendor, mixed."""
    names = draw(st.permutations(NAMES_OF_GPUS))
    models = [{"names": names[:2]}, {"names": names[2:3]}, {"names": names[3:]}]
    for model in models:
        model |= {"arch": arch} if (arch := draw(st.sampled_from([None, *ARCHITECTURES]))) else {}
    families = [{"arch": arch} for arch in ARCHITECTURES[1:]] + [{"vendor": vendor} for vendor in VENDORS]
    drawn = draw(st.lists(st.sampled_from([*models, *families]), min_size=1, max_size=6, unique_by=id))
    return {f"gpu_{place}": {"vendor": "nvidia", **device} for place, device in enumerate(drawn)}


def _serves(measured, name, arch, vendor):
    claims = [(known, key) for key, device in measured.items() for known in device.get("names", ())]
    named = [(len(n), key) for n, key in claims if name == n or name.startswith((f"{n} ", f"{n}-"))]
    alike = [key for key, device in measured.items() if device.get("arch") == arch]
    families = [key for key, device in measured.items() if device == {"vendor": vendor}]
    return max(named)[1] if named else [*alike, *families, "default"][0]


@examples(15, shrink=False)
@given(devices(), st.data())
def test_a_gpu_is_served_by_its_model_architecture_or_vendor(tmp_path_factory, drawn, data):
    """The most exact name and the first measured device of an architecture count; tables have no order."""
    measured = data.draw(st.lists(st.sampled_from([*drawn]), min_size=1, unique=True))
    content = spec(constraints=[], tables={key: as_h100() for key in measured}) | {"devices": drawn}
    folder = tmp_path_factory.mktemp("project")
    write_package(write_project(folder, content))
    with imported(folder) as generated:
        package = generated.scale
        for gpu in itertools.product([*NAMES_OF_GPUS, *OTHERS], [*ARCHITECTURES, "?"], [*VENDORS, "?"]):
            key = _serves({key: drawn[key] for key in drawn if key in measured}, *gpu)
            assert package.key_for(*gpu) == key
            assert package.for_device(*gpu) is package.MODULES[key].choose
