"""The coordinator room: how clients agree. Everything here is pure; `broker/coordinators/runtime.py` carries it out."""
