"""`onnxc` and `python -m onnxc`: the command line. An interruption is silent even while it is imported."""


def main() -> int:
    """Runs the command that the process was given; its exit status."""
    try:
        from .commands import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
