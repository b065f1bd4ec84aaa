"""The one error type that means: the caller can mend this."""


class InputError(ValueError):
    """What was asked for cannot be done as asked.

    The message is one line that says what was expected, what came and what to do. The command line prints it without a
    traceback and exits with status 2.
    """
