"""What a command prints: tables, progress, errors, times and sizes as people write them."""
