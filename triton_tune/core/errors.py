"""The exception for wrong use of attn-tune."""


class TuningError(Exception):
    """Wrong use or bad input; the message is one line that says what is wrong and how to mend it."""
