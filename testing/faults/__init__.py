"""The faults that a test arms, and how they strike."""
