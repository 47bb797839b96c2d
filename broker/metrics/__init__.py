"""Metrics: what a scrape of `/metrics` tells, in the names that existing dashboards ask for.

    series.py     every series, declared once            readings.py   what each is at this moment
    exposition.py readings as text, in slices            loop_watch.py the event loop, watched from inside
    alerts.py     dashboard.py  reference.py             what `make docs` writes from the declarations

State is read when somebody asks. What no state remembers is counted where it happens (counters/latency.py,
counters/traffic.py).
"""
