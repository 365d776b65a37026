"""The spec can name no file or folder outside its own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, error_of, spec, write_spec

from treegen.read.spec_file import find_spec, read_spec

OUTSIDE = ["..", "../other", "a/../..", ".", "a/..", "/", "/etc", "/tmp/x", "../../../../etc/passwd", ""]


def _naming(key: str, folder: str) -> dict[str, Any]:
    """A spec whose output or table folder is `folder`."""
    return {**spec(), "output": folder} if key == "output" else spec(tables={DEVICE: folder})


@pytest.mark.parametrize("key", ["output", "table"])
@pytest.mark.parametrize("folder", OUTSIDE)
def test_a_folder_outside(tmp_path: Path, key: str, folder: str) -> None:
    path = write_spec(tmp_path / "project", _naming(key, folder))
    place = "2: output: " if key == "output" else f": kernels.scale.tables.{DEVICE}: "
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:") and place in message
    assert "must be a folder below the one that holds the spec" in message


@pytest.mark.parametrize("key", ["output", "table"])
def test_a_symbolic_link_that_leads_outside(tmp_path: Path, key: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = write_spec(tmp_path / "project", _naming(key, "link/t"))
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
    path = write_spec(tmp_path, _naming(key, "loop"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert error_of(read_spec, path).startswith(f"{path}:")


@pytest.mark.parametrize(
    "folder", [".git", ".git/out", "class", "a-b", "out/2", "treegen.yaml", "a/../class"]
)
def test_an_output_that_python_cannot_import(tmp_path: Path, folder: str) -> None:
    path = write_spec(tmp_path, _naming("output", folder))
    why = "lies in git's own folder" if ".git" in folder else "must end in a name that Python can import"
    assert f"{path}:2: output: {folder!r} {why}" in error_of(read_spec, path)


def test_an_output_further_down(tmp_path: Path) -> None:
    path = write_spec(tmp_path, _naming("output", "my-package/trees"))
    assert read_spec(path).output == tmp_path / "my-package/trees"


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
