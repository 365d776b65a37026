"""What the backend uses of vLLM, looked up in vLLM's source, so a version in which it has moved fails here.

Reads files and imports nothing. ATTN_KERNELS_VLLM names folders of unpacked wheels, with the folder `vllm` in
each; an installed vLLM is read as well.
"""

import ast
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

import pytest

from attn_kernels.engines.vllm_supported import NEEDED, SAME_NAMES

BACKEND = "v1/attention/backend.py"
LAYER = "model_executor/layers/attention/attention.py"
DCP = [f"v1/attention/ops/{name}.py" for name in ("dcp", "common")]


def folders():
    for folder in filter(None, os.environ.get("ATTN_KERNELS_VLLM", "").split(os.pathsep)):
        assert (Path(folder) / "vllm" / BACKEND).is_file(), f"ATTN_KERNELS_VLLM: no vLLM in {folder}"
        yield Path(folder)
    found = importlib.util.find_spec("vllm")
    for place in (found and found.submodule_search_locations) or ():
        if (Path(place) / BACKEND).is_file():
            yield Path(place).parent


FOLDERS = list(dict.fromkeys(folders()))


def version_in(folder):
    found = sorted(folder.glob("vllm-*.dist-info"))
    return found[0].stem.split("-")[1] if found else str(folder)


pytestmark = [
    pytest.mark.skipif(not FOLDERS, reason="no vLLM is installed or named by ATTN_KERNELS_VLLM"),
    pytest.mark.parametrize("root", FOLDERS, ids=version_in),
]


@cache
def source(root, path):
    return (root / "vllm" / path).read_text()


@cache
def definitions(root, path):
    """The classes, functions and assignments of a file by their qualified names; the last of one name."""
    found = {}

    def collect(body, prefix):
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            for target in targets:
                name = getattr(target, "id", None) or getattr(target, "name", None)
                found[f"{prefix}{name}"] = node
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")

    collect(ast.parse(source(root, path)).body, "")
    return found


def parameters(root, path, name):
    function = definitions(root, path)[name]
    assert isinstance(function, ast.FunctionDef)
    return [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]


def calls(root, path, name):
    """The arguments by position of each call of a function or method of this name."""
    return [
        [ast.unparse(argument) for argument in node.args]
        for node in ast.walk(ast.parse(source(root, path)))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
    ]


REGISTRY = "v1/attention/backends/registry.py"
# What the backend names, by file and class: attributes, and functions with their parameters.
DEFINED = {
    (BACKEND, "AttentionBackend"): (
        "forward_includes_kv_cache_update get_name() get_impl_cls() get_builder_cls() supports_sink(cls) "
        "supports_head_size(cls, head_size) supports_kv_cache_dtype(cls, kv_cache_dtype) "
        "supports_compute_capability(cls, capability) supports_mm_prefix(cls) supports_batch_invariance(cls)"
    ),
    (BACKEND, "AttentionMetadataBuilder"): (
        "_cudagraph_support reorder_batch_threshold supports_update_block_table "
        "__init__(self, kv_cache_spec, layer_names, vllm_config, device) "
        "build(self, common_prefix_len, common_attn_metadata, fast_build) "
        "build_for_cudagraph_capture(self, common_attn_metadata) "
        "update_block_table(self, metadata, blk_table, slot_mapping)"
    ),
    (BACKEND, "AttentionImpl"): (
        "forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale, "
        "output_block_scale)"
    ),
    (BACKEND, "AttentionLayer"): "_k_scale _v_scale",
    (BACKEND, "AttentionCGSupport"): "UNIFORM_BATCH",
    (BACKEND, "AttentionType"): "DECODER",
    (BACKEND, "CommonAttentionMetadata"): " ".join((*SAME_NAMES, "block_table_tensor", "causal")),
    (REGISTRY, "AttentionBackendEnum"): "CUSTOM",
    ("_custom_ops.py", ""): (
        "reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, "
        "v_scale)"
    ),
    ("config/vllm.py", ""): "get_current_vllm_config_or_none()",
    ("distributed/parallel_state.py", ""): "get_dcp_group()",
    ("forward_context.py", ""): "get_forward_context()",
    ("forward_context.py", "ForwardContext"): "slot_mapping",
    ("logger.py", ""): "init_logger(name)",
}

