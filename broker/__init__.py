"""The broker room: who listens, wires the rooms together, and alone touches the world."""
