"""The public names of the package, which are imported when they are first used."""

import attn_kernels


def test_every_public_name_can_be_imported() -> None:
    for name in attn_kernels.__all__:
        assert getattr(attn_kernels, name).__name__ == name
    assert sorted(attn_kernels.__all__) == attn_kernels.__all__
