"""Where a report goes. Its text goes through `treegen.output`, which knows no bytes; its images go here."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from treegen.errors import InputError, reason
from treegen.files import looked_at


def check_target(path: Path) -> None:
    """Refuse what cannot be written, before the work is done for nothing."""
    if looked_at(path, Path.is_dir):
        raise InputError(path, "is a folder, but a file belongs there")
    above = next(parent for parent in path.absolute().parents if looked_at(parent, Path.exists))
    if not looked_at(above, Path.is_dir):
        raise InputError(above, "is a file, but a folder belongs there")


def write_images(folder: Path, images: Mapping[str, bytes]) -> list[str]:
    """Write all or none of the images; returns their names. Raises InputError."""
    for name in images:
        check_target(folder / name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".treegen-") as staged:
            for name, content in images.items():
                (Path(staged) / name).write_bytes(content)
            for name in images:
                (Path(staged) / name).replace(folder / name)
    except (OSError, ValueError) as error:
        raise InputError(folder, f"cannot be written: {reason(error)}") from None
    return list(images)
