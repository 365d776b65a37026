"""`treegen export`: files that their projects look for and that launch what the module does; round trips."""

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from table_builders import start
from treegen_builders import REPOSITORY
from tuned_files import launched_by

from treegen.cli.main import main

REAL = REPOSITORY / "tests/treegen/importers/real"
KEYS = (1, 2, 7, 16, 100, 333, 2048, 8192)


def entry(block, **more):
    sizes = {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    return {**sizes, "num_warps": 4, "num_stages": 3, **more}


def content(*winners, keys=KEYS):
    """Each winner at as many keys."""
    return {str(key): winners[place * len(winners) // len(keys)] for place, key in enumerate(keys)}


def name(device="NVIDIA_H200", end="", size=8):
    return f"E={size},N=3584,device_name={device}{end}.json"


PLAIN = content(entry(16), entry(64), entry(128))
BLOCKS = ",dtype=fp8_w8a8,block_shape=[128,128]"
CASES = {
    "one file alone": {name(): PLAIN},
    "one size alone": {name(): content(entry(16), keys=(64,)), name(size=16): content(entry(32), keys=(64,))},
    "data type of all files": {name(end=",dtype=fp8_w8a8", size=e): PLAIN for e in (8, 16)},
    "channels": {name(end=",dtype=int8_w8a8,per_channel_quant=True"): PLAIN},
    "blocks follow from data types": {name(end=BLOCKS): PLAIN, name(): content(entry(32), entry(256))},
    "models of one name": {name(f"NVIDIA_{gpu}"): PLAIN for gpu in (
        "H100", "H100_80GB_HBM3", "A100-SXM4-40GB", "A100-SXM4-80GB", "H20", "H20-3e")},
    "absent": {name("AMD_Instinct_MI300X"): content(
        entry(16), entry(64, kpack=2, waves_per_eu=0), entry(64, kpack=1, waves_per_eu=3))},
    "absent on another GPU": {
        name(): PLAIN, name("AMD_Instinct_MI300X"): content(entry(16, kpack=2), entry(32, kpack=1))},
    "booleans and texts": {name(): content(
        entry(16, TMA=True, grf_mode="256", cache=None), entry(16, TMA=False, grf_mode="auto", cache=".cg"))},
    "a range": {name(): {**PLAIN, "100": entry(256)}},
    "far ends": {name(): content(entry(16), entry(32), keys=(1, 4096, 16384, 131072))},
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = {*sys.modules}
    yield
    for module in {*sys.modules} - known:
        if module.partition(".")[0] in ("heuristics", "exported", "scale_configs"):
            del sys.modules[module]


def built(form, source, *options):
    """Import and build all that `source` holds. Returns the tables' folders."""
    assert main(["import", form, str(source), *options]) == 0
    folders = sorted(path.parent for path in Path("tuning_data").glob("*/*/run.yaml"))
    assert main(["init", *map(str, folders)]) == 0
    assert main(["build"]) == 0
    return folders


def printed(*arguments):
    """The files of this and earlier calls of `treegen export ARGUMENTS`."""
    assert main(["export", *arguments]) == 0
    paths = Path("exported").rglob("*.json")
    return {path.relative_to("exported").as_posix(): json.loads(path.read_text()) for path in paths}


def exported(form, folders):
    return [printed(form, folder.parent.name, "--device", folder.name) for folder in folders][-1]


def write(files):
    for path, text in files.items():
        (Path("configs") / path).parent.mkdir(parents=True, exist_ok=True)
        (Path("configs") / path).write_text(json.dumps(text))


def same(one, other):
    """Whether values are equal and of the same types."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


DOWN = "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
SGLANG = {  # of two versions of Triton
    f"triton_3_4_0/{name()}": PLAIN,
    f"triton_3_5_1/{name()}": content(entry(32)),
    f"triton_3_4_0/{DOWN}": PLAIN,
}
AITER = {path.name: json.loads(path.read_text()) for path in (REAL / "aiter").iterdir()}


@pytest.mark.parametrize(
    ("form", "files"),
    [*(("vllm", files) for files in CASES.values()), ("sglang", SGLANG), ("aiter", AITER)],
    ids=[*CASES, "sglang", "aiter"],
)
def test_files_come_back(form, files):
    write(files)
    found = exported(form, built(form, "configs"))
    assert sorted(found) == sorted(files)
    for path, before in files.items():
        last = max((int(key) for key in before if key.isdigit()), default=9000)
        for size in {*range(1, 3000), *range(last - 50, last + 99), *range(3000, last, 997)}:
            assert same(launched_by(found[path], size), launched_by(before, size)), (path, size)


def test_the_state_of_mamba_comes_back():
    before = {path.name: json.loads(path.read_text()) for path in (REAL / "vllm").iterdir()}
    files = exported("vllm", built("vllm", REAL / "vllm"))
    assert sorted(files) == sorted(before)
    wins = []
    for path, found in before.items():
        sizes, exact = ({key: v for key, v in file.items() if key.isdigit()} for file in (files[path], found))
        wins += [launched_by(sizes, int(key)) == config for key, config in exact.items()]
    assert sum(wins) > 0.7 * len(wins)  # there are more changes of the winner than rows


def test_the_gpu_that_is_served_names_a_file_and_not_the_one_that_was_measured():
    """A family of H200s has one file."""
    write({name("NVIDIA_H200_NVL"): PLAIN})
    assert [*exported("vllm", built("vllm", "configs"))] == [name()]
    for made in ("configs", "tuning_data", "exported", "heuristics"):
        shutil.rmtree(made)
    Path("treegen.yaml").unlink()
    write({name("AMD_Instinct_MI300X"): PLAIN})
    folders = built("vllm", "configs")
    spec = Path("treegen.yaml").read_text().replace("[AMD Instinct MI300X]", "[AMD Instinct MI325X]")
    entry_of = "amd_mi300x: tuning_data/fused_moe/amd_mi300x"
    meant = "amd_mi300x: {folder: tuning_data/fused_moe/amd_mi300x, measured_on: AMD Instinct MI300X}"
    Path("treegen.yaml").write_text(spec.replace(entry_of, meant))
    assert main(["build"]) == 0
    assert [*exported("vllm", folders)] == [name("AMD_Instinct_MI325X")]


def test_what_is_selected(refusal, tmp_path):
    write({name(): PLAIN, name("NVIDIA_H100"): PLAIN, name(end=",dtype=fp8_w8a8"): PLAIN})
    for arguments, folders in (
        (("--gpu", "NVIDIA_H100"), {"nvidia_h100"}),
        (("--dtype", "fp8_w8a8"), {"nvidia_h200"}),
        (("--gpu", "NVIDIA H100", "--device", "NVIDIA GB10"), {"nvidia_gb10"}),
    ):
        to = tmp_path / "-".join(arguments).replace(" ", "_")
        assert main(["import", "vllm", "configs", "--to", str(to), *arguments]) == 0
        assert {path.name for path in (to / "fused_moe").iterdir()} == folders
    assert "--gpu" in refusal(tmp_path, "import", "vllm", "configs", "--gpu", "NVIDIA B200")
    assert "--device" in refusal(tmp_path, "import", "vllm", "configs", "--device", "NVIDIA GB10")


BROKEN = {
    name(size=1): "{",
    "E=8,device_name=NVIDIA_H200.json": PLAIN,
    "E=0,N=8,device_name=NVIDIA_H200.json": PLAIN,
    name(size=2): {"0": entry(16)},
    name(size=3): {"1": entry(16, num_warps="four")},
    name(size=4): {"1": {}},
    name(size=6): {},
    name(size=7): {"x": entry(16)},
    name(size=9): {"8": 4},
}


def test_all_mistakes_are_told(tmp_path, capsys, refusal):
    write({name(): PLAIN, **BROKEN})
    (tmp_path / "configs" / name(size=1)).write_text("{")
    assert main(["import", "vllm", "configs"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(BROKEN) and not Path("tuning_data").exists()
    assert all(any(path.rpartition("/")[2] in line for line in lines) for path in BROKEN)
    for files in (  # that contradict each other
        {name(): content(entry(16, mode=1)), name(size=16): content(entry(16, mode="fast"))},
        {name(): PLAIN, f"again/{name()}": PLAIN},
    ):
        shutil.rmtree("configs")
        write(files)
        assert [*files][1] in refusal(tmp_path, "import", "vllm", "configs")


# flash-linear-attention


def looked_up(cache, key, mode):
    """The config that fla's cache gives in a mode, by fla/ops/utils/cache.py; None where it would tune."""

    def alike(one, other):
        number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (one, other))
        return number or same(one, other)

    entries = cache["autotune_entries"]
    digest = hashlib.md5(json.dumps(key, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
    if mode != "default" and digest in entries:
        return entries[digest]["config"]
    fuzzy = [e["config"] for e in entries.values() if all(map(alike, e["autotune_key"], key))]
    if mode == "fuzzy" and fuzzy:
        return fuzzy[0]
    return cache["default_config"] if mode == "default" else None


FLA = ("--features", "D,NB,x_dtype,y_dtype,rstd_dtype", "--device", "NVIDIA H100 80GB HBM3")


def test_flas_cache_comes_back_in_each_mode():
    text = (REAL / "fla/l2norm_fwd_kernel.json").read_text().replace("      4,", "      true,")
    Path("fla").mkdir()
    Path("fla/l2norm_fwd_kernel.json").write_text(text)
    (folder,) = built("fla", "fla", *FLA)
    after = exported("fla", [folder])["l2norm_fwd_kernel.json"]
    for found in json.loads(text)["autotune_entries"].values():
        wanted = {n: v for n, v in found["config"].items() if v is not None}
        assert same(looked_up(after, found["autotune_key"], "exact"), wanted)
    half, single = "torch.bfloat16", "torch.float32"
    for size, dtype in ((96, half), (512, single)):
        key = [size, True, dtype, dtype, single]
        assert looked_up(after, key, "exact") is None
        assert looked_up(after, key, "fuzzy")["kwargs"] == {"BT": 32}
        assert looked_up(after, [size, False, *key[2:]], "fuzzy") is None
    assert set(looked_up(after, [], "default")) == {"kwargs", "num_warps", "num_ctas", "num_stages"}


# Other caches


def test_kernel_tuner_and_gemlite(tmp_path, refusal):
    (folder,) = built("kernel-tuner", REAL / "kernel_tuner")
    assert folder.as_posix() == "tuning_data/convolution_kernel/nvidia_rtx_a4000"
    assert "3875.3279,4594.8161,inf" in (folder / "times.csv").read_text()
    text = (REAL / "kernel_tuner/convolution.json").read_text().rstrip("} \n")
    Path("open.json").write_text(f"{text}}},")  # as a run leaves it that was stopped
    assert main(["import", "kernel-tuner", "open.json", "--to", "open"]) == 0
    assert "--device" in refusal(tmp_path, "import", "gemlite", REAL / "gemlite")
    assert main(["import", "gemlite", str(REAL / "gemlite"), "--device", "NVIDIA H100 80GB HBM3"]) == 0
    assert (Path("tuning_data/gemm_splitk/nvidia_h100/scenarios.csv").read_text().splitlines()[1:3]) == [
        "s001,64,4096,4096,128,8,104", "s002,48,4096,4096,128,8,104"
    ]  # fmt: skip


# What a module launches

SHAPE = {"dtype": "fp8_w8a8", "block_shape": "128x128"}
PARAMETERS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps", "maxnreg", "modifier")
SIZES = [1, 2, 8, 16, 64, 100, 256, 777, 1024, 4096]


def project(folder, kernel, sizes, **table):
    """A module whose config depends on M and on the first of the other sizes; two models of each."""
    values = [(16, 32, 4, 0, 0), (64, 64, 4, 128, 1), (128, 64, 8, 0, 0)]
    configs = [{"id": f"c{n}", **dict(zip(PARAMETERS, own, strict=True))} for n, own in enumerate(values)]
    models = ((512, 64), (4096, 128))
    scenarios = {f"m{m}-{model[0]}": (m, *model) for m in SIZES for model in models}
    with start(
        folder / "tables/gpu",
        kernel=kernel,
        features=("M", *sizes),
        values={"modifier": ["none", "cg"]},
        configs=configs,
        scenarios=scenarios,
        **{"device": {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90"}, **table},
    ) as writer:
        for name, (m, size, _) in scenarios.items():
            work = m * size // 512
            best = 0 if work <= 20 else 1 if work <= 700 else 2
            writer.append(name, {f"c{config}": 1 + abs(config - best) for config in range(3)})
    assert main(["init", "tables/gpu"]) == 0
    text = Path("treegen.yaml").read_text().replace("# constants: [...]", f"constants: [{', '.join(sizes)}]")
    Path("treegen.yaml").write_text(text)
    assert main(["build"]) == 0


def launched(kernel, **shape):
    """What the module launches, as the files spell it."""
    choose = importlib.import_module(f"heuristics.{kernel}").MODULES["nvidia_h100"].choose
    config = choose(**shape)._asdict()
    words = {0: None, 1: "cg"}
    kept = {name: config[name] for name in PARAMETERS if name != "maxnreg" or config[name]}
    return {**kept, "modifier": words[config["modifier"]]}


def test_a_file_of_vllms_gemm_launches_what_the_module_does_at_every_size(tmp_path):
    project(tmp_path, "gemm", ("N", "K"))
    files = printed("vllm", "gemm", *(f"{name}={value}" for name, value in SHAPE.items()))
    assert sorted(files) == [
        f"N={n},K={k},device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"
        for n, k in ((4096, 128), (512, 64))
    ]
    for name, content in files.items():
        shape = {part.split("=")[0]: int(part.split("=")[1]) for part in name.split(",")[:2]}
        for size in range(1, 4097):
            assert launched_by(content, size) == launched("gemm", M=size, **shape)


def test_arguments_of_triton_config_at_given_sizes(tmp_path):
    project(tmp_path, "gemm", ("N", "K"))
    files = printed("triton", "gemm", "M=1,64,5000", "N=512,8192", "K=7")
    assert sorted(files) == [f"gemm,nvidia_h100,N={n},K=7.json" for n in (512, 8192)]
    content = files["gemm,nvidia_h100,N=8192,K=7.json"]
    assert list(content) == ["provenance", "1", "64", "5000"]
    expected = launched("gemm", M=64, N=8192, K=7)
    own = {name: expected.pop(name) for name in ("num_warps", "maxnreg") if name in expected}
    assert content["64"] == {"kwargs": expected, **own}
    given = printed("triton", "gemm", "M=1,64", "N=512", "K=64", "--along", "N")
    for order in ("--along N triton gemm M=1,64 N=512 K=64", "triton gemm M=1,64 --along N N=512 K=64"):
        assert printed(*order.split()) == given


def test_what_export_refuses(tmp_path, refusal):
    project(tmp_path, "gemm", ("N", "K"), device={"name": "NVIDIA X1"})
    for words, named in (
        ("vllm gemm", "dtype"),
        ("vllm gemm Q=1", "Q=1"),
        ("vllm gemm N=x", "N=x"),
        ("vllm gem", "'gem'"),
        ("vllm gemm --device nvidia", "nvidia"),
        ("vllm gemm --along Q", "--along"),
        ("aiter gemm", "arch"),
        ("aiter gemm M=3,5", "M"),
        ("triton gemm M=-1,5", "M"),
        ("vllm gemm dtype=../../a block_shape=1x1", "/"),
    ):
        assert named in refusal(tmp_path, "export", *words.split())
    module = tmp_path / "heuristics/gemm/nvidia_x1.py"
    module.write_text(module.read_text() + "\n")
    assert "nvidia_x1.py" in refusal(tmp_path, "export", "triton", "gemm")
