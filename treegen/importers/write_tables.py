"""Tables from other tools' tuning results. Each importer is a function from a source to tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError, reason
from treegen.core.files import try_path
from treegen.core.table import Cells
from treegen.read.table_file import read_table
from treegen.write.files import check_replaceable, write_files
from tuning_table.table import RUN, SCENARIOS, TIMES

MARK = "# Imported by `treegen import "
"""Begins the run.yaml of every imported table."""


@dataclass(frozen=True)
class ImportedTable:
    """A table that is ready to be written to tuning_data/<kernel>/<device>/."""

    kernel: str
    device: str
    source: Path
    scenarios: int  # how many
    configs: int  # how many
    cells: Cells
    words: Mapping[str, list[str]]  # what integers of features and parameters stand for
    files: Mapping[str, str]  # texts by file name


def write_tables(
    tables: Sequence[ImportedTable], tuning_data: Path, *, replace: bool
) -> list[tuple[Path, ImportedTable]]:
    """Write all tables to their folders, or none. Returns each folder with its table.

    Raises:
        InputError: two tables have one folder; or a folder holds another table, and `replace` is false or no
            import wrote it; or a table is not valid. Nothing is written then.
    """
    folders: dict[Path, ImportedTable] = {}
    for table in tables:
        folder = tuning_data / table.kernel / table.device
        if folder in folders:
            raise InputError(
                table.source, f"gives {folder}, as {folders[folder].source} does; import them one at a time"
            )
        if try_path(folder, Path.exists) and not _holds(folder, table):
            if not replace:
                raise InputError(folder, "already holds another table; pass --replace to overwrite it")
            _check_imported(folder)
        _check_readable(table)
        folders[folder] = table
    texts = {
        f"{t.kernel}/{t.device}/{name}": text for t in folders.values() for name, text in t.files.items()
    }
    write_files(tuning_data, texts)
    return list(folders.items())


def _check_imported(folder: Path) -> None:
    """Refuse to replace what an import did not write, such as a table that was measured."""
    if any((folder / name).exists() for name in (SCENARIOS, TIMES)) and not (folder / RUN).exists():
        raise InputError(folder, f"holds tables' files without {RUN}; remove them, or write elsewhere")
    check_replaceable(folder / RUN, "treegen import", MARK.encode())


def _check_readable(table: ImportedTable) -> None:
    """Refuse a table that fails the checks that every table must pass."""
    try:
        with tempfile.TemporaryDirectory() as name:
            for file, text in table.files.items():
                (Path(name) / file).write_bytes(text.encode())
            try:
                read_table(Path(name))
            except InputError as error:
                what = str(error).removeprefix(f"{name}/")
                raise InputError(table.source, f"gives a table that treegen refuses: {what}") from None
    except OSError as error:
        raise InputError("temporary files", f"cannot be written: {reason(error)}") from None


def _holds(folder: Path, table: ImportedTable) -> bool:
    files = {name: folder / name for name in table.files}
    return all(
        path.is_file() and path.read_bytes() == table.files[name].encode() for name, path in files.items()
    )
