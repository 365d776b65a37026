"""What the backend uses of vLLM, looked up in vLLM's source, so a version in which it has moved fails here.

Reads files and imports nothing. ATTN_KERNELS_VLLM names folders of unpacked wheels, with the folder `vllm` in
each; an installed vLLM is read as well.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from attn_kernels.engines.vllm_supported import NEEDED

BACKEND = "v1/attention/backend.py"
LAYER = "model_executor/layers/attention/attention.py"


def folders() -> Iterator[Path]:
    for folder in filter(None, os.environ.get("ATTN_KERNELS_VLLM", "").split(os.pathsep)):
        assert (Path(folder) / "vllm" / BACKEND).is_file(), f"ATTN_KERNELS_VLLM: no vLLM in {folder}"
        yield Path(folder)
    found = importlib.util.find_spec("vllm")
    for place in (found and found.submodule_search_locations) or ():
        if (Path(place) / BACKEND).is_file():
            yield Path(place).parent


FOLDERS = list(dict.fromkeys(folders()))


def version_in(folder: Path) -> str:
    found = sorted(folder.glob("vllm-*.dist-info"))
    return found[0].stem.split("-")[1] if found else str(folder)


pytestmark = [
    pytest.mark.skipif(not FOLDERS, reason="no vLLM is installed or named by ATTN_KERNELS_VLLM"),
    pytest.mark.parametrize("root", FOLDERS, ids=version_in),
]


@cache
def source(root: Path, path: str) -> str:
    return (root / "vllm" / path).read_text()


@cache
def tree(root: Path, path: str) -> ast.Module:
    return ast.parse(source(root, path))


def definition(root: Path, path: str, *names: str) -> ast.AST:
    """The class, function or assignment that `names` lead to; the last of those of one name."""
    node: ast.AST = tree(root, path)
    for name in names:
        found = [child for child in getattr(node, "body", []) if name in defined(child)]
        assert found, f"{path} has no {'.'.join(names)}"
        node = found[-1]
    return node


def defined(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def parameters(root: Path, path: str, *names: str) -> list[str]:
    function = definition(root, path, *names)
    assert isinstance(function, ast.FunctionDef)
    return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]


def calls(root: Path, path: str, name: str) -> list[list[str]]:
    """The arguments by position of each call of a function or method of this name."""
    return [
        [ast.unparse(argument) for argument in node.args]
        for node in ast.walk(tree(root, path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
    ]


def has_field(root: Path, path: str, name: str) -> bool:
    """Whether any class of the file has a field or property of this name, or sets it on itself."""
    for node in ast.walk(tree(root, path)):
        if isinstance(node, ast.ClassDef) and any(name in defined(child) for child in node.body):
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{name}":
            return True
    return False


def test_registration(root: Path) -> None:
    registry = "v1/attention/backends/registry.py"
    definition(root, registry, "AttentionBackendEnum", "CUSTOM")
    assert parameters(root, registry, "register_backend")[:2] == ["backend", "class_path"]
    group = definition(root, "plugins/__init__.py", "DEFAULT_PLUGINS_GROUP")
    assert ast.literal_eval(group.value) == "vllm.general_plugins"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "needed"),
    {
        "get_name": [],
        "get_impl_cls": [],
        "get_builder_cls": [],
        "supports_head_size": ["cls", "head_size"],
        "supports_kv_cache_dtype": ["cls", "kv_cache_dtype"],
        "supports_compute_capability": ["cls", "capability"],
        "supports_sink": ["cls"],
    }.items(),
)
def test_methods_of_the_backend(root: Path, name: str, needed: list[str]) -> None:
    assert parameters(root, BACKEND, "AttentionBackend", name) == needed


def test_the_backend_says_that_forward_stores(root: Path) -> None:
    definition(root, BACKEND, "AttentionBackend", "forward_includes_kv_cache_update")
    assert "attn_backend.forward_includes_kv_cache_update" in source(root, LAYER)


def test_names_of_the_configuration_and_reasons_against_it(root: Path) -> None:
    given = parameters(root, BACKEND, "AttentionBackend", "validate_configuration")
    for reason, (name, _) in NEEDED.items():
        assert name in given
        assert f'"{reason}"' in source(root, BACKEND)
    assert "**attn_selector_config._asdict()" in source(root, "platforms/cuda.py")


def test_shapes_of_the_caches(root: Path) -> None:
    kernel = source(root, "v1/attention/backends/triton_attn.py")
    if "def get_kv_cache_shape" in source(root, BACKEND):
        assert "[num_blocks, 2, block_size, num_kv_heads, head_size]" in kernel
        assert parameters(root, BACKEND, "AttentionBackend", "get_kv_cache_shape")[:4] == [
            "num_blocks",
            "block_size",
            "num_kv_heads",
            "head_size",
        ]
        assert parameters(root, BACKEND, "AttentionBackend", "get_kv_cache_stride_order") == [
            "include_num_layers_dimension"
        ]
        definition(root, "v1/attention/backends/utils.py", "get_kv_cache_layout")
    else:
        assert "[num_blocks, num_kv_heads, block_size, 2 * head_size]" in kernel


def test_page_sizes(root: Path) -> None:
    assert parameters(root, BACKEND, "AttentionBackend", "get_supported_kernel_block_sizes") in (
        [],
        ["kv_cache_spec"],
    )
    multiple = definition(root, BACKEND, "MultipleOf")
    assert "base" in ast.unparse(multiple)


def test_the_builder(root: Path) -> None:
    builder = (BACKEND, "AttentionMetadataBuilder")
    first = ["self", "kv_cache_spec", "layer_names", "vllm_config", "device"]
    assert parameters(root, *builder, "__init__") == first
    assert parameters(root, *builder, "build") == [
        "self",
        "common_prefix_len",
        "common_attn_metadata",
        "fast_build",
    ]
    assert parameters(root, *builder, "build_for_cudagraph_capture") == ["self", "common_attn_metadata"]
    update = ["self", "metadata", "blk_table", "slot_mapping"]
    assert parameters(root, *builder, "update_block_table") == update
    for name in ("_cudagraph_support", "reorder_batch_threshold", "supports_update_block_table"):
        definition(root, *builder, name)
    definition(root, BACKEND, "AttentionCGSupport", "UNIFORM_BATCH")


@pytest.mark.parametrize(
    "name",
    [
        "query_start_loc",
        "query_start_loc_cpu",
        "seq_lens",
        "seq_lens_cpu_upper_bound",
        "num_actual_tokens",
        "max_query_len",
        "max_seq_len",
        "block_table_tensor",
        "slot_mapping",
        "causal",
    ],
)
def test_metadata_of_a_step(root: Path, name: str) -> None:
    definition(root, BACKEND, "CommonAttentionMetadata", name)


def test_both_model_runners_put_decodes_first(root: Path) -> None:
    assert "reorder_batch_threshold" in source(root, "v1/worker/gpu_model_runner.py")
    assert "sorted(num_tokens_per_req, key=" in source(root, "v1/worker/gpu/model_runner.py")


def test_layers_make_their_implementation_by_position(root: Path) -> None:
    (given,) = calls(root, LAYER, "impl_cls")
    assert given == [
        "num_heads",
        "head_size",
        "scale",
        "num_kv_heads",
        "alibi_slopes",
        "sliding_window",
        "kv_cache_dtype",
        "logits_soft_cap",
        "attn_type",
        "kv_sharing_target_layer_name",
    ]
    assert has_field(root, LAYER, "layer_name")
    assert has_field(root, LAYER, "impl")
    for name in ("_k_scale", "_v_scale"):
        definition(root, BACKEND, "AttentionLayer", name)


def test_the_implementation(root: Path) -> None:
    assert parameters(root, BACKEND, "AttentionImpl", "forward") == [
        "self",
        "layer",
        "query",
        "key",
        "value",
        "kv_cache",
        "attn_metadata",
        "output",
        "output_scale",
        "output_block_scale",
    ]
    (given,) = calls(root, LAYER, "forward")
    assert given == ["self", "query", "key", "value", "kv_cache", "attn_metadata"]
    definition(root, BACKEND, "AttentionType", "DECODER")


def test_storing_keys_and_values(root: Path) -> None:
    assert parameters(root, "_custom_ops.py", "reshape_and_cache_flash") == [
        "key",
        "value",
        "key_cache",
        "value_cache",
        "slot_mapping",
        "kv_cache_dtype",
        "k_scale",
        "v_scale",
    ]
    assert parameters(root, "forward_context.py", "get_forward_context") == []
    definition(root, "forward_context.py", "ForwardContext", "slot_mapping")
    assert "slot_mapping.get(layer_name)" in source(root, LAYER)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("config/compilation.py", "static_forward_context"),
        ("config/compilation.py", "max_cudagraph_capture_size"),
        ("config/scheduler.py", "max_num_seqs"),
        ("config/scheduler.py", "max_num_batched_tokens"),
        ("config/parallel.py", "use_ubatching"),
        ("config/parallel.py", "decode_context_parallel_size"),
        ("config/parallel.py", "prefill_context_parallel_size"),
        ("config/model.py", "dtype"),
        ("v1/kv_cache_interface.py", "block_size"),
        ("v1/kv_cache_interface.py", "head_size"),
        ("v1/kv_cache_interface.py", "head_size_v"),
        ("platforms/interface.py", "fp8_dtype"),
    ],
)
def test_configuration(root: Path, path: str, name: str) -> None:
    assert has_field(root, path, name), f"{path} has no field {name}"


def test_loggers(root: Path) -> None:
    assert parameters(root, "logger.py", "init_logger") == ["name"]
