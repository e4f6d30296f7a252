"""The command line: its arguments, what each command does, and what it prints."""
