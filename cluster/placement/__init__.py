"""Where replicas are placed, and how leader and ISR of a partition change."""
