"""What the hash of a package's files holds: their code and where it is, and no more."""

from pathlib import Path

import pytest

from triton_tune.core.source import hash_of

CODE = '''"""A file."""

class Kept:
    """A class."""

    LIMIT = 2

    def run(self, x):
        """A function."""
        return f"# {x}", "text"
'''


@pytest.mark.parametrize(("old", "new", "same"), [
    ('"""A file."""', "# Another file.", True), ('    """A class."""\n', "", True),
    ('"""A function."""', '"""The same\n\n        in other words."""  # and a comment', True),
    ('f"# {x}", "text"', "(f\"# {x}\",\n            'text')", True), ("\n", "\r\n", True),
    ("LIMIT = 2", "LIMIT = 3", False), ("# {x}", "% {x}", False), ('"text"', '"texts"', False),
    ('"""A function."""', "None", False),
])  # fmt: skip
def test_code_counts_and_what_is_written_about_it_does_not(
    tmp_path: Path, old: str, new: str, same: bool
) -> None:
    file = tmp_path / "kernel.py"
    assert old in CODE
    file.write_text(CODE, newline="")
    before = hash_of(tmp_path, [file])
    file.write_text(CODE.replace(old, new), newline="")
    assert (hash_of(tmp_path, [file]) == before) is same


def test_a_file_counts_by_its_path_below_the_folder_wherever_the_folder_is(tmp_path: Path) -> None:
    one, other, moved = (tmp_path / name for name in ("a/x.py", "b/x.py", "a/y.py"))
    for file in (one, other, moved):
        file.parent.mkdir(exist_ok=True)
        file.write_text(CODE)
    assert hash_of(one.parent, [one]) == hash_of(other.parent, [other]) != hash_of(one.parent, [moved])
    assert hash_of(tmp_path, [one, other]) == hash_of(tmp_path, [other, one]) != hash_of(tmp_path, [one])
