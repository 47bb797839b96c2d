"""The coordinator room: how clients agree. Everything here is pure; `broker/coordinators.py` carries it out."""
