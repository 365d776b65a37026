"""The spec can name no file or folder outside its own folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import DEVICE, error_of, spec, write_spec

from treegen.read.spec_file import find_spec, read_spec

OUTSIDE = [
    "..",
    "../other",
    "a/../..",
    ".",
    "a/..",
    "/",
    "/etc",
    "/tmp/x",
    "../../../../../../etc/passwd",
    "",
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_output_outside(tmp_path: Path, text: str) -> None:
    path = write_spec(tmp_path / "project", {**spec(), "output": text})
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:2: output: ") and "must be a folder below the one" in message


@pytest.mark.parametrize("text", OUTSIDE)
def test_table_outside(tmp_path: Path, text: str) -> None:
    path = write_spec(tmp_path / "project", spec(tables={DEVICE: text}))
    message = error_of(read_spec, path)
    assert f"kernels.scale.tables.{DEVICE}: " in message and "must be a folder below the one" in message


@pytest.mark.parametrize("key", ["output", "table"])
def test_a_symbolic_link_that_leads_outside(tmp_path: Path, key: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    content = {**spec(), "output": "link"} if key == "output" else spec(tables={DEVICE: "link/t"})
    path = write_spec(tmp_path / "project", content)
    (tmp_path / "project/link").symlink_to(tmp_path / "elsewhere")
    assert "must be a folder below the one" in error_of(read_spec, path)


UNUSABLE = {"lone surrogate": '"\\uD800"', "NUL": '"a\\0b"'}


@pytest.mark.parametrize("key", ["output: generated", f"{DEVICE}: tables/h100"])
@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE)
def test_a_name_that_no_file_can_have(tmp_path: Path, key: str, text: str) -> None:
    path = write_spec(tmp_path)
    path.write_text(path.read_text().replace(key, f"{key.split(':')[0]}: {text}"))
    assert error_of(read_spec, path).startswith(f"{path}:")


@pytest.mark.parametrize("key", ["output", "table"])
def test_a_symbolic_link_to_itself(tmp_path: Path, key: str) -> None:
    path = write_spec(
        tmp_path, {**spec(), "output": "loop"} if key == "output" else spec(tables={DEVICE: "loop"})
    )
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert error_of(read_spec, path).startswith(f"{path}:")


def test_paths_start_at_the_specs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_spec(tmp_path / "project")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    read = read_spec(path)
    assert read.output == tmp_path / "project/generated"
    assert read.kernels["scale"].tables[DEVICE] == tmp_path / "project/tables/h100"


def test_the_spec_of_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert error_of(find_spec, None).startswith("treegen.yaml: no such spec; name one with --spec FILE")
    write_spec(tmp_path)
    assert find_spec(None) == Path("treegen.yaml")
