"""Files and disks; `disk.py` is the only module that opens files."""