FIELDS = {
    LAYER: "layer_name impl",
    BACKEND: "dcp_world_size dcp_rank can_return_lse_for_decode",
    "config/compilation.py": "static_forward_context max_cudagraph_capture_size",
    "config/scheduler.py": "max_num_seqs max_num_batched_tokens",
    "config/parallel.py": (
        "use_ubatching prefill_context_parallel_size dcp_comm_backend cp_kv_cache_interleave_size"
    ),
    "config/model.py": "dtype is_mm_prefix_lm is_hybrid",
    "config/cache.py": "block_size",
    "config/vllm.py": "model_config cache_config",
    "v1/kv_cache_interface.py": "block_size head_size head_size_v",
    "platforms/interface.py": "fp8_dtype",
}
TEXTS = {
    # Layers store through ``forward``.
    LAYER: ["attn_backend.forward_includes_kv_cache_update", "slot_mapping.get(layer_name)"],
    # Reasons against a configuration, and where the names of all that decides come from.
    BACKEND: [f'"{reason}"' for reason in NEEDED],
    "platforms/cuda.py": ["**attn_selector_config._asdict()"],
    # Both model runners put decodes first.
    "v1/worker/gpu_model_runner.py": ["reorder_batch_threshold"],
    "v1/worker/gpu/model_runner.py": ["sorted(num_tokens_per_req, key="],
    "plugins/__init__.py": ['DEFAULT_PLUGINS_GROUP = "vllm.general_plugins"'],
}
CALLS = {
    "impl_cls": (
        "num_heads head_size scale num_kv_heads alibi_slopes sliding_window kv_cache_dtype logits_soft_cap "
        "attn_type kv_sharing_target_layer_name"
    ),
    "forward": "self query key value kv_cache attn_metadata",
}


@pytest.mark.parametrize(("path", "owner"), DEFINED)
def test_what_the_backend_names_is_defined_with_the_arguments_that_it_expects(root, path, owner):
    known = definitions(root, path)
    for name, given in re.findall(r"(\w+)(\(.*?\))?", DEFINED[path, owner]):
        name = f"{owner}.{name}".strip(".")
        assert name in known, f"{path} has no {name}"
        assert not given or parameters(root, path, name) == re.findall(r"\w+", given), name


@pytest.mark.parametrize("path", FIELDS)
def test_configuration_has_the_fields_that_the_backend_reads(root, path):
    """A class of the file has a field or property of this name, or sets it on itself."""
    for name in FIELDS[path].split():
        field = any(known.endswith(f".{name}") for known in definitions(root, path))
        assert field or re.search(rf"\bself\.{name}\b", source(root, path)), f"{path} has no field {name}"


@pytest.mark.parametrize("path", TEXTS)
def test_lines_on_which_the_backend_relies(root, path):
    assert [text for text in TEXTS[path] if text not in source(root, path)] == []


@pytest.mark.parametrize("name", CALLS)
def test_layers_call_the_implementation_by_position(root, name):
    (given,) = calls(root, LAYER, name)
    assert given == CALLS[name].split()


def test_first_parameters(root):
    place = next(path for path in DCP if (root / "vllm" / path).is_file())
    combine = parameters(root, place, "cp_lse_ag_out_rs")
    assert combine[:3] == ["cp_attn_out", "cp_attn_lse", "cp_group"] and "return_lse" in combine
    assert parameters(root, REGISTRY, "register_backend")[:2] == ["backend", "class_path"]
    validate = parameters(root, BACKEND, "AttentionBackend.validate_configuration")
    assert {name for name, _ in NEEDED.values()} <= set(validate)


def test_shapes_of_the_caches_and_page_sizes(root):
    if "def get_kv_cache_shape" in source(root, BACKEND):  # vLLM asks a backend for its own
        shape = ["num_blocks", "block_size", "num_kv_heads", "head_size"]
        assert parameters(root, BACKEND, "AttentionBackend.get_kv_cache_shape")[:4] == shape
        order = parameters(root, BACKEND, "AttentionBackend.get_kv_cache_stride_order")
        assert order == ["include_num_layers_dimension"]
        assert "get_kv_cache_layout" in definitions(root, "v1/attention/backends/utils.py")
        for runner in ("gpu/attn_utils.py", "gpu_model_runner.py"):
            assert "len(kv_cache_stride_order) == len(kv_cache_shape)" in source(root, f"v1/worker/{runner}")
    else:
        kernel = source(root, "v1/attention/backends/triton_attn.py")
        assert "[num_blocks, num_kv_heads, block_size, 2 * head_size]" in kernel
    sizes = parameters(root, BACKEND, "AttentionBackend.get_supported_kernel_block_sizes")
    assert sizes in ([], ["kv_cache_spec"])
    assert "base" in ast.unparse(definitions(root, BACKEND)["MultipleOf"])
