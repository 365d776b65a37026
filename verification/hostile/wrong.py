"""The one exception of a judgement."""


class Wrong(Exception):
    """A command did what it must not do."""
