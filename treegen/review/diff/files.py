"""What moved in the output folder beside the modules of devices."""

from __future__ import annotations

from treegen.review.diff.snapshots import Snapshot

_WHAT = {"config.py": "the launch config's type", "__init__.py": "which module serves which GPU"}


def other_files(old: Snapshot, new: Snapshot) -> dict[str, str]:
    """Each other file that differs, and how; nothing where a side is a single module."""
    if old.single or new.single:
        return {}
    modules = {f"{kernel}/{device}.py" for side in (old, new) for kernel, device in side.modules}
    found = {}
    for path in sorted({*old.texts, *new.texts} - modules):
        before, after = old.texts.get(path), new.texts.get(path)
        if before == after:
            continue
        how = "is new" if before is None else "is gone" if after is None else "changed"
        folder, _, name = path.rpartition("/")
        found[path] = f"{how} ({_WHAT[name]})" if folder and name in _WHAT else how
    return found
