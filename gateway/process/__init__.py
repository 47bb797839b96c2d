"""The process of the gateway: one asyncio loop, its listeners, signals, metrics and health."""
