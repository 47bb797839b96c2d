"""Access decisions, stored passwords, and addresses in one spelling."""
