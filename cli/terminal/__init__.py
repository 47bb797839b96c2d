"""Output of a command: tables, progress, errors, and readable times and sizes."""
