"""Commands that start a broker (`dev`, `serve`, `run`) or work on its directories (`storage`, `segments`)."""
