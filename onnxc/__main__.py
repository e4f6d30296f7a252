"""`onnxc` and `python -m onnxc`: the command line. An interruption is silent even while it is imported."""

INTERRUPTED = 130  # the exit status


def main() -> int:
    """Runs the command that the process was given; its exit status."""
    try:
        from .commands import cli

        status = cli.main()
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        # `python -m` ends by the signal, whatever the status, where the last text that was executed was
        # interrupted: records are made by such texts.
        exec("")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
