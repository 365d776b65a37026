"""The one exception that a user of attn-tune is meant to see."""


class TuningError(Exception):
    """Wrong use or bad input: one line that says what and how to mend it."""
