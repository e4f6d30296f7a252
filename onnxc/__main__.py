"""`onnxc` and `python -m onnxc`: the command line. An interruption is silent even while it is imported."""


def main() -> int:
    """Runs the command that the process was given; its exit status."""
    try:
        from .commands.ending import requests_kept

        with requests_kept():
            from .commands import cli

            status = cli.main()
    except KeyboardInterrupt:
        status = 130
    # Where the last text that was executed was interrupted, as those are of which dataclasses are made,
    # `python -m` ends by the signal, whatever the status is.
    exec("")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
