"""Third-party clients with one common interface."""
