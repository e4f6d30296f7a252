"""`python -m onnxc`: the command line."""

from .commands.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
