"""The active controller, its periodic tasks, and the way of a request from a broker to it."""
